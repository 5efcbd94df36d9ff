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
	"github.com/fulgurite/fulgurite/workflows"
)

// fakeActivities are the activities of tests. The agent's reward is decided by score;
// the slices record what the workflow asked for.
type fakeActivities struct {
	mu    sync.Mutex
	score func(version int, kind record.Kind) float64
	// reward, if not nil, decides the rewards of training rollouts instead of score.
	reward     func(activities.RunAgentInput) float64
	agentError error // returned by RunAgent
	// fatalError, if not nil, gives the error of single attempts.
	fatalError func(activities.RunAgentInput) error
	// hasCredit, if not nil, says which groups are not flat if the credit decides.
	hasCredit func(activities.Group) bool
	// taskFaults says why a task itself is at fault, by index in its split.
	taskFaults map[int]string
	// attemptFault gives the fault of single attempts.
	attemptFault func(activities.RunAgentInput) string
	// ungraded are the tasks of evaluations that can't be graded, by kind.
	ungraded map[record.Kind]bool
	// ungradedFrom is the first version that can't be graded on the gate split; 0
	// for none.
	ungradedFrom int
	// movedTo is the version to which the promoted pointer was moved meanwhile; nil if it
	// was not.
	movedTo     *int
	pointer     int
	means       map[int]float64 // of versions on the gate split
	decided     []activities.RecordDecisionInput
	quarantined []activities.RecordQuarantineInput
	// silent, if not nil, says whose agent asks no model.
	silent func(activities.RunAgentInput) bool
	// trainStep, if not nil, is called before each update.
	trainStep func(activities.TrainStepInput)
	// recordStep, if not nil, is called when a step is put on record.
	recordStep func(activities.RecordStepInput)
	// onRecord is the last step that has a version on record.
	onRecord int
	// usedUp says which part of a budget is used up; a spec with a budget needs it.
	usedUp     func(spec.Budget) string
	rollouts   []activities.RunAgentInput
	trained    []activities.TrainStepInput
	batches    []activities.AssignCreditInput
	judged     []activities.JudgeCallsInput
	flatChecks []activities.FlatGroupsInput
	references []activities.ScoreReferenceInput
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

// quiet returns a suite whose workflows do not log.
func quiet() *testsuite.WorkflowTestSuite {
	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(log.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	return &suite
}

// environment returns a test environment with fake behind all activities.
func (fake *fakeActivities) environment(s spec.Spec) *testsuite.TestWorkflowEnvironment {
	return fake.environmentOf(s, 50)
}

// environmentOf returns an environment with that many training tasks.
func (fake *fakeActivities) environmentOf(s spec.Spec, train int) *testsuite.TestWorkflowEnvironment {
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
		Spec: s, SearchAttributes: false, Splits: map[record.Kind]record.Split{
			record.Train: {Digest: "sha256:a", Count: train}, record.Gate: {Digest: "sha256:b", Count: 10}, record.Test: {Digest: "sha256:c", Count: 10},
		},
	}, nil)
	env.OnActivity(t.InitPolicy, mock.Anything, mock.Anything).Return(activities.VersionResult{Weights: "sha256:0"}, nil)
	env.OnActivity(c.PublishVersion, mock.Anything, mock.Anything).Return(nil)
	env.OnActivity(c.RecordEvaluation, mock.Anything, mock.Anything).Return(func(_ context.Context, in activities.RecordEvaluationInput) error {
		fake.locked(func() {
			if in.Evaluation.Kind == record.Gate {
				fake.recordMean(in.Evaluation)
			}
		})
		return nil
	})
	env.OnActivity(c.DecidePromotion, mock.Anything, mock.Anything).Return(func(_ context.Context, in activities.DecidePromotionInput) (activities.DecidePromotionResult, error) {
		at, err := s.Set(in.Set)
		d := model.Decision{
			Candidate: in.Candidate, Promoted: fake.pointer, Reward: fake.means[in.Candidate], Baseline: fake.means[fake.pointer],
			Margin: at.Promotion.Margin,
		}
		d.Accept = d.Reward > d.Baseline+d.Margin
		return activities.DecidePromotionResult{Decision: d}, err
	})
	env.OnActivity(c.RecordDecision, mock.Anything, mock.Anything).Return(func(_ context.Context, in activities.RecordDecisionInput) (activities.RecordDecisionResult, error) {
		fake.locked(func() { fake.decided = append(fake.decided, in) })
		return activities.RecordDecisionResult{}, nil
	})
	env.OnActivity(c.RecordQuarantine, mock.Anything, mock.Anything).Return(func(_ context.Context, in activities.RecordQuarantineInput) error {
		fake.locked(func() { fake.quarantined = append(fake.quarantined, in) })
		return nil
	})
	env.OnActivity(r.RunAgent, mock.Anything, mock.Anything).Return(fake.runAgent)
	env.OnActivity(r.GradeRollout, mock.Anything, mock.Anything).Return(activities.GradeRolloutResult{TaskFault: "grader exits with 3"}, nil)
	env.OnActivity(c.JudgeCalls, mock.Anything, mock.Anything).Return(func(_ context.Context, in activities.JudgeCallsInput) (activities.JudgeCallsResult, error) {
		fake.locked(func() { fake.judged = append(fake.judged, in) })
		return activities.JudgeCallsResult{Judgments: fmt.Sprintf("sha256:judgments%d", in.Step), Metrics: map[string]float64{"judge/score": 7}}, nil
	})
	env.OnActivity(t.ScoreReference, mock.Anything, mock.Anything).Return(func(_ context.Context, in activities.ScoreReferenceInput) (activities.ScoreReferenceResult, error) {
		fake.locked(func() { fake.references = append(fake.references, in) })
		return activities.ScoreReferenceResult{Reference: fmt.Sprintf("sha256:reference%d", in.Step)}, nil
	})
	env.OnActivity(c.FlatGroups, mock.Anything, mock.Anything).Return(func(_ context.Context, in activities.FlatGroupsInput) (activities.FlatGroupsResult, error) {
		fake.locked(func() { fake.flatChecks = append(fake.flatChecks, in) })
		out := activities.FlatGroupsResult{}
		for _, g := range in.Groups {
			out.Flat = append(out.Flat, fake.hasCredit != nil && !fake.hasCredit(g))
		}
		return out, nil
	})
	env.OnActivity(c.AssignCredit, mock.Anything, mock.Anything).Return(func(_ context.Context, in activities.AssignCreditInput) (activities.AssignCreditResult, error) {
		fake.locked(func() { fake.batches = append(fake.batches, in) })
		return activities.AssignCreditResult{Batch: fmt.Sprintf("sha256:batch%d", in.Step), Metrics: map[string]float64{"reward/mean": 1}}, nil
	})
	env.OnActivity(t.TrainStep, mock.Anything, mock.Anything).Return(func(_ context.Context, in activities.TrainStepInput) (activities.VersionResult, error) {
		fake.locked(func() { fake.trained = append(fake.trained, in) })
		if fake.trainStep != nil {
			fake.trainStep(in)
		}
		return activities.VersionResult{Number: in.Step, Weights: fmt.Sprintf("sha256:%d", in.Step)}, nil
	})
	env.OnActivity(c.RecordStep, mock.Anything, mock.Anything).Return(func(_ context.Context, in activities.RecordStepInput) error {
		fake.locked(func() { fake.recorded = append(fake.recorded, in) })
		if fake.recordStep != nil {
			fake.recordStep(in)
		}
		return nil
	})
	env.OnActivity(c.PromoteVersion, mock.Anything, mock.Anything).Return(func(_ context.Context, in activities.PromoteVersionInput) (activities.PromoteVersionResult, error) {
		if fake.movedTo != nil {
			return activities.PromoteVersionResult{Promoted: *fake.movedTo, Reason: "pinned"}, nil
		}
		fake.locked(func() { fake.promoted, fake.pointer = append(fake.promoted, in), in.Version })
		return activities.PromoteVersionResult{Moved: true, Promoted: in.Version}, nil
	})
	env.OnActivity(c.CheckBudget, mock.Anything, mock.Anything).Return(func(_ context.Context, in activities.CheckBudgetInput) (activities.CheckBudgetResult, error) {
		return activities.CheckBudgetResult{UsedUp: fake.usedUp(in.Budget)}, nil
	})
	env.OnActivity(c.LastStep, mock.Anything, mock.Anything).Return(func(context.Context, activities.LastStepInput) (activities.LastStepResult, error) {
		return activities.LastStepResult{Step: fake.onRecord}, nil
	})
	env.OnActivity(c.FinishRun, mock.Anything, mock.Anything).Return(func(_ context.Context, in activities.FinishRunInput) error {
		fake.locked(func() { fake.finished = append(fake.finished, in) })
		return nil
	})
	return env
}

func (fake *fakeActivities) locked(f func()) {
	fake.mu.Lock()
	defer fake.mu.Unlock()
	f()
}

func (fake *fakeActivities) recordMean(e activities.Evaluation) {
	if fake.means == nil {
		fake.means = map[int]float64{}
	}
	fake.means[e.Version] = e.Mean
}

func (fake *fakeActivities) runAgent(_ context.Context, in activities.RunAgentInput) (activities.RunAgentResult, error) {
	fake.locked(func() { fake.rollouts = append(fake.rollouts, in) })
	if fake.agentError != nil {
		return activities.RunAgentResult{}, fake.agentError
	}
	if fake.fatalError != nil {
		if err := fake.fatalError(in); err != nil {
			return activities.RunAgentResult{}, err
		}
	}
	if why, ok := fake.taskFaults[in.Index]; ok && (in.Rollout.Kind == record.Train || in.Rollout.Kind == record.Reserve) {
		zero := 0.0
		return activities.RunAgentResult{Attempt: 1, Outcome: record.AgentFailed, Reward: &zero, TaskFault: why}, nil
	}
	if fake.ungraded[in.Rollout.Kind] || fake.ungradedFrom > 0 && in.Rollout.Kind == record.Gate && in.Version >= fake.ungradedFrom {
		return activities.RunAgentResult{Attempt: 1, Outcome: record.OutcomeCompleted}, nil
	}
	reward := fake.score(in.Version, in.Rollout.Kind)
	if fake.reward != nil && (in.Rollout.Kind == record.Train || in.Rollout.Kind == record.Reserve) {
		reward = fake.reward(in)
	}
	result := activities.RunAgentResult{Attempt: 1, Outcome: record.OutcomeCompleted, Reward: &reward, Calls: 2, Tokens: 10}
	if fake.silent != nil && fake.silent(in) {
		result.Calls, result.Tokens = 0, 0
	}
	if fake.attemptFault != nil {
		result.TaskFault = fake.attemptFault(in)
	}
	return result, nil
}
