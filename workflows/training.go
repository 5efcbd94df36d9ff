package workflows

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
)

// TrainingWorkflow is a run: it trains the policy of a spec step by step and
// promotes what is better. The workflow's id is the run's name.
func TrainingWorkflow(ctx workflow.Context, in TrainingInput) (TrainingResult, error) {
	return newTrainingRun(ctx, in.Resume).execute(ctx, in)
}

// execute answers queries and Updates while the run goes on, and closes the record of one
// that fails.
func (t *trainingRun) execute(ctx workflow.Context, in TrainingInput) (TrainingResult, error) {
	ctx = t.scheduled(ctx)
	if err := workflow.SetQueryHandler(ctx, QueryProgress, t.progress); err != nil {
		return TrainingResult{}, err
	}
	if err := workflow.SetQueryHandler(ctx, QueryState, func() (*TrainingState, error) { return t.TrainingState, nil }); err != nil {
		return TrainingResult{}, err
	}
	if err := t.handleUpdates(ctx); err != nil {
		return TrainingResult{}, err
	}
	result, err := t.run(ctx, in)
	if err != nil && !workflow.IsContinueAsNewError(err) {
		t.abandon(ctx, err)
	}
	return result, err
}

// trainingRun is a run under way.
type trainingRun struct {
	*TrainingState
	phase   Phase
	subject string
	// entered is when the phase began, updating how long the last update took.
	entered  time.Time
	updating time.Duration
	// inFlight are the steps whose rollouts have begun, from Step+1 on.
	inFlight []*stepGroups
	children workflow.Semaphore // bounds the children of all steps in flight
	// pointer guards the promoted version while a decision about it is made.
	pointer workflow.Mutex
	// lookups counts the Updates for which the last step on record is being looked up.
	lookups int
	// deciding counts the candidates about which a decision is being put on record, since
	// their deadline has passed or their experiment has ended.
	deciding int
	// draining is set when no step may begin before a continue-as-new.
	draining bool
	// optimizes is true in PromptWorkflow.
	optimizes bool
	// tries is true in TryWorkflow.
	tries bool
	// requests ask the run to learn from conversations, and segmentText says what came of the
	// last one.
	requests    []*segmentRequest
	segmentText string
	learning    bool // a step is being made of conversations
	// published are the proposals and the promoted version that the search attributes have.
	published [2]int
}

func newTrainingRun(ctx workflow.Context, state *TrainingState) *trainingRun {
	if state == nil {
		state = &TrainingState{Run: workflow.GetInfo(ctx).WorkflowExecution.ID}
	}
	return &trainingRun{TrainingState: state, children: workflow.NewSemaphore(ctx, window), pointer: workflow.NewMutex(ctx)}
}

// run continues from the state.
func (t *trainingRun) run(ctx workflow.Context, in TrainingInput) (TrainingResult, error) {
	if in.Resume == nil {
		if err := t.prepare(ctx, in); err != nil {
			return TrainingResult{}, err
		}
		if t.Spec.Evaluation.Only != "" {
			return t.evaluateOnly(ctx)
		}
		if err := t.Spec.Trainable(); err != nil && !t.optimizes {
			return TrainingResult{}, temporal.NewNonRetryableApplicationError(err.Error(), activities.ErrTypeInvalid, err)
		}
	}
	if t.optimizes {
		return t.optimize(ctx)
	}
	if !t.Started {
		if err := t.start(ctx); err != nil {
			return TrainingResult{}, err
		}
	}
	if t.Pending != nil {
		t.refuseAtDeadline(ctx, t.Pending)
	}
	if t.Experiment != nil {
		t.awaitExperiment(ctx, *t.Experiment)
	}
	if t.Spec.FromTraffic() {
		return t.learnFromTraffic(ctx)
	}
	for t.Step < t.last() {
		t.draining = t.draining || workflow.GetInfo(ctx).GetContinueAsNewSuggested()
		if t.draining && len(t.inFlight) == 0 {
			return TrainingResult{}, t.continueAsNew(ctx)
		}
		if err := t.startSteps(ctx); err != nil {
			return TrainingResult{}, err
		}
		if len(t.inFlight) == 0 {
			if t.Step >= t.last() {
				break // its budget is used up
			}
			if err := t.awaitResume(ctx); err != nil {
				return TrainingResult{}, err
			}
			continue
		}
		if err := t.step(ctx); err != nil {
			return TrainingResult{}, err
		}
	}
	return t.finish(ctx)
}

// continueAsNew carries the state into a fresh history. At that point no child is
// pending, no handler of an Update is running, and every refusal is on record.
func (t *trainingRun) continueAsNew(ctx workflow.Context) error {
	err := workflow.Await(ctx, func() bool { return t.deciding == 0 && workflow.AllHandlersFinished(ctx) })
	if err != nil {
		return err
	}
	next := any(TrainingWorkflow)
	if t.optimizes {
		next = PromptWorkflow
	}
	return workflow.NewContinueAsNewError(ctx, next, TrainingInput{Resume: t.TrainingState})
}

// prepare reads the spec and stores a snapshot of the tasks.
func (t *trainingRun) prepare(ctx workflow.Context, in TrainingInput) error {
	t.enter(ctx, PhasePreparing, "the spec")
	var c *activities.Coordinator
	var r activities.PrepareRunResult
	err := workflow.ExecuteActivity(coordination(ctx, "read the spec, snapshot the tasks"), c.PrepareRun, activities.PrepareRunInput{
		Spec: in.Spec, Run: t.Run, WorkflowID: t.Run, ExecutionID: workflow.GetInfo(ctx).FirstRunID, Workflow: t.workflow(),
	}).Get(ctx, &r)
	if err != nil {
		return err
	}
	t.Spec, t.Splits, t.SearchAttributes = r.Spec.WithoutSecrets(), r.Splits, r.SearchAttributes
	return nil
}

// workflow returns the type of the run's workflow; empty for a trial.
func (t *trainingRun) workflow() string {
	switch {
	case t.optimizes:
		return TypePrompts
	case t.tries:
		return ""
	}
	return TypeTraining
}

// start makes, evaluates and promotes version 0.
func (t *trainingRun) start(ctx workflow.Context) error {
	if err := t.initPolicy(ctx); err != nil {
		return err
	}
	if t.has(record.Test) {
		e, err := t.report(ctx, 0)
		if err != nil {
			return err
		}
		t.Before = e
	}
	decision := model.Decision{Promoted: -1, Accept: true}
	if t.optimizes { // the weights have one version
		if err := t.promoteAs(ctx, model.DefaultPolicy, decision); err != nil {
			return err
		}
	}
	if t.has(record.Gate) {
		e, err := t.evaluate(ctx, record.Gate, 0)
		switch {
		case evaluationStopped(err): // then no version can be compared with this one
			workflow.GetLogger(ctx).Warn("version 0 was not evaluated", "error", err)
		case err != nil:
			return err
		default:
			decision.Reward = e.Mean
		}
	}
	promote := t.promote
	if t.Spec.Promotion.Alone {
		promote = t.promoteEach
	}
	if err := promote(ctx, decision); err != nil {
		return err
	}
	t.Started = true
	return nil
}

// initPolicy makes version 0 and publishes it.
func (t *trainingRun) initPolicy(ctx workflow.Context) error {
	t.enter(ctx, PhaseWarmStart, "version 0")
	var trainer *activities.Trainer
	var v activities.InitPolicyResult
	err := workflow.ExecuteActivity(training(ctx, "make version 0"), trainer.InitPolicy, activities.InitPolicyInput{
		Run: t.Run, Policy: model.DefaultPolicy,
	}).Get(ctx, &v)
	if err != nil {
		return err
	}
	t.Weights = v.Weights
	return t.publish(ctx, 0)
}

func (t *trainingRun) publish(ctx workflow.Context, v int) error {
	var c *activities.Coordinator
	return workflow.ExecuteActivity(coordination(ctx, fmt.Sprintf("version %d", v)), c.PublishVersion, activities.PublishVersionInput{
		Run: t.Run, Policy: model.DefaultPolicy, Number: v,
	}).Get(ctx, nil)
}

// finish reports the promoted version on the test split and closes the record. Without a
// gate split nothing could be promoted, so it reports the last version.
func (t *trainingRun) finish(ctx workflow.Context) (TrainingResult, error) {
	if t.has(record.Gate) && t.Evaluated < t.Step { // stopped when its last step was all but done
		if _, err := t.gate(ctx, t.Step); err != nil {
			return TrainingResult{}, err
		}
	}
	if err := t.endExperiment(ctx); err != nil {
		return TrainingResult{}, err
	}
	if err := t.awaitApproval(ctx); err != nil {
		return TrainingResult{}, err
	}
	t.After = t.Before
	final := t.Promoted
	if !t.has(record.Gate) {
		final = t.Step
	}
	if t.Spec.Promotion.Alone {
		if err := t.reportEach(ctx); err != nil {
			return TrainingResult{}, err
		}
	} else if t.has(record.Test) && final != 0 {
		e, err := t.report(ctx, final)
		if err != nil {
			return TrainingResult{}, err
		}
		t.After = e
	}
	out := TrainingResult{Run: t.Run, Steps: t.Step, Promoted: t.Promoted, Policies: t.Policies, Weights: t.Weights, Stopped: t.stop(), Before: t.Before, After: t.After}
	return t.closeRecord(ctx, out)
}

// abandon closes the record of a run that failed or was cancelled. If that fails too,
// it only logs: the first failure is the run's error.
func (t *trainingRun) abandon(ctx workflow.Context, cause error) {
	status, phase := record.Failed, PhaseFailed
	failure := Failure(cause)
	if temporal.IsCanceledError(cause) {
		status, phase = record.Cancelled, PhaseCancelled
	}
	t.enter(ctx, phase, failure.Error)
	ctx, cancel := workflow.NewDisconnectedContext(ctx)
	defer cancel()
	var c *activities.Coordinator
	err := workflow.ExecuteActivity(coordination(ctx, "close the record"), c.FinishRun, activities.FinishRunInput{
		Run: t.Run, ExecutionID: workflow.GetInfo(ctx).FirstRunID, Status: status, Result: mustJSON(failure),
	}).Get(ctx, nil)
	if err != nil {
		workflow.GetLogger(ctx).Error("close the record of the run", "run", t.Run, "error", err)
	}
}

// TrainingInput is the input of TrainingWorkflow and PromptWorkflow: a spec, exactly as a
// user wrote it in JSON. After a continue-as-new it is {"resume": state} instead.
type TrainingInput struct {
	Spec   json.RawMessage
	Resume *TrainingState
}

type resumeInput struct {
	Resume *TrainingState `json:"resume"`
}

// MarshalJSON writes the spec itself, so that the workflow's input is the spec.
func (in TrainingInput) MarshalJSON() ([]byte, error) {
	if in.Resume != nil {
		return json.Marshal(resumeInput{in.Resume})
	}
	return in.Spec, nil
}

// UnmarshalJSON keeps a spec as it is: PrepareRun reads it strictly and reports
// all its faults together, which a decoder here could not.
func (in *TrainingInput) UnmarshalJSON(data []byte) error {
	if bytes.HasPrefix(data, []byte(`{"resume":`)) {
		var r resumeInput
		if err := json.Unmarshal(data, &r); err != nil {
			return err
		}
		in.Resume = r.Resume
		return nil
	}
	in.Spec = bytes.Clone(data)
	return nil
}

// The task queues.
const (
	QueueTraining = "training"
	QueueRollout  = "rollout-cpu"
	QueueTrainGPU = "train-gpu"
)

// QueryProgress answers with a Progress, in an evaluation with a Count.
const QueryProgress = "progress"

// QueryState answers with the TrainingState after the last finished step, also of a run that
// has ended.
const QueryState = "state"

// rolloutID returns the id of the child that runs one task's group, for example
// "demo/train-3/17".
func rolloutID(run string, kind record.Kind, step, task int) string {
	return fmt.Sprintf("%s/%s-%d/%d", run, kind, step, task)
}

// evaluationID returns the id of the child that evaluates a version, for example
// "demo/gate-5".
func evaluationID(run string, kind record.Kind, version int) string {
	return fmt.Sprintf("%s/%s-%d", run, kind, version)
}

// rolloutSummary returns what Temporal's Web UI shows next to the type of a rollout's
// workflow.
func rolloutSummary(in RolloutInput) string {
	what := fmt.Sprintf("step %d, task %d", in.Step, in.Task)
	switch in.Kind {
	case record.Try:
		what = fmt.Sprintf("try of task %d", in.Task)
	case record.Reserve:
		what = fmt.Sprintf("step %d, reserve %d", in.Step, in.Task)
	}
	return fmt.Sprintf("%s (line %d of the split), version %d, %d samples", what, in.Index+1, in.Version, in.Samples)
}

// evaluationSummary returns the same for an evaluation's workflow.
func evaluationSummary(in EvaluationInput) string {
	return fmt.Sprintf("version %d on the %s split, %d tasks", in.Version, in.Kind, in.Tasks)
}
