package workflows

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/internal/shell"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
)

// PhasesWorkflow runs the phases of a spec one after the other. Each is an ordinary run, a
// TrainingWorkflow or a PromptWorkflow named after the workflow's id, and starts from what
// the phases before it promoted. The query "progress" answers with a PhasesProgress.
//
// A phase is no child: it can be retried, reset and stopped like any run, and what was done
// is on record. So a PhasesWorkflow that is started again after a failure, with the same
// spec, runs no completed phase again and waits for one that is under way.
func PhasesWorkflow(ctx workflow.Context, in PhasesInput) (PhasesProgress, error) {
	p := &phasesRun{PhasesProgress: PhasesProgress{Name: workflow.GetInfo(ctx).WorkflowExecution.ID}}
	if err := workflow.SetQueryHandler(ctx, QueryProgress, func() (PhasesProgress, error) { return p.PhasesProgress, nil }); err != nil {
		return PhasesProgress{}, err
	}
	err := p.run(ctx, in)
	return p.PhasesProgress, err
}

// ErrTypePhase is the type of the error of a PhasesWorkflow one of whose runs did not
// complete.
const ErrTypePhase = "Phase"

// PhasesInput is the input of PhasesWorkflow: a spec, exactly as a user wrote it in JSON.
type PhasesInput struct {
	Spec json.RawMessage
}

// MarshalJSON writes the spec itself, so that the workflow's input is the spec.
func (in PhasesInput) MarshalJSON() ([]byte, error) { return in.Spec, nil }

// UnmarshalJSON keeps a spec as it is: PreparePhases reads it strictly.
func (in *PhasesInput) UnmarshalJSON(data []byte) error {
	in.Spec = bytes.Clone(data)
	return nil
}

// PhasesProgress says how far the phases of a spec have come.
type PhasesProgress struct {
	Name   string          `json:"name"`
	Phases []PhaseProgress `json:"phases"`
}

// PhaseProgress is one phase. Its status is empty until it begins. A promoted version and
// rewards are those of a phase that has completed, or was stopped.
type PhaseProgress struct {
	activities.Phase
	Status record.Status `json:"status,omitempty"`
	Error  string        `json:"error,omitempty"`
	// Retry says that the phase can go on once the cause is fixed.
	Retry    bool                    `json:"retry,omitempty"`
	Promoted *int                    `json:"promoted,omitempty"`
	Gate     activities.PhaseRewards `json:"gate,omitzero"`
	Test     activities.PhaseRewards `json:"test,omitzero"`
}

// phasesRun is a PhasesWorkflow under way.
type phasesRun struct {
	PhasesProgress
	spec json.RawMessage
	from spec.PhaseStart
}

func (p *phasesRun) run(ctx workflow.Context, in PhasesInput) error {
	var c *activities.Coordinator
	var prepared activities.PreparePhasesResult
	err := workflow.ExecuteActivity(coordination(ctx, "read the spec"), c.PreparePhases, activities.PreparePhasesInput{
		Spec: in.Spec, Name: p.Name,
	}).Get(ctx, &prepared)
	if err != nil {
		return err
	}
	p.spec = prepared.Spec
	for _, phase := range prepared.Phases {
		p.Phases = append(p.Phases, PhaseProgress{Phase: phase})
	}
	for i := range p.Phases {
		err := p.runPhase(ctx, &p.Phases[i])
		workflow.SetCurrentDetails(ctx, p.details())
		if err != nil {
			return err
		}
	}
	return nil
}

// runPhase runs a phase to its end, and makes what it promoted the start of the next ones.
// If the workflow is cancelled, it cancels the phase.
func (p *phasesRun) runPhase(ctx workflow.Context, phase *PhaseProgress) error {
	phase.Status = record.Running
	workflow.SetCurrentDetails(ctx, p.details())
	end, err := p.startAndAwait(ctx, phase.Phase)
	if ctx.Err() != nil {
		return p.cancel(ctx, phase)
	}
	if err != nil {
		phase.Status, phase.Error = record.Failed, Failure(err).Error
		return err
	}
	phase.end(end)
	if end.Status != record.Completed && end.Status != record.Stopped {
		return phase.failure(p.Name, end)
	}
	version := fmt.Sprintf("%s@%d", phase.Run, end.Promoted)
	if phase.Type == spec.PhasePrompts {
		p.from.Prompts = version
	} else {
		p.from.Weights = version
	}
	return nil
}

func (p *phasesRun) startAndAwait(ctx workflow.Context, phase activities.Phase) (end activities.AwaitPhaseResult, err error) {
	var c *activities.Coordinator
	err = workflow.ExecuteActivity(coordination(ctx, "start run "+phase.Run), c.StartPhase, activities.StartPhaseInput{
		Spec: p.spec, Phase: phase, From: p.from,
	}).Get(ctx, nil)
	if err != nil {
		return end, err
	}
	return end, workflow.ExecuteActivity(awaiting(ctx, "run "+phase.Run), c.AwaitPhase, activities.AwaitPhaseInput{Run: phase.Run}).Get(ctx, &end)
}

// cancel ends the run of a phase, and waits until it has ended.
func (p *phasesRun) cancel(ctx workflow.Context, phase *PhaseProgress) error {
	after, stop := workflow.NewDisconnectedContext(ctx)
	defer stop()
	var c *activities.Coordinator
	err := workflow.ExecuteActivity(coordination(after, "cancel run "+phase.Run), c.CancelPhase, activities.CancelPhaseInput{Run: phase.Run}).Get(after, nil)
	var end activities.AwaitPhaseResult
	if err == nil {
		err = workflow.ExecuteActivity(awaiting(after, "run "+phase.Run), c.AwaitPhase, activities.AwaitPhaseInput{Run: phase.Run}).Get(after, &end)
	}
	if err != nil {
		workflow.GetLogger(ctx).Error("cancel the run of the phase", "run", phase.Run, "error", err)
		return ctx.Err()
	}
	phase.end(end)
	return ctx.Err()
}

func (p *PhaseProgress) end(end activities.AwaitPhaseResult) {
	p.Status, p.Error, p.Retry, p.Gate, p.Test = end.Status, end.Error, end.Retry, end.Gate, end.Test
	if end.Status == record.Completed || end.Status == record.Stopped {
		p.Promoted = &end.Promoted
	}
}

// failure returns the error that says what happened to a phase, and how the phases go on.
func (p PhaseProgress) failure(name string, end activities.AwaitPhaseResult) error {
	text := fmt.Sprintf("phase %d (run %s) %s: %s", p.Number, p.Run, end.Status, end.Error)
	switch {
	case end.Retry:
		text += fmt.Sprintf("; once the cause is fixed, `%s` lets it go on with this phase", shell.Command("retry", name))
	case end.Status == record.Refused:
		text += "; mend the spec and start it again under the same name: completed phases are not run again"
	default:
		text += "; start the spec again under another name"
	}
	return temporal.NewNonRetryableApplicationError(text, ErrTypePhase, nil)
}

// details describes the phases in Markdown.
func (p *phasesRun) details() string {
	var b strings.Builder
	fmt.Fprintf(&b, "**%s**. If it takes long, `%s` says what it waits for.\n\n", p.Name, shell.Command("status", p.Name))
	b.WriteString("| phase | type | run | status | promoted | gate before | gate after |\n| ---: | --- | --- | --- | ---: | ---: | ---: |\n")
	for _, one := range p.Phases {
		promoted := ""
		if one.Promoted != nil {
			promoted = fmt.Sprint(*one.Promoted)
		}
		fmt.Fprintf(&b, "| %d | %s | %s | %s | %s | %s | %s |\n",
			one.Number, one.Type, one.Run, one.Status, promoted, RewardText(one.Gate.Before), RewardText(one.Gate.After))
	}
	for _, one := range p.Phases {
		if one.Error != "" {
			fmt.Fprintf(&b, "\nPhase %d: %s\n", one.Number, one.Error)
		}
	}
	return b.String()
}

// RewardText returns a reward in words; empty if it was not measured.
func RewardText(reward *float64) string {
	if reward == nil {
		return ""
	}
	return fmt.Sprintf("%.3f", *reward)
}

// awaiting returns a context for an activity that waits for a run to end. It may take days:
// another try goes on waiting.
func awaiting(ctx workflow.Context, summary string) workflow.Context {
	return withActivity(ctx, workflow.ActivityOptions{
		TaskQueue:           QueueTraining,
		StartToCloseTimeout: 24 * time.Hour,
		HeartbeatTimeout:    10 * time.Second, // seconds lost when a worker dies; keepAlive beats every 2
		RetryPolicy:         forever(200*time.Millisecond, 10*time.Second),
		Summary:             summary,
	})
}
