package workflows_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/stretchr/testify/mock"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/testsuite"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/trace"
	"github.com/fulgurite/fulgurite/workflows"
)

// world plays the activities: an agent whose reward is decided by score, and a
// memory of what the workflow asked for.
type world struct {
	mu    sync.Mutex
	score func(version int, kind trace.Kind) float64
	// reward, if not nil, decides the rewards of training rollouts instead of score.
	reward func(activities.RunAgentInput) float64
	broken error // returned by RunAgent
	// fatal, if not nil, gives the error of single attempts.
	fatal func(activities.RunAgentInput) error
	// teaches, if not nil, says which groups are not flat where credit decides.
	teaches func(activities.Group) bool
	// poison says why a task fails for its own reasons, by index in its split.
	poison map[int]string
	// sometimes gives the fault of single attempts.
	sometimes func(activities.RunAgentInput) string
	// ungraded are the tasks of evaluations that can't be graded, by kind.
	ungraded map[trace.Kind]bool
	// ungradedFrom is the first version that can't be graded on the gate split; 0
	// for none.
	ungradedFrom int
	// moved is where somebody else moved the pointer to.
	moved    *int
	pointer  int
	means    map[int]float64 // of versions on the gate split
	decided  []activities.RecordDecisionInput
	excluded []activities.RecordQuarantineInput
	// trainStep, if not nil, is called before each update.
	trainStep func(activities.TrainStepInput)
	// recordStep, if not nil, is called when a step is put on record.
	recordStep func(activities.RecordStepInput)
	rollouts   []activities.RunAgentInput
	trained    []activities.TrainStepInput
	batches    []activities.AssignCreditInput
	judged     []activities.JudgeCallsInput
	compared   []activities.FlatGroupsInput
	referred   []activities.ScoreReferenceInput
	promoted   []activities.PromoteVersionInput
	recorded   []activities.RecordStepInput
	finished   []activities.FinishRunInput
}

func testSpec() spec.Spec {
	s := spec.Spec{
		Agent:    spec.Agent{Func: "f"},
		Tasks:    spec.Tasks{Train: "arithmetic:train:50", Gate: "arithmetic:gate:10", Test: "arithmetic:test:10"},
		Grader:   spec.Grader{Type: "exact"},
		Training: spec.Training{Steps: 4, TasksPerStep: 3, SamplesPerTask: 2},
	}.WithDefaults()
	s.Evaluation.Every = 2
	return s
}

// quiet is a suite whose workflows do not log.
func quiet() *testsuite.WorkflowTestSuite {
	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(log.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	return &suite
}

// environment is a test environment with w behind all activities.
func (w *world) environment(s spec.Spec) *testsuite.TestWorkflowEnvironment { return w.small(s, 50) }

// small is an environment with that many training tasks.
func (w *world) small(s spec.Spec, train int) *testsuite.TestWorkflowEnvironment {
	env := quiet().NewTestWorkflowEnvironment()
	env.SetTestTimeout(20 * time.Second)
	env.SetStartWorkflowOptions(client.StartWorkflowOptions{ID: "run", TaskQueue: workflows.QueueTraining})
	env.RegisterWorkflow(workflows.RolloutWorkflow)
	env.RegisterWorkflow(workflows.EvaluationWorkflow)
	env.RegisterWorkflow(workflows.TrainingWorkflow)
	var c *activities.Coordinator
	var r *activities.Runner
	var t *activities.Trainer
	env.OnActivity(c.PrepareRun, mock.Anything, mock.Anything).Return(activities.PrepareRunResult{
		Spec: s, SearchAttributes: false, Splits: map[trace.Kind]record.Split{
			trace.Train: {Digest: "sha256:a", Count: train}, trace.Gate: {Digest: "sha256:b", Count: 10}, trace.Test: {Digest: "sha256:c", Count: 10},
		},
	}, nil)
	env.OnActivity(t.InitPolicy, mock.Anything, mock.Anything).Return(activities.VersionResult{Weights: "sha256:0"}, nil)
	env.OnActivity(c.PublishVersion, mock.Anything, mock.Anything).Return(nil)
	env.OnActivity(c.RecordEvaluation, mock.Anything, mock.Anything).Return(func(_ context.Context, in activities.RecordEvaluationInput) error {
		w.note(func() {
			if in.Evaluation.Kind == trace.Gate {
				w.keep(in.Evaluation)
			}
		})
		return nil
	})
	env.OnActivity(c.DecidePromotion, mock.Anything, mock.Anything).Return(func(_ context.Context, in activities.DecidePromotionInput) (activities.DecidePromotionResult, error) {
		at, err := s.Set(in.Set)
		d := model.Decide(in.Candidate, w.pointer, w.means[in.Candidate], w.means[w.pointer], at.Promotion.Margin)
		return activities.DecidePromotionResult{Decision: d}, err
	})
	env.OnActivity(c.RecordDecision, mock.Anything, mock.Anything).Return(func(_ context.Context, in activities.RecordDecisionInput) (activities.RecordDecisionResult, error) {
		w.note(func() { w.decided = append(w.decided, in) })
		return activities.RecordDecisionResult{}, nil
	})
	env.OnActivity(c.RecordQuarantine, mock.Anything, mock.Anything).Return(func(_ context.Context, in activities.RecordQuarantineInput) error {
		w.note(func() { w.excluded = append(w.excluded, in) })
		return nil
	})
	env.OnActivity(r.RunAgent, mock.Anything, mock.Anything).Return(w.runAgent)
	env.OnActivity(r.GradeRollout, mock.Anything, mock.Anything).Return(activities.GradeRolloutResult{TaskFault: "grader exits with 3"}, nil)
	env.OnActivity(c.JudgeCalls, mock.Anything, mock.Anything).Return(func(_ context.Context, in activities.JudgeCallsInput) (activities.JudgeCallsResult, error) {
		w.note(func() { w.judged = append(w.judged, in) })
		return activities.JudgeCallsResult{Judgments: fmt.Sprintf("sha256:judgments%d", in.Step), Metrics: map[string]float64{"judge/score": 7}}, nil
	})
	env.OnActivity(t.ScoreReference, mock.Anything, mock.Anything).Return(func(_ context.Context, in activities.ScoreReferenceInput) (activities.ScoreReferenceResult, error) {
		w.note(func() { w.referred = append(w.referred, in) })
		return activities.ScoreReferenceResult{Reference: fmt.Sprintf("sha256:reference%d", in.Step)}, nil
	})
	env.OnActivity(c.FlatGroups, mock.Anything, mock.Anything).Return(func(_ context.Context, in activities.FlatGroupsInput) (activities.FlatGroupsResult, error) {
		w.note(func() { w.compared = append(w.compared, in) })
		out := activities.FlatGroupsResult{}
		for _, g := range in.Groups {
			out.Flat = append(out.Flat, w.teaches != nil && !w.teaches(g))
		}
		return out, nil
	})
	env.OnActivity(c.AssignCredit, mock.Anything, mock.Anything).Return(func(_ context.Context, in activities.AssignCreditInput) (activities.AssignCreditResult, error) {
		w.note(func() { w.batches = append(w.batches, in) })
		return activities.AssignCreditResult{Batch: fmt.Sprintf("sha256:batch%d", in.Step), Metrics: map[string]float64{"reward/mean": 1}}, nil
	})
	env.OnActivity(t.TrainStep, mock.Anything, mock.Anything).Return(func(_ context.Context, in activities.TrainStepInput) (activities.VersionResult, error) {
		w.note(func() { w.trained = append(w.trained, in) })
		if w.trainStep != nil {
			w.trainStep(in)
		}
		return activities.VersionResult{Number: in.Step, Weights: fmt.Sprintf("sha256:%d", in.Step)}, nil
	})
	env.OnActivity(c.RecordStep, mock.Anything, mock.Anything).Return(func(_ context.Context, in activities.RecordStepInput) error {
		w.note(func() { w.recorded = append(w.recorded, in) })
		if w.recordStep != nil {
			w.recordStep(in)
		}
		return nil
	})
	env.OnActivity(c.PromoteVersion, mock.Anything, mock.Anything).Return(func(_ context.Context, in activities.PromoteVersionInput) (activities.PromoteVersionResult, error) {
		if w.moved != nil {
			return activities.PromoteVersionResult{Standing: *w.moved, Reason: "pinned"}, nil
		}
		w.note(func() { w.promoted, w.pointer = append(w.promoted, in), in.Version })
		return activities.PromoteVersionResult{Moved: true, Standing: in.Version}, nil
	})
	env.OnActivity(c.FinishRun, mock.Anything, mock.Anything).Return(func(_ context.Context, in activities.FinishRunInput) error {
		w.note(func() { w.finished = append(w.finished, in) })
		return nil
	})
	return env
}

func (w *world) note(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

func (w *world) keep(e activities.Evaluation) {
	if w.means == nil {
		w.means = map[int]float64{}
	}
	w.means[e.Version] = e.Mean
}

func (w *world) runAgent(_ context.Context, in activities.RunAgentInput) (activities.RunAgentResult, error) {
	w.note(func() { w.rollouts = append(w.rollouts, in) })
	if w.broken != nil {
		return activities.RunAgentResult{}, w.broken
	}
	if w.fatal != nil {
		if err := w.fatal(in); err != nil {
			return activities.RunAgentResult{}, err
		}
	}
	if why, ok := w.poison[in.Index]; ok && (in.Rollout.Kind == trace.Train || in.Rollout.Kind == trace.Reserve) {
		zero := 0.0
		return activities.RunAgentResult{Attempt: 1, Outcome: trace.AgentFailed, Reward: &zero, TaskFault: why}, nil
	}
	if w.ungraded[in.Rollout.Kind] || w.ungradedFrom > 0 && in.Rollout.Kind == trace.Gate && in.Version >= w.ungradedFrom {
		return activities.RunAgentResult{Attempt: 1, Outcome: trace.Completed}, nil
	}
	reward := w.score(in.Version, in.Rollout.Kind)
	if w.reward != nil && (in.Rollout.Kind == trace.Train || in.Rollout.Kind == trace.Reserve) {
		reward = w.reward(in)
	}
	result := activities.RunAgentResult{Attempt: 1, Outcome: trace.Completed, Reward: &reward, Calls: 2, Tokens: 10}
	if w.sometimes != nil {
		result.TaskFault = w.sometimes(in)
	}
	return result, nil
}
