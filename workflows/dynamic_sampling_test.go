package workflows_test

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/workflow"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/tasks/stream"
	"github.com/fulgurite/fulgurite/workflows"
)

// randomReward rewards a rollout by its address alone: about half of the groups of two
// are flat.
func randomReward(in activities.RunAgentInput) float64 {
	sum := sha256.Sum256([]byte(in.Rollout.String()))
	return float64(sum[0] & 1)
}

// expectedGroups returns the groups that a step of a run of n tasks has to train on. It
// handles one task after the other, those of the stream and then each reserve, while the
// workflow works round by round.
func expectedGroups(s spec.Spec, n, step int, fake *fakeActivities) (groups []activities.Group, replaced int) {
	type prompt struct {
		position int
		kind     record.Kind
		task     int
	}
	groups = make([]activities.Group, s.Training.TasksPerStep)
	var queue []prompt
	for i := range groups {
		queue = append(queue, prompt{i, record.Train, (step-1)*len(groups) + i})
	}
	for reserves := 0; len(queue) > 0; queue = queue[1:] {
		p := queue[0]
		index, _ := stream.At(s.Seed, n, p.task)
		g := activities.Group{Task: p.task}
		if p.kind == record.Reserve {
			index, g.Kind = stream.Reserve(s.Seed, n, step, p.task), p.kind
		}
		_, bad := fake.taskFaults[index]
		for sample := range s.Training.SamplesPerTask {
			g.Attempts = append(g.Attempts, 1)
			g.Rewards = append(g.Rewards, fake.reward(activities.RunAgentInput{
				Rollout: record.RolloutID{Run: "run", Kind: p.kind, Step: step, Task: p.task, Sample: sample},
			}))
		}
		same := g.Rewards[0] == g.Rewards[1]
		if same && !bad && replaced < s.Training.DynamicSampling {
			replaced++
		} else if !bad {
			groups[p.position] = g
			continue
		}
		queue = append(queue, prompt{p.position, record.Reserve, reserves})
		reserves++
	}
	return groups, replaced
}

func TestFlatGroupsAreReplacedUntilTheReplacementsAreUsedUp(t *testing.T) {
	t.Parallel()
	filled, left := false, false
	for seed := range uint64(2) {
		for lag := range 3 {
			for _, most := range []int{1, 2, 100} {
				s := testSpec()
				s.Seed, s.Training.Lag, s.Training.DynamicSampling = seed, lag, most
				fake := &fakeActivities{score: constantScore, reward: randomReward, taskFaults: map[int]string{7: "no input", 23: "no answer", 31: "no grader"}}
				env := fake.environment(s)
				env.ExecuteWorkflow(workflows.TrainingWorkflow, input(t))
				require.NoError(t, env.GetWorkflowError())
				require.Len(t, fake.batches, 4)
				for i, b := range fake.batches {
					groups, replaced := expectedGroups(s, 50, i+1, fake)
					require.Equal(t, groups, b.Groups, "seed %d, lag %d, %d replacements, step %d", seed, lag, most, i+1)
					still := 0
					for _, g := range groups {
						if g.Rewards[0] == g.Rewards[1] {
							still++
						}
					}
					metrics := fake.recorded[i].Metrics
					require.InDelta(t, replaced, metrics["batch/refilled_groups"], 0)
					require.InDelta(t, still, metrics["batch/flat_groups"], 0)
					require.True(t, still == 0 || replaced == most, "nothing flat is trained while there are replacements")
					filled, left = filled || replaced > most/2, left || still > 0
				}
			}
		}
	}
	require.True(t, filled && left, "the table has both ends")
}

func TestWithoutDynamicSamplingFlatGroupsAreTrained(t *testing.T) {
	t.Parallel()
	fake := &fakeActivities{score: constantScore}
	env := fake.environment(testSpec())
	env.ExecuteWorkflow(workflows.TrainingWorkflow, input(t))
	require.NoError(t, env.GetWorkflowError())
	for i, b := range fake.batches {
		for _, g := range b.Groups {
			require.Empty(t, g.Kind)
		}
		require.NotContains(t, fake.recorded[i].Metrics, "batch/flat_groups", "a run that does not ask for it records what it ever did")
	}
}

// Which groups are replaced must not depend on which ended first.
func TestFlatGroupsAreReplacedInOrderOfPlace(t *testing.T) {
	t.Parallel()
	s := testSpec()
	s.Training.DynamicSampling, s.Training.Steps, s.Evaluation.Every = 1, 1, 1
	others := make(chan struct{})
	var mu sync.Mutex
	in := 0
	fake := &fakeActivities{score: constantScore}
	fake.reward = func(r activities.RunAgentInput) float64 {
		if r.Rollout.Kind != record.Train {
			return float64(r.Rollout.Sample)
		}
		if r.Rollout.Task == 0 {
			<-others // the first position is the last to come in
			return 1
		}
		mu.Lock()
		defer mu.Unlock()
		if in++; in == 4 {
			close(others)
		}
		return 0
	}
	env := fake.environment(s)
	env.ExecuteWorkflow(workflows.TrainingWorkflow, input(t))
	require.NoError(t, env.GetWorkflowError())
	require.Equal(t, []activities.Group{
		{Kind: record.Reserve, Task: 0, Attempts: []int{1, 1}, Rewards: []float64{0, 1}},
		{Task: 1, Attempts: []int{1, 1}, Rewards: []float64{0, 0}},
		{Task: 2, Attempts: []int{1, 1}, Rewards: []float64{0, 0}},
	}, fake.batches[0].Groups)
	value, err := env.QueryWorkflow(workflows.QueryProgress)
	require.NoError(t, err)
	var p workflows.Progress
	require.NoError(t, value.Get(&p))
	require.InDelta(t, (1+1+1)/8.0, p.Curve[0].Reward, 1e-12, "the curve shows all rollouts, those of the replaced group too")
	shown, ok := record.Step{Metrics: fake.recorded[0].Metrics}.Reward()
	require.True(t, ok)
	require.InDelta(t, p.Curve[0].Reward, shown, 1e-12, "wherever the step is shown")
	require.Equal(t, 16, p.Calls, "and so does what they cost")
}

func TestDynamicSamplingSurvivesContinueAsNew(t *testing.T) {
	t.Parallel()
	s := testSpec()
	s.Training.Lag, s.Training.Steps, s.Training.DynamicSampling = 2, 6, 2
	fresh := func() *fakeActivities {
		return &fakeActivities{score: constantScore, reward: randomReward, taskFaults: map[int]string{4: "no input"}}
	}
	whole, cut := fresh(), fresh()
	env := whole.environment(s)
	env.ExecuteWorkflow(workflows.TrainingWorkflow, input(t))
	require.NoError(t, env.GetWorkflowError())

	in, executions := input(t), 0
	for ; executions < 20; executions++ {
		env := cut.environment(s)
		suggestAfterOneStep(env)
		env.ExecuteWorkflow(workflows.TrainingWorkflow, in)
		var again *workflow.ContinueAsNewError
		if !errors.As(env.GetWorkflowError(), &again) {
			require.NoError(t, env.GetWorkflowError())
			break
		}
		in = workflows.TrainingInput{}
		require.NoError(t, json.Unmarshal(again.Input.Payloads[0].Data, &in))
	}
	require.Positive(t, executions)
	require.Equal(t, whole.batches, cut.batches)
	require.Equal(t, whole.trained, cut.trained)
	require.Equal(t, fmt.Sprint(metricsOf(whole)), fmt.Sprint(metricsOf(cut)))
	require.Contains(t, fmt.Sprint(metricsOf(cut)), "batch/refilled_groups:2")
}

// If the credit depends on more than the final reward, equal final rewards say nothing:
// the credit of each group decides.
func TestCreditDecidesWhichGroupsAreFlat(t *testing.T) {
	t.Parallel()
	s := testSpec()
	s.Training.DynamicSampling, s.Training.Steps, s.Evaluation.Every = 10, 1, 1
	s.Credit.Rewards = map[string]float64{"final": 1, "brevity": 0.3}
	fake := &fakeActivities{score: constantScore, reward: func(r activities.RunAgentInput) float64 { return float64(r.Rollout.Task % 2 * r.Rollout.Sample) }}
	fake.hasCredit = func(g activities.Group) bool { return g.Kind == record.Reserve || g.Task != 1 } // the one whose rewards differ is flat
	env := fake.environment(s)
	env.ExecuteWorkflow(workflows.TrainingWorkflow, input(t))
	require.NoError(t, env.GetWorkflowError())
	groups := fake.batches[0].Groups
	require.Equal(t, []float64{0, 0}, groups[0].Rewards, "equal final rewards are kept")
	require.Equal(t, activities.Group{Kind: record.Reserve, Task: 0, Attempts: []int{1, 1}, Rewards: []float64{0, 0}}, groups[1])
	require.Len(t, fake.flatChecks, 2, "once for the groups of the step, once for the replacement")
	require.Len(t, fake.flatChecks[0].Groups, 3)
	require.Equal(t, groups[1:2], fake.flatChecks[1].Groups)
	require.InDelta(t, 1, fake.recorded[0].Metrics["batch/refilled_groups"], 0)
	require.InDelta(t, 0, fake.recorded[0].Metrics["batch/flat_groups"], 0)
}

func TestFinalRewardsAloneNeedNoCreditToBeFlat(t *testing.T) {
	t.Parallel()
	s := testSpec()
	s.Training.DynamicSampling = 2
	fake := &fakeActivities{score: constantScore, reward: randomReward}
	env := fake.environment(s)
	env.ExecuteWorkflow(workflows.TrainingWorkflow, input(t))
	require.NoError(t, env.GetWorkflowError())
	require.Empty(t, fake.flatChecks)
}

// A group whose agents asked no model has nothing to train, however its rewards differ.
func TestAGroupThatSampledNothingIsFlat(t *testing.T) {
	t.Parallel()
	s := testSpec()
	s.Training.DynamicSampling, s.Training.Steps, s.Evaluation.Every = 10, 1, 1
	fake := &fakeActivities{score: constantScore, reward: func(r activities.RunAgentInput) float64 { return float64(r.Rollout.Sample) }}
	fake.silent = func(r activities.RunAgentInput) bool { return r.Rollout.Kind == record.Train && r.Rollout.Task == 1 }
	env := fake.environment(s)
	env.ExecuteWorkflow(workflows.TrainingWorkflow, input(t))
	require.NoError(t, env.GetWorkflowError())
	require.Equal(t, activities.Group{Kind: record.Reserve, Task: 0, Attempts: []int{1, 1}, Rewards: []float64{0, 1}}, fake.batches[0].Groups[1])
	require.Empty(t, fake.flatChecks)
	require.InDelta(t, 1, fake.recorded[0].Metrics["batch/refilled_groups"], 0)
}

func metricsOf(fake *fakeActivities) (all []map[string]float64) {
	for _, r := range fake.recorded {
		all = append(all, r.Metrics)
	}
	return all
}
