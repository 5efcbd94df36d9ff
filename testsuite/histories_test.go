package testsuite_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/history/v1"
	"go.temporal.io/sdk/client"
	"go.uber.org/zap"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/agent"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/retention"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/workers/stack"
	"github.com/fulgurite/fulgurite/workflows"
)

// recordHistories makes TestHistoriesAreRecorded write new files into histories/.
var recordHistories = flag.String("record", "", "record the histories of these `shapes`, separated by commas, or of all")

// shape is a scenario whose histories are kept.
type shape struct {
	name string
	// train runs the scenario. keep maps the names of files to the workflows whose
	// histories they hold.
	train func(ctx context.Context, t *testing.T) (st *stack.Stack, keep map[string]string)
}

func shapes() []shape {
	return []shape{
		{"plain", func(ctx context.Context, t *testing.T) (*stack.Stack, map[string]string) {
			st := start(ctx, t, t.TempDir())
			mustTrain(ctx, t, st, "plain", small(4))
			return st, map[string]string{
				"training-plain": "plain", "rollout-plain": "plain/train-1/0", "evaluation-gate": "plain/gate-2", "evaluation-test": "plain/test-0",
			}
		}},
		{"failed", func(ctx context.Context, t *testing.T) (*stack.Stack, map[string]string) {
			st := start(ctx, t, t.TempDir())
			s := small(4)
			s.Agent.Func = "nobody"
			_, err := train(ctx, st, "unknown-agent", s)
			require.Error(t, err)
			failing := small(1)
			failing.Agent.Limits.Calls = 1 // every tool use goes beyond the limit
			mustTrain(ctx, t, st, "agent-fails", failing)
			return st, map[string]string{"training-failed": "unknown-agent", "rollout-agent-failed": "agent-fails/train-1/0"}
		}},
		{"refilled", func(ctx context.Context, t *testing.T) (*stack.Stack, map[string]string) {
			st := startWith(ctx, t, t.TempDir(), agent.Registry{"calculator": calculate, "picky": picky})
			s := small(2)
			s.Agent.Func = "picky"
			mustTrain(ctx, t, st, "refilled", s)
			return st, map[string]string{"training-refilled": "refilled"}
		}},
		{"refused", func(ctx context.Context, t *testing.T) (*stack.Stack, map[string]string) {
			st := start(ctx, t, t.TempDir())
			s := small(2)
			s.Promotion.Margin = 1
			mustTrain(ctx, t, st, "refused", s)
			return st, map[string]string{"training-refused": "refused"}
		}},
		{"lag", func(ctx context.Context, t *testing.T) (*stack.Stack, map[string]string) {
			st := start(ctx, t, t.TempDir())
			mustTrain(ctx, t, st, "lag", lagging(2, 4))
			return st, map[string]string{"training-lag": "lag"}
		}},
		{"critic", func(ctx context.Context, t *testing.T) (*stack.Stack, map[string]string) {
			st := start(ctx, t, t.TempDir())
			mustTrain(ctx, t, st, "critic", critical(1, 3))
			return st, map[string]string{"training-critic": "critic"}
		}},
		{"sampled", func(ctx context.Context, t *testing.T) (*stack.Stack, map[string]string) {
			st := start(ctx, t, t.TempDir())
			url, _ := randomJudge(t)
			mustTrain(ctx, t, st, "sampled", judged(url, 3))
			return st, map[string]string{"training-sampled": "sampled"}
		}},
		{"flat", func(ctx context.Context, t *testing.T) (*stack.Stack, map[string]string) {
			st := start(ctx, t, t.TempDir())
			mustTrain(ctx, t, st, "flat", sampled(1, 3))
			return st, map[string]string{"training-flat": "flat"}
		}},
		{"chosen", func(ctx context.Context, t *testing.T) (*stack.Stack, map[string]string) {
			st := start(ctx, t, t.TempDir())
			keep := map[string]string{}
			for _, kind := range []string{spec.CurriculumBand, spec.CurriculumEasiestFirst, spec.CurriculumStages} {
				name := strings.ReplaceAll(kind, "_", "-")
				mustTrain(ctx, t, st, name, choosing(kind, 1, 4))
				keep["training-"+name] = name
			}
			return st, keep
		}},
		{"elsewhere", func(ctx context.Context, t *testing.T) (*stack.Stack, map[string]string) {
			st := start(ctx, t, t.TempDir())
			theirWorker(t, st.Client)
			mustTrain(ctx, t, st, "workflow", externalAgentSpec(spec.Temporal{Workflow: "TheirAgent"}))
			mustTrain(ctx, t, st, "activity", externalAgentSpec(spec.Temporal{Activity: "their_agent"}))
			return st, map[string]string{"rollout-their-workflow": "workflow/train-1/1", "rollout-their-activity": "activity/train-1/1"}
		}},
		{"terminated", func(ctx context.Context, t *testing.T) (*stack.Stack, map[string]string) {
			st, _ := trainStopped(ctx, t, "terminated", terminate)
			return st, map[string]string{"training-terminated": "terminated", "rollout-started-again": "terminated/train-1/1"}
		}},
		{"cancelled", func(ctx context.Context, t *testing.T) (*stack.Stack, map[string]string) {
			st, _ := trainStopped(ctx, t, "cancelled", cancel)
			return st, map[string]string{
				"training-children-cancelled": "cancelled", "rollout-cancelled": "cancelled/train-1/1", "evaluation-cancelled": "cancelled/gate-2",
			}
		}},
		{"large", func(ctx context.Context, t *testing.T) (*stack.Stack, map[string]string) {
			st := startWith(ctx, t, t.TempDir(), agent.Registry{"calculator": calculate, "lazy": lazy})
			mustTrain(ctx, t, st, "large", wide(2, 300))
			return st, map[string]string{"rollout-large": "large/train-1/1"}
		}},
		{"failed-fast", func(ctx context.Context, t *testing.T) (*stack.Stack, map[string]string) {
			st := start(ctx, t, t.TempDir())
			s := tiny(spec.Agent{Func: "nobody"})
			s.Training.TasksPerStep = 16
			_, err := train(ctx, st, "failed-fast", s)
			require.Error(t, err)
			return st, map[string]string{"training-failed-fast": "failed-fast", "rollout-failed-fast": "failed-fast/train-1/0"}
		}},
		{"reset", func(ctx context.Context, t *testing.T) (*stack.Stack, map[string]string) {
			st := start(ctx, t, t.TempDir())
			mustTrain(ctx, t, st, "reset", deciding(1, 2))
			ids, kinds := points(eventsOf(ctx, t, st.Client, "reset"))
			at := ids[slices.IndexFunc(ids, func(id int64) bool { return kinds[id] == "DecidePromotion" })]
			run, err := reset(ctx, st.Client, "reset", firstExecution(ctx, t, st.Client, "reset"), at)
			require.NoError(t, err)
			require.NoError(t, st.Client.GetWorkflow(ctx, "reset", run).Get(ctx, nil))
			return st, map[string]string{"training-reset": "reset"}
		}},
		{"retried", func(ctx context.Context, t *testing.T) (*stack.Stack, map[string]string) {
			var mended atomic.Bool
			st := startWith(ctx, t, t.TempDir(), agent.Registry{"failing": failing(2, &mended)})
			s := deciding(1, 2)
			s.Agent.Func = "failing"
			_, err := train(ctx, st, "retried", s)
			require.Error(t, err)
			mended.Store(true)
			_, err = retry(ctx, st, "retried")
			require.NoError(t, err)
			return st, map[string]string{"training-abandoned": "retried " + firstExecution(ctx, t, st.Client, "retried"), "training-retried": "retried"}
		}},
		{"evaluated", func(ctx context.Context, t *testing.T) (*stack.Stack, map[string]string) {
			st := start(ctx, t, t.TempDir())
			mustTrain(ctx, t, st, "base", evaluating(""))
			mustTrain(ctx, t, st, "evaluated", evaluating("base@0"))
			return st, map[string]string{"training-evaluated": "evaluated"}
		}},
		{"searched", func(ctx context.Context, t *testing.T) (*stack.Stack, map[string]string) {
			st := startWith(ctx, t, t.TempDir(), agent.Registry{"sorter": sortWord})
			var asked atomic.Int64
			keep := map[string]string{"candidate-validation": "gepa/validation-0"}
			for _, algorithm := range []string{spec.AlgorithmGEPA, spec.AlgorithmAPO} {
				_, err := optimize(ctx, st, algorithm, optimizing(t, algorithm, hintingReflector(t, &asked)))
				require.NoError(t, err)
				keep["prompts-"+algorithm] = algorithm
			}
			return st, keep
		}},
		{"searched-on", func(ctx context.Context, t *testing.T) (*stack.Stack, map[string]string) {
			st, err := stack.Start(ctx, stack.Options{
				Dir: t.TempDir(), Agents: agent.Registry{"sorter": sortWord}, Log: zap.NewNop(), HistoryEvents: 60,
			})
			require.NoError(t, err)
			var asked atomic.Int64
			_, err = optimize(ctx, st, "continued", optimizing(t, spec.AlgorithmGEPA, hintingReflector(t, &asked)))
			require.NoError(t, err)
			first := firstExecution(ctx, t, st.Client, "continued")
			return st, map[string]string{"prompts-continued": "continued " + first, "prompts-resumed": "continued"}
		}},
		{"phases", func(ctx context.Context, t *testing.T) (*stack.Stack, map[string]string) {
			st := startWith(ctx, t, t.TempDir(), agent.Registry{"asker": sortByPrompt})
			_, err := runPhases(ctx, st, "phases", inPhases(t))
			require.NoError(t, err)
			return st, map[string]string{"phases-plain": "phases"}
		}},
		{"pruned", pruneScheduled},
		{"approval", trainApproval},
		{"timed-out", func(ctx context.Context, t *testing.T) (*stack.Stack, map[string]string) {
			st := start(ctx, t, t.TempDir())
			s := learning(2)
			s.Promotion.Approval, s.Promotion.ApprovalHours = true, 0.1/3600
			require.Zero(t, mustTrain(ctx, t, st, "timed-out", s).Promoted)
			return st, map[string]string{"training-timed-out": "timed-out"}
		}},
		{"steered", trainSteered},
		{"killed", trainKilled},
		{"continued", func(ctx context.Context, t *testing.T) (*stack.Stack, map[string]string) {
			st, err := stack.Start(ctx, stack.Options{
				Dir: t.TempDir(), Agents: agent.Registry{"calculator": calculate}, Log: zap.NewNop(), HistoryEvents: 100,
			})
			require.NoError(t, err)
			mustTrain(ctx, t, st, "continued", lagging(1, 5))
			first := firstExecution(ctx, t, st.Client, "continued")
			return st, map[string]string{"training-continued": "continued " + first, "training-resumed": "continued"}
		}},
	}
}

// picky refuses some tasks before it asks the model anything.
func picky(ctx context.Context, task agent.Task, env agent.Env) (string, error) {
	if strings.HasPrefix(task.Input, "1") {
		return "", errors.New("I don't do tasks that begin with a 1")
	}
	return calculate(ctx, task, env)
}

func mustTrain(ctx context.Context, t *testing.T, st *stack.Stack, name string, s spec.Spec) workflows.TrainingResult {
	t.Helper()
	result, err := train(ctx, st, name, s)
	require.NoError(t, err)
	return result
}

// learning returns a spec whose versions beat version 0 from the first steps on.
func learning(steps int) spec.Spec {
	s := small(steps)
	s.Promotion.Significance, s.Training.Optimizer.LearningRate = 1, 2e-3
	return s
}

func trainApproval(ctx context.Context, t *testing.T) (*stack.Stack, map[string]string) {
	st := start(ctx, t, t.TempDir())
	s := learning(4)
	s.Promotion.Approval = true
	ended := inBackground(ctx, st, "approval", s.WithDefaults())
	update(ctx, t, st, "approval", workflows.UpdateApprove, workflows.VerdictInput{By: "ada"})
	update(ctx, t, st, "approval", workflows.UpdateStop, workflows.ControlInput{By: "ada"})
	for {
		select {
		case err := <-ended:
			require.NoError(t, err)
			return st, map[string]string{"training-approval": "approval"}
		case <-time.After(100 * time.Millisecond):
			// The last candidate may wait as well.
			_, _ = tryUpdate(ctx, st, "approval", workflows.UpdateReject, workflows.VerdictInput{By: "ada", Reason: "one is enough"})
		}
	}
}

// pruneScheduled has a Temporal Schedule prune twice: the second time nothing is left.
func pruneScheduled(ctx context.Context, t *testing.T) (*stack.Stack, map[string]string) {
	st := start(ctx, t, t.TempDir())
	for _, name := range []string{"one", "two"} {
		mustTrain(ctx, t, st, name, small(4))
	}
	const id = "prune:default"
	schedule, err := st.Client.ScheduleClient().Create(ctx, client.ScheduleOptions{
		ID: id, Overlap: enums.SCHEDULE_OVERLAP_POLICY_SKIP, Spec: client.ScheduleSpec{Intervals: []client.ScheduleIntervalSpec{{Every: 24 * time.Hour}}},
		Action: &client.ScheduleWorkflowAction{
			ID: id, Workflow: workflows.TypePrune, TaskQueue: workflows.QueueTraining,
			Args: []any{activities.PruneInput{Rule: retention.PruneRule{Runs: "*", Weights: true, Keep: spec.Keep{Last: 1}, Records: true}, By: "ada"}},
		},
	})
	require.NoError(t, err)
	keep := map[string]string{}
	for n, file := range []string{"prune-scheduled", "prune-nothing-left"} {
		require.NoError(t, schedule.Trigger(ctx, client.ScheduleTriggerOptions{}))
		var of *client.ScheduleWorkflowExecution
		require.Eventually(t, func() bool {
			d, err := schedule.Describe(ctx)
			require.NoError(t, err)
			if len(d.Info.RecentActions) > n {
				of = d.Info.RecentActions[n].StartWorkflowResult
			}
			return of != nil
		}, time.Minute, 20*time.Millisecond)
		var out activities.PruneResult
		require.NoError(t, st.Client.GetWorkflow(ctx, of.WorkflowID, of.FirstExecutionRunID).Get(ctx, &out))
		require.Equal(t, 2*(1-n), out.Runs)
		keep[file] = of.WorkflowID + " " + of.FirstExecutionRunID
	}
	return st, keep
}

func trainSteered(ctx context.Context, t *testing.T) (*stack.Stack, map[string]string) {
	st := start(ctx, t, t.TempDir())
	ended := inBackground(ctx, st, "steered", small(6))
	update(ctx, t, st, "steered", workflows.UpdateSet, workflows.SetInput{By: "ada", Values: map[string]float64{"training.optimizer.learning_rate": 1e-3}})
	update(ctx, t, st, "steered", workflows.UpdatePause, workflows.ControlInput{By: "ada"})
	update(ctx, t, st, "steered", workflows.UpdateResume, workflows.ControlInput{By: "ada"})
	update(ctx, t, st, "steered", workflows.UpdateStop, workflows.ControlInput{By: "ada"})
	require.NoError(t, <-ended)
	return st, map[string]string{"training-steered": "steered"}
}

// trainKilled kills the whole stack while rollouts are under way.
func trainKilled(ctx context.Context, t *testing.T) (*stack.Stack, map[string]string) {
	dir := t.TempDir()
	process := exec.CommandContext(ctx, os.Args[0], "-test.run=^$")
	process.Env = append(os.Environ(), victimVariable+"="+dir, kindVariable+"=slow")
	process.Stderr = os.Stderr
	require.NoError(t, process.Start())
	var running record.Address
	require.Eventually(t, func() bool {
		db, err := openStore(ctx, dir)
		if err != nil {
			return false
		}
		defer db.Close()
		attempts, err := db.Attempts(ctx, "run", record.Train, 2)
		for _, a := range attempts {
			if a.Outcome == record.OutcomeRunning {
				running = a.Address
			}
		}
		return err == nil && running.Attempt > 0
	}, 2*time.Minute, 20*time.Millisecond)
	require.NoError(t, process.Process.Signal(syscall.SIGKILL))
	require.Error(t, process.Wait())
	st := startWith(ctx, t, dir, agent.Registry{"calculator": calculate, "slow": slow})
	mustTrain(ctx, t, st, "run", victimSpec("slow"))
	return st, map[string]string{"training-killed": "run", "rollout-killed": fmt.Sprintf("run/train-2/%d", running.Task)}
}

func inBackground(ctx context.Context, st *stack.Stack, name string, s spec.Spec) <-chan error {
	ended := make(chan error, 1)
	go func() {
		_, err := train(ctx, st, name, s)
		ended <- err
	}()
	return ended
}

func tryUpdate(ctx context.Context, st *stack.Stack, id, name string, in any) (workflows.UpdateResult, error) {
	var r workflows.UpdateResult
	h, err := st.Client.UpdateWorkflow(ctx, client.UpdateWorkflowOptions{
		WorkflowID: id, UpdateName: name, Args: []any{in}, WaitForStage: client.WorkflowUpdateStageCompleted,
	})
	if err != nil {
		return r, err
	}
	return r, h.Get(ctx, &r)
}

// update repeats an Update until the run takes it.
func update(ctx context.Context, t *testing.T, st *stack.Stack, id, name string, in any) {
	t.Helper()
	var err error
	require.Eventually(t, func() bool {
		_, err = tryUpdate(ctx, st, id, name, in)
		return err == nil
	}, 2*time.Minute, 50*time.Millisecond)
}

func firstExecution(ctx context.Context, t *testing.T, c client.Client, id string) string {
	t.Helper()
	d, err := c.DescribeWorkflowExecution(ctx, id, "")
	require.NoError(t, err)
	return d.WorkflowExecutionInfo.FirstRunId
}

func TestHistoriesAreRecorded(t *testing.T) {
	if *recordHistories == "" {
		t.Skip("records histories; run with -record=all after a deliberate change of a workflow")
	}
	for _, s := range shapes() {
		if *recordHistories != "all" && !strings.Contains(","+*recordHistories+",", ","+s.name+",") {
			continue
		}
		st, kept := s.train(t.Context(), t)
		for file, id := range kept {
			id, run, _ := strings.Cut(id, " ")
			keep(t, st.Client, file, id, run)
		}
		require.NoError(t, st.Close())
	}
}

// keep writes the history of an execution, or of the latest one if run is empty, to a new
// file next to those with the same name.
func keep(t *testing.T, c client.Client, file, id, run string) {
	t.Helper()
	d, err := c.DescribeWorkflowExecution(t.Context(), id, run)
	require.NoError(t, err)
	run = d.WorkflowExecutionInfo.Execution.RunId
	var events []*history.HistoryEvent
	for it := c.GetWorkflowHistory(t.Context(), id, run, false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT); it.HasNext(); {
		e, err := it.Next()
		require.NoError(t, err)
		events = append(events, e)
	}
	text, err := protojson.Marshal(&history.History{Events: events})
	require.NoError(t, err)
	data, err := json.Marshal(recording{WorkflowID: id, RunID: run, History: text})
	require.NoError(t, err)
	path := fmt.Sprintf("histories/%s.json", file)
	for n := 2; ; n++ {
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			break
		}
		path = fmt.Sprintf("histories/%s-%d.json", file, n)
	}
	require.NoError(t, os.WriteFile(path, data, 0o644))
}

// A history that lost what it is kept for would still replay.
func TestHistoriesHoldTheShapesTheyAreNamedFor(t *testing.T) {
	t.Parallel()
	for file, signs := range map[string][]string{
		"training-plain":              {"WORKFLOW_EXECUTION_COMPLETED"},
		"training-failed":             {"WORKFLOW_EXECUTION_FAILED"},
		"training-refilled":           {"refilled/reserve-", `"name":"RecordQuarantine"`},
		"training-refused":            {`"name":"RecordDecision"`},
		"training-lag":                {"lag/train-4/"},
		"training-critic":             {`"name":"ScoreBatch"`, `"name":"TrainCritic"`, "critic/train-3/"},
		"training-sampled":            {`"name":"JudgeCalls"`, `"name":"ScoreReference"`},
		"training-flat":               {`"name":"FlatGroups"`, "flat/reserve-"},
		"training-evaluated":          {`"name":"PromoteVersion"`, "evaluated/gate-0", "WORKFLOW_EXECUTION_COMPLETED"},
		"training-approval":           {"WORKFLOW_EXECUTION_UPDATE_ACCEPTED", `"name":"approve"`, "TIMER_STARTED"},
		"training-timed-out":          {"TIMER_FIRED", `"name":"RecordDecision"`, "WORKFLOW_EXECUTION_COMPLETED"},
		"training-steered":            {`"name":"set"`, `"name":"pause"`, `"name":"resume"`, `"name":"stop"`},
		"training-continued":          {"WORKFLOW_EXECUTION_CONTINUED_AS_NEW"},
		"training-resumed":            {`"continuedExecutionRunId"`, "WORKFLOW_EXECUTION_COMPLETED"},
		"training-killed":             {"WORKFLOW_EXECUTION_COMPLETED"},
		"rollout-killed":              {`"attempt":2`},
		"rollout-agent-failed":        {"WORKFLOW_EXECUTION_COMPLETED"},
		"rollout-their-workflow":      {"CHILD_WORKFLOW_EXECUTION_TIMED_OUT", `"name":"EndAttempt"`, "WORKFLOW_EXECUTION_COMPLETED"},
		"training-terminated":         {"CHILD_WORKFLOW_EXECUTION_TERMINATED", "WORKFLOW_EXECUTION_COMPLETED"},
		"training-children-cancelled": {"CHILD_WORKFLOW_EXECUTION_CANCELED", `"name":"RecordQuarantine"`},
		"rollout-cancelled":           {"WORKFLOW_EXECUTION_CANCELED"},
		"evaluation-cancelled":        {"WORKFLOW_EXECUTION_CANCELED"},
		"rollout-large":               {"WORKFLOW_EXECUTION_COMPLETED"},
		"training-failed-fast":        {"WORKFLOW_EXECUTION_FAILED"},
		"training-reset":              {"WORKFLOW_EXECUTION_COMPLETED"},
		"training-retried":            {"WORKFLOW_EXECUTION_COMPLETED"},
		"training-abandoned":          {"WORKFLOW_EXECUTION_FAILED"},
		"prompts-gepa":                {`"name":"StepSearch"`, `"name":"AskReflector"`, "gepa/minibatch-", `"name":"DecidePromotion"`, "WORKFLOW_EXECUTION_COMPLETED"},
		"prompts-apo":                 {`"name":"StepSearch"`, `"name":"AskReflector"`, "apo/minibatch-", `"name":"DecidePromotion"`, "WORKFLOW_EXECUTION_COMPLETED"},
		"prompts-continued":           {"WORKFLOW_EXECUTION_CONTINUED_AS_NEW"},
		"prompts-resumed":             {`"continuedExecutionRunId"`, `"name":"StepSearch"`, "WORKFLOW_EXECUTION_COMPLETED"},
		"candidate-validation":        {`"name":"RunAgent"`, `"name":"AnswerSearch"`, "WORKFLOW_EXECUTION_COMPLETED"},
		"phases-plain":                {`"name":"PreparePhases"`, `"name":"StartPhase"`, `"name":"AwaitPhase"`, "WORKFLOW_EXECUTION_COMPLETED"},
		"prune-scheduled":             {`"TemporalScheduledById"`, `"name":"PlanPruning"`, `"name":"PruneRuns"`, "WORKFLOW_EXECUTION_COMPLETED"},
		"prune-nothing-left":          {`"TemporalScheduledById"`, `"name":"PlanPruning"`, "WORKFLOW_EXECUTION_COMPLETED"},
		"rollout-their-activity":      {`"name":"their_agent"`, `"name":"EndAttempt"`, "WORKFLOW_EXECUTION_COMPLETED"},
	} {
		data, err := os.ReadFile("histories/" + file + ".json")
		require.NoError(t, err)
		var compact bytes.Buffer
		require.NoError(t, json.Compact(&compact, data))
		for _, sign := range signs {
			require.Contains(t, compact.String(), sign, file)
		}
	}
}
