package testsuite_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/fulgurite/fulgurite/agent"
	"github.com/fulgurite/fulgurite/credit"
	"github.com/fulgurite/fulgurite/examples/calc/calculator"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/hf"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/workers/stack"
	"github.com/fulgurite/fulgurite/workflows"
)

// agree is an agent of two: a writer answers the question, and so does a checker. There is an
// answer only if both come to the same.
func agree(ctx context.Context, task agent.Task, env agent.Env) (string, error) {
	var answers [2]string
	for i, name := range []string{"writer", "checker"} {
		url := strings.TrimSuffix(env.BaseURL, "/v1") + "/n/" + name + "/v1"
		var err error
		if answers[i], err = (calculator.Agent{Client: calculator.Connect(url, env.Key), Model: env.Model, MaxTurns: 2}).Solve(ctx, task.Input); err != nil {
			return "", err
		}
	}
	if answers[0] != answers[1] {
		return "they differ", nil
	}
	return answers[0], nil
}

// paired returns the spec of a run that trains the two of agree, each as a policy.
func paired(lag, steps int) spec.Spec {
	s := deciding(lag, steps)
	s.Agent.Func = "pair"
	s.Model.WarmStart.Updates = 300
	s.Training.SamplesPerTask = 8
	s.Policies = map[string]spec.Policy{
		"checker": {Optimizer: &spec.Optimizer{LearningRate: 1e-3}},
		"writer":  {Match: []spec.PolicyMatch{{Agent: "writer"}}},
	}
	return s.WithDefaults()
}

// criticized returns paired with a critic for each policy and the divergence in rewards.
func criticized(lag, steps int) spec.Spec {
	s := paired(lag, steps)
	s.Credit = spec.Credit{Tokens: credit.GAE, KLInReward: &spec.KL{Weight: 0.05}}
	checker := s.Policies["checker"]
	checker.Critic, checker.Credit = &spec.Critic{Passes: 2}, &spec.Credit{KLInReward: &spec.KL{Weight: 0.1}}
	s.Policies["checker"] = checker
	return s.WithDefaults()
}

// versionsOf returns the versions of a policy and checks that there is one of each number.
func versionsOf(ctx context.Context, t *testing.T, st *stack.Stack, run, policy string, want int) []model.Version {
	t.Helper()
	versions, err := st.Store.Versions(ctx, run, policy)
	require.NoError(t, err)
	require.Len(t, versions, want, policy)
	for i, v := range versions {
		require.Equal(t, i, v.Number, policy)
	}
	return versions
}

// requireOwnCalls checks, for the attempts of a step, that each call was sampled by the
// version of its policy, and that the batch has rows of one policy each.
func requireOwnCalls(ctx context.Context, t *testing.T, st *stack.Stack, run string, step int, weights map[string][]model.Version) {
	t.Helper()
	attempts, err := st.Store.Attempts(ctx, run, record.Train, step)
	require.NoError(t, err)
	require.NotEmpty(t, attempts)
	policies := map[string]map[int]string{} // of each call of an attempt
	for _, a := range attempts {
		calls, err := st.Store.Calls(ctx, a.Address)
		require.NoError(t, err)
		policies[a.String()] = map[int]string{}
		for _, c := range calls {
			require.Equal(t, c.Agent, c.Policy, "the policies are called as the agents are")
			require.Equal(t, weights[c.Policy][c.Version].Weights, c.Weights)
			policies[a.String()][c.Seq] = c.Policy
		}
	}
	entry, err := st.Store.Batch(ctx, run, model.DefaultPolicy, step)
	require.NoError(t, err)
	data, err := st.Blobs.Get(ctx, entry.Digest)
	require.NoError(t, err)
	batch, err := hf.DecodeBatch(data)
	require.NoError(t, err)
	require.Equal(t, model.PoliciesBatchFormat, batch.Format)
	rows := map[string]int{}
	for _, r := range batch.Rows {
		rows[r.Policy]++
		for _, call := range r.Calls {
			if call >= 0 {
				require.Equal(t, r.Policy, policies[batch.Trajectories[r.Trajectory].Attempt][int(call)])
			}
		}
	}
	require.Len(t, rows, 2)
	trained := 0
	for policy, n := range rows {
		part := batch.Of(policy)
		require.Len(t, part.Rows, n)
		trained += part.Denominators.Tokens
	}
	require.Equal(t, batch.Denominators.Tokens, trained)
}

func TestEachPolicyIsTrainedOnItsOwnCalls(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	const steps = 3
	results := make([]workflows.TrainingResult, 2)
	var g errgroup.Group
	for i, events := range []int{0, 100} { // the second continues as new on its way
		g.Go(func() error {
			st, err := stack.Start(ctx, stack.Options{Dir: t.TempDir(), Agents: agent.Registry{"pair": agree}, Log: zap.NewNop(), HistoryEvents: events})
			if err != nil {
				return err
			}
			name := fmt.Sprintf("pair-%d", i)
			if results[i], err = train(ctx, st, name, paired(1, steps)); err != nil {
				return err
			}
			versions := map[string][]model.Version{}
			for _, policy := range []string{model.DefaultPolicy, "writer", "checker"} {
				versions[policy] = versionsOf(ctx, t, st, name, policy, steps+1)
			}
			require.Equal(t, versions["writer"][0].Weights, versions["checker"][0].Weights, "both begin as the same model")
			require.NotEqual(t, versions["writer"][steps].Weights, versions["checker"][steps].Weights)
			for policy, all := range versions {
				require.NotEqual(t, all[0].Weights, all[steps].Weights, policy)
			}
			for step := 1; step <= steps; step++ {
				requireOwnCalls(ctx, t, st, name, step, versions)
			}
			accounted(ctx, t, st, name)
			return st.Close()
		})
	}
	require.NoError(t, g.Wait())
	for _, r := range results {
		require.Equal(t, steps, r.Steps)
	}
	require.Equal(t, results[0].Weights, results[1].Weights, "under another name, and continued as new")
}

func TestARunOfTwoPoliciesResetAnywhereEndsInTheSameWeights(t *testing.T) {
	t.Parallel()
	skipShort(t, "TestEachPolicyIsTrainedOnItsOwnCalls runs two policies")
	requireResets(t, "pair-reset", paired(0, 2), "InitPolicy", "AssignCredit", "TrainStep", "PromoteVersion")
}

func TestARunOfTwoPoliciesWithCriticsResetAnywhereEndsInTheSameWeights(t *testing.T) {
	t.Parallel()
	skipShort(t, "TestEachPolicyIsTrainedOnItsOwnCalls runs two policies")
	critics := map[string][]model.Version{}
	requireResets(t, "pair-critics", criticized(0, 2), "InitPolicy", "ScoreBatch", "ScoreReference", "TrainCritic")
	ctx, st := t.Context(), sharedStack(t)
	for _, policy := range []string{"writer", "checker"} {
		critics[policy] = versionsOf(ctx, t, st, "pair-critics", policy+".critic", 3)
		require.NotEqual(t, critics[policy][0].Weights, critics[policy][2].Weights, policy)
	}
	require.NotEqual(t, critics["writer"][2].Weights, critics["checker"][2].Weights)
	mustTrain(ctx, t, st, "pair-critics-again", criticized(0, 2))
	for policy, want := range critics {
		for i, v := range versionsOf(ctx, t, st, "pair-critics-again", policy+".critic", 3) {
			require.Equal(t, want[i].Weights, v.Weights, "%s, under another name", policy)
		}
	}
	steps, err := st.Store.Steps(ctx, "pair-critics", model.DefaultPolicy)
	require.NoError(t, err)
	for _, name := range []string{"policy/writer/critic/loss", "policy/checker/critic/loss", "policy/writer/batch/kl_ref", "policy/checker/batch/kl_ref"} {
		require.Contains(t, steps[1].Metrics, name)
	}
	accounted(ctx, t, st, "pair-critics")
}

// requireResets trains a run and resets it to the first task before each of some activities. It
// checks that each of these ends as the run did.
func requireResets(t *testing.T, name string, s spec.Spec, before ...string) {
	t.Helper()
	ctx := t.Context()
	st := sharedStack(t)
	want := mustTrain(ctx, t, st, name, s)
	first := firstExecution(ctx, t, st.Client, name)
	ids, kinds := points(eventsOf(ctx, t, st.Client, name))
	seen := map[string]bool{}
	for _, event := range ids {
		kind := kinds[event]
		if (seen[kind] || !slices.Contains(before, kind)) && !*everyReset {
			continue
		}
		seen[kind] = true
		run, err := reset(ctx, st.Client, name, first, event)
		require.NoError(t, err)
		var got workflows.TrainingResult
		require.NoError(t, st.Client.GetWorkflow(ctx, name, run).Get(ctx, &got), "reset to event %d: %s", event, kind)
		require.Equal(t, want, got, "reset to event %d: %s", event, kind)
		requireWhole(ctx, t, st, name)
	}
	for _, kind := range before {
		require.True(t, seen[kind], kind)
	}
}

func TestAFrozenPolicyStaysAsItBegan(t *testing.T) {
	t.Parallel()
	skipShort(t, "other runs use the same goroutines")
	ctx := t.Context()
	st := sharedStack(t)
	s := paired(0, 2)
	writer := s.Policies["writer"]
	writer.Frozen = true
	s.Policies["writer"], s.Policies["checker"] = writer, spec.Policy{}
	mustTrain(ctx, t, st, "pair-frozen", s)
	frozen, trained := versionsOf(ctx, t, st, "pair-frozen", "writer", 3), versionsOf(ctx, t, st, "pair-frozen", "checker", 3)
	require.Equal(t, frozen[0].Weights, frozen[2].Weights)
	require.NotEqual(t, trained[0].Weights, trained[2].Weights)
	entry, err := st.Store.Batch(ctx, "pair-frozen", model.DefaultPolicy, 1)
	require.NoError(t, err)
	data, err := st.Blobs.Get(ctx, entry.Digest)
	require.NoError(t, err)
	batch, err := hf.DecodeBatch(data)
	require.NoError(t, err)
	for _, r := range batch.Rows {
		require.Equal(t, "checker", r.Policy, "the calls of a frozen policy are not trained")
	}
}

// requirePromotedAlone checks, for a run that promotes each policy alone, that each candidate
// was evaluated with what was promoted of the other then, and that decisions follow from rewards
// of these evaluations. It returns what is promoted at the end.
func requirePromotedAlone(ctx context.Context, t *testing.T, st *stack.Stack, run string, steps int) map[string]int {
	t.Helper()
	promoted, decided := map[string]int{}, 0
	row, err := st.Store.Run(ctx, run)
	require.NoError(t, err)
	tasks := row.Splits[record.Gate].Count
	for step := 1; step <= steps; step++ {
		attempts, err := st.Store.Attempts(ctx, run, record.Gate, step)
		require.NoError(t, err)
		for i, policy := range []string{"checker", "writer"} {
			want := map[string]int{"checker": promoted["checker"], "writer": promoted["writer"]}
			want[policy] = step
			found := 0
			for _, a := range attempts {
				if a.Task < i*tasks || a.Task >= (i+1)*tasks {
					continue
				}
				found++
				require.Equal(t, want, a.Terms.Versions(), a.Address)
				calls, err := st.Store.Calls(ctx, a.Address)
				require.NoError(t, err)
				for _, c := range calls {
					require.Equal(t, want[c.Policy], c.Version, "call %d of %s", c.Seq, a.Address)
				}
			}
			require.GreaterOrEqual(t, found, tasks)
			id := fmt.Sprintf("gate-%d", step)
			if p, err := st.Store.Promotion(ctx, run, policy, id); err == nil {
				require.Equal(t, promoted[policy], p.Previous)
				promoted[policy] = step
			} else {
				d, err := st.Store.Decision(ctx, run, policy, id)
				require.NoError(t, err)
				require.Equal(t, "refused", d.Verdict)
				require.Contains(t, d.Reason, "gate reward", "it was compared")
			}
			decided++
		}
		require.Len(t, gateTasks(attempts), 2*tasks, "no baseline had to be evaluated")
	}
	require.Equal(t, 2*steps, decided)
	for policy, version := range promoted {
		p, err := st.Store.Promoted(ctx, run, policy)
		require.NoError(t, err)
		require.Equal(t, version, p.Version)
	}
	return promoted
}

func gateTasks(attempts []record.Attempt) map[int]bool {
	out := map[int]bool{}
	for _, a := range attempts {
		out[a.Task] = true
	}
	return out
}

// alone returns the spec of a run of two policies, each of which is promoted alone.
func alone(steps int) spec.Spec {
	s := paired(0, steps)
	s.Promotion.Alone, s.Promotion.Significance = true, 1
	s.Evaluation.Every = 1
	return s.WithDefaults()
}

func TestEachPolicyIsPromotedAlone(t *testing.T) {
	t.Parallel()
	skipShort(t, "other runs use the same goroutines")
	ctx := t.Context()
	st := sharedStack(t)
	got := mustTrain(ctx, t, st, "pair-alone", alone(3))
	promoted := requirePromotedAlone(ctx, t, st, "pair-alone", 3)
	t.Log(promoted)
	for _, policy := range []string{"checker", "writer"} {
		require.Equal(t, promoted[policy], got.Policies[policy], policy)
	}
	require.Zero(t, got.Promoted)
	accounted(ctx, t, st, "pair-alone")
}

func TestARunThatPromotesPoliciesAloneResetAnywhereEndsTheSame(t *testing.T) {
	t.Parallel()
	skipShort(t, "TestEachPolicyIsPromotedAlone promotes two policies")
	ctx := t.Context()
	st := sharedStack(t)
	want := mustTrain(ctx, t, st, "alone-reset", alone(2))
	first := firstExecution(ctx, t, st.Client, "alone-reset")
	ids, kinds := points(eventsOf(ctx, t, st.Client, "alone-reset"))
	seen := map[string]int{}
	for _, event := range ids {
		kind := kinds[event]
		// The first PlanEvaluation is that of a policy with which another is promoted later.
		if wanted := kind == "PlanEvaluation" || kind == "DecidePromotion" || kind == "PromoteVersion"; (seen[kind] > 1 || !wanted) && !*everyReset {
			continue
		}
		seen[kind]++
		run, err := reset(ctx, st.Client, "alone-reset", first, event)
		require.NoError(t, err)
		var got workflows.TrainingResult
		require.NoError(t, st.Client.GetWorkflow(ctx, "alone-reset", run).Get(ctx, &got), "reset to event %d: %s", event, kind)
		require.Equal(t, want, got, "reset to event %d: %s", event, kind)
		requireWhole(ctx, t, st, "alone-reset")
	}
	require.Len(t, seen, 3)
	requirePromotedAlone(ctx, t, st, "alone-reset", 2)
}
