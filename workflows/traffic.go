package workflows

import (
	"cmp"
	"errors"
	"fmt"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/internal/readable"
	"github.com/fulgurite/fulgurite/internal/shell"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
)

// TrafficWorkflow asks a run to learn from what is new in its conversations, and returns what
// came of it. A Temporal Schedule starts it. It is not an error if there is too little to
// learn from.
func TrafficWorkflow(ctx workflow.Context, in TrafficInput) (activities.RequestSegmentResult, error) {
	workflow.SetCurrentDetails(ctx, "asks run "+in.Run+" to learn from what is new")
	var c *activities.Coordinator
	var r activities.RequestSegmentResult
	err := workflow.ExecuteActivity(awaiting(ctx, "run "+in.Run), c.RequestSegment, activities.RequestSegmentInput{
		Run: in.Run, ID: workflow.GetInfo(ctx).WorkflowExecution.RunID,
	}).Get(ctx, &r)
	if err == nil {
		workflow.SetCurrentDetails(ctx, r.Message)
	}
	return r, err
}

// TrafficInput is the input of TrafficWorkflow.
type TrafficInput struct {
	Run string `json:"run"`
}

// UpdateSegment is the Update that asks a run to learn from conversations. It takes a
// SegmentInput, and answers when the step is finished, or with the reason why there is none.
const UpdateSegment = "segment"

// SegmentInput asks for a segment.
type SegmentInput struct{}

// ErrTypeSegment is the type of the error of a request whose step failed, and the run with it.
const ErrTypeSegment = "Segment"

// segmentRequest is a request that waits.
type segmentRequest struct {
	done   bool
	result UpdateResult
	err    error
}

// requestSegment waits until the run has served a request.
func (t *trainingRun) requestSegment(ctx workflow.Context, in SegmentInput) (UpdateResult, error) {
	err := t.awaitPrepared(ctx)
	if err == nil {
		err = t.awaitLookups(ctx)
	}
	if err == nil {
		err = t.checkSegment(in)
	}
	if err != nil {
		return UpdateResult{}, err
	}
	r := &segmentRequest{}
	t.requests = append(t.requests, r)
	if err = workflow.Await(ctx, func() bool { return r.done }); err != nil {
		return UpdateResult{}, err
	}
	return r.result, r.err
}

// checkSegment leaves what is asked for while the run is being prepared to requestSegment.
func (t *trainingRun) checkSegment(SegmentInput) error {
	switch {
	case t.Splits == nil:
		return nil
	case !t.Spec.FromTraffic():
		return errors.New("the run learns from tasks: its spec has no traffic.train")
	case t.Paused:
		return fmt.Errorf("the run is paused; `%s` lets it go on", shell.Command("resume", t.Run))
	case t.Stop != nil:
		return fmt.Errorf("the run stops, %s", t.Stop.Text())
	case t.Step >= t.last():
		return errors.New("the run has made its last step")
	case len(t.requests) > maxRequests:
		return errors.New("many requests wait already")
	}
	return nil
}

// maxRequests bounds the requests that wait.
const maxRequests = 16

// learnFromTraffic makes a step of each segment that is asked for, until the run is stopped or
// has made its steps.
func (t *trainingRun) learnFromTraffic(ctx workflow.Context) (TrainingResult, error) {
	for t.Step < t.last() {
		switch {
		case len(t.requests) > 0:
			result, err := t.segment(ctx)
			if err != nil {
				t.refuseRequests(err)
				return TrainingResult{}, err
			}
			t.segmentText = result.Message
			t.requests[0].done, t.requests[0].result = true, result
			t.requests = t.requests[1:]
		case t.Stop != nil:
			// The run was reset to before a stop, and the steps before it are on record, as is
			// what came of experiments between them.
			if err := workflow.Await(ctx, func() bool { return t.Experiment == nil }); err != nil {
				return TrainingResult{}, err
			}
			step := t.Step
			if _, err := t.segment(ctx); err != nil {
				return TrainingResult{}, err
			}
			if t.Step == step {
				return t.finish(ctx) // what it learned from was forgotten
			}
		case workflow.GetInfo(ctx).GetContinueAsNewSuggested():
			err := workflow.Await(ctx, func() bool {
				return len(t.requests) > 0 || t.Stop != nil || t.deciding == 0 && workflow.AllHandlersFinished(ctx)
			})
			if err != nil || len(t.requests) == 0 && t.Stop == nil {
				return TrainingResult{}, cmp.Or(err, t.continueAsNew(ctx))
			}
		default:
			t.enter(ctx, PhaseTraffic, cmp.Or(t.segmentText, "nothing was asked for yet"))
			err := workflow.Await(ctx, func() bool { return len(t.requests) > 0 || t.Stop != nil || t.Step >= t.last() })
			if err != nil {
				return TrainingResult{}, err
			}
		}
	}
	for _, r := range t.requests {
		r.done, r.result = true, UpdateResult{Message: "no step: the run ends"}
	}
	t.requests = nil
	return t.finish(ctx)
}

// refuseRequests answers all who wait for a segment that the run has failed.
func (t *trainingRun) refuseRequests(err error) {
	for _, r := range t.requests {
		r.done, r.err = true, temporal.NewNonRetryableApplicationError(Failure(err).Error, ErrTypeSegment, nil)
	}
	t.requests = nil
}

// segment makes the next step of what is new in conversations, if that is enough.
func (t *trainingRun) segment(ctx workflow.Context) (UpdateResult, error) {
	step := t.Step + 1
	if e := t.Experiment; e != nil {
		return UpdateResult{Message: fmt.Sprintf("no step: version %d is being compared with version %d in use", e.Candidate, e.Promoted)}, nil
	}
	if err := t.checkBudget(ctx); err != nil {
		return UpdateResult{}, err
	}
	if step > t.last() {
		return UpdateResult{Message: "no step: the run ends, " + t.stop().Text()}, nil
	}
	t.enter(ctx, PhaseUpdate, fmt.Sprintf("step %d", step))
	var c *activities.Coordinator
	in := activities.ChooseSegmentInput{Run: t.Run, Policy: model.DefaultPolicy, Step: step}
	t.learning = true // since what is chosen is used
	defer func() { t.learning = false }()
	var chosen activities.ChooseSegmentResult
	err := workflow.ExecuteActivity(coordination(ctx, fmt.Sprintf("segment of step %d", step)), c.ChooseSegment, in).Get(ctx, &chosen)
	if err != nil {
		return UpdateResult{}, err
	}
	if chosen.Reason != "" {
		return UpdateResult{Message: "no step: " + chosen.Reason}, nil
	}
	var batch activities.SegmentBatchResult
	if err := workflow.ExecuteActivity(coordination(ctx, fmt.Sprintf("batch of step %d", step)), c.SegmentBatch, in).Get(ctx, &batch); err != nil {
		return UpdateResult{}, err
	}
	began := workflow.Now(ctx)
	var v activities.VersionResult
	var trainer *activities.Trainer
	err = workflow.ExecuteActivity(training(ctx, fmt.Sprintf("version %d from %d", step, chosen.Parent)), trainer.TrainStep, activities.TrainStepInput{
		Run: t.Run, Policy: model.DefaultPolicy, Step: step, Batch: batch.Batch, Set: t.settingsOf(step), Parent: &chosen.Parent,
	}).Get(ctx, &v)
	if err != nil {
		return UpdateResult{}, err
	}
	t.updating = workflow.Now(ctx).Sub(began)
	point, err := t.conclude(ctx, step, v, batch.Batch, batch.Metrics, batch.Metrics["reward/mean"])
	if err != nil {
		return UpdateResult{}, err
	}
	t.learning, t.Step = false, step
	t.addPoint(point)
	message := fmt.Sprintf("step %d learned from %s of %s", step, readable.Count(chosen.Replies, t.unit()), readable.Count(chosen.Conversations, "conversation"))
	message += t.verdictText(step)
	if chosen.LeftOut != "" {
		message += "; left out: " + chosen.LeftOut
	}
	return UpdateResult{Step: step, Message: message}, t.publishAttributes(ctx)
}

// unit names what the run learns from.
func (t *trainingRun) unit() string {
	if t.Spec.Traffic.Train.Objective == spec.ObjectivePreference {
		return "pair"
	}
	return "reply"
}

// verdictText says what became of a step's version.
func (t *trainingRun) verdictText(step int) string {
	switch {
	case t.Experiment != nil && t.Experiment.Candidate == step:
		return fmt.Sprintf("; its version is being compared with version %d in use", t.Promoted)
	case t.Promoted == step:
		return "; its version is promoted"
	case t.Pending != nil && t.Pending.Decision.Candidate == step:
		return "; its version waits for approval"
	case t.has(record.Gate) && t.Evaluated == step:
		return fmt.Sprintf("; version %d stays promoted", t.Promoted)
	}
	return ""
}
