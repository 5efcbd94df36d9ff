package activities

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"go.temporal.io/sdk/temporal"

	"github.com/fulgurite/fulgurite/internal/shell"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/prompts/optimize"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/tasks/grading"
	"github.com/fulgurite/fulgurite/update"
)

// Starter starts and cancels the workflows of runs.
type Starter interface {
	// StartRun starts a workflow whose input is a spec and whose id is the run's name. It
	// does nothing if a workflow of that id is under way.
	StartRun(ctx context.Context, name, workflow string, s spec.Spec) error
	// UnderWay reports whether a workflow of that id has not ended.
	UnderWay(ctx context.Context, name string) (bool, error)
	// CancelRun asks a workflow to end. It does nothing if none of that id is under way.
	CancelRun(ctx context.Context, name string) error
}

// PreparePhasesInput is the spec as the user gave it, and the name of the phases.
type PreparePhasesInput struct {
	Spec json.RawMessage `json:"spec"`
	Name string          `json:"name"`
}

// PreparePhasesResult has what the phases do.
type PreparePhasesResult struct {
	// Spec has its defaults, absolute paths and the texts of its prompts.
	Spec   json.RawMessage `json:"spec"`
	Phases []Phase         `json:"phases"`
}

// Phase is one of the runs of a spec with phases.
type Phase struct {
	Number int    `json:"number"` // from 1
	Type   string `json:"type"`
	Run    string `json:"run"`
}

// StartPhaseInput asks for a run of a phase.
type StartPhaseInput struct {
	Spec  json.RawMessage `json:"spec"` // with all phases, as PreparePhases returned it
	Phase Phase           `json:"phase"`
	From  spec.PhaseStart `json:"from"`
}

// AwaitPhaseInput asks how the run of a phase ended.
type AwaitPhaseInput struct {
	Run string `json:"run"`
}

// AwaitPhaseResult is the end of the run of a phase.
type AwaitPhaseResult struct {
	Status record.Status `json:"status"`
	// Error says why the run did not complete, and Retry whether it can go on once the
	// cause is fixed.
	Error string `json:"error,omitempty"`
	Retry bool   `json:"retry,omitempty"`
	// Promoted is a version of the prompts or of the weights.
	Promoted int          `json:"promoted"`
	Gate     PhaseRewards `json:"gate,omitzero"`
	Test     PhaseRewards `json:"test,omitzero"`
}

// PhaseRewards are mean rewards on a split: of the version that a phase began with, and of
// the one that it promoted. One that was not measured is nil.
type PhaseRewards struct {
	Before *float64 `json:"before,omitempty"`
	After  *float64 `json:"after,omitempty"`
}

// CancelPhaseInput asks the run of a phase to end.
type CancelPhaseInput struct {
	Run string `json:"run"`
}

// PreparePhases checks a spec with phases, and what each phase needs. All faults of a spec are
// reported in one non-retryable error.
func (c *Coordinator) PreparePhases(ctx context.Context, in PreparePhasesInput) (_ PreparePhasesResult, err error) {
	defer func() {
		if permanent(err) {
			err = temporal.NewNonRetryableApplicationError(err.Error(), ErrTypeRefused, nil)
		}
	}()
	s, err := parseInput(in.Spec, c.Directory)
	if err != nil {
		return PreparePhasesResult{}, invalid(err)
	}
	if len(s.Phases) == 0 {
		return PreparePhasesResult{}, invalid(errors.New("phases: missing: PhasesWorkflow runs them in turn; give phases, or start TrainingWorkflow or PromptWorkflow"))
	}
	if s, err = s.ReadPrompts(); err != nil {
		return PreparePhasesResult{}, invalid(err)
	}
	var out PreparePhasesResult
	for i, p := range s.Phases {
		phase := Phase{Number: i + 1, Type: p.Type, Run: spec.PhaseName(in.Name, i+1, p)}
		if err := record.CheckRunName(phase.Run); err != nil {
			return out, invalid(fmt.Errorf("workflow id %s becomes a part of the names of runs: %w", in.Name, err))
		}
		out.Phases = append(out.Phases, phase)
	}
	if err := c.checkBudgets(ctx, s); err != nil {
		return out, err
	}
	out.Spec, err = json.Marshal(s)
	return out, err
}

// checkBudgets returns an error if the search of a phase can't be made.
func (c *Coordinator) checkBudgets(ctx context.Context, s spec.Spec) error {
	splits, err := grading.ReadSplits(ctx, s)
	if err != nil {
		return invalid(err)
	}
	if s, err = c.sourcePrompts(ctx, s); err != nil {
		return err
	}
	for i, p := range s.Phases {
		if p.Type != spec.PhasePrompts {
			continue
		}
		of := s.PhaseSpec(i+1, spec.PhaseStart{})
		if _, err := optimize.Of(of, len(splits.Tasks[record.Train]), len(splits.Tasks[record.Validation])); err != nil {
			return invalid(fmt.Errorf("phase %d: %w", i+1, err))
		}
	}
	return nil
}

// StartPhase starts the run of a phase, unless one is on record. A run on record must have
// the spec that the phase has now: it did, or does, what the phase asks for.
func (c *Coordinator) StartPhase(ctx context.Context, in StartPhaseInput) (err error) {
	defer temporalError(&err)
	all, err := spec.Stored(in.Spec)
	if err != nil {
		return invalid(fmt.Errorf("decode the spec: %w", err))
	}
	s := all.PhaseSpec(in.Phase.Number, in.From).WithDefaults()
	run, err := c.Runs.Run(ctx, in.Phase.Run)
	switch {
	case errors.Is(err, record.ErrForgotten):
		return update.Final(fmt.Errorf("phase %d: %w: give the phases another name", in.Phase.Number, err))
	case errors.Is(err, record.ErrNotFound) || err == nil && run.Status == record.Refused:
		workflow := workflowTraining
		if in.Phase.Type == spec.PhasePrompts {
			workflow = workflowPrompts
		}
		return c.Starter.StartRun(ctx, in.Phase.Run, workflow, s)
	case err != nil:
		return fmt.Errorf("read run %s: %w", in.Phase.Run, err)
	}
	if s, err = c.withSources(ctx, s); err != nil {
		return err
	}
	if digest := spec.Digest(s); digest != run.SpecDigest {
		return update.Final(fmt.Errorf("phase %d: run %s is on record (%s) with another spec, %s; this one's is %s: give the phases another name, or the spec that they began with (%s shows it)",
			in.Phase.Number, in.Phase.Run, run.Status, run.SpecDigest, digest, shell.Command("report", in.Phase.Run)))
	}
	return nil
}

// The waits between looks at the record of a run.
const (
	firstLook   = 100 * time.Millisecond
	longestLook = 2 * time.Second
)

// AwaitPhase waits until the run of a phase has ended, by its record.
func (c *Coordinator) AwaitPhase(ctx context.Context, in AwaitPhaseInput) (_ AwaitPhaseResult, err error) {
	defer temporalError(&err)
	for wait := firstLook; ; wait = min(2*wait, longestLook) {
		out, ended, err := c.phaseEnd(ctx, in.Run)
		if ended || err != nil {
			return out, err
		}
		select {
		case <-ctx.Done():
			return AwaitPhaseResult{}, ctx.Err()
		case <-time.After(wait):
		}
	}
}

// phaseEnd returns how a run ended, if it has. A workflow that has not prepared its run yet, or
// that was refused before, says by being under way that it has not.
func (c *Coordinator) phaseEnd(ctx context.Context, name string) (out AwaitPhaseResult, ended bool, err error) {
	run, err := c.Runs.Run(ctx, name)
	if errors.Is(err, record.ErrNotFound) || err == nil && run.Status == record.Refused {
		underWay, failure := c.Starter.UnderWay(ctx, name)
		if underWay || failure != nil {
			return out, false, failure
		}
		run, err = c.Runs.Run(ctx, name) // what the workflow left when it ended
	}
	switch {
	case errors.Is(err, record.ErrForgotten):
		return AwaitPhaseResult{Status: record.Failed, Error: err.Error()}, true, nil
	case errors.Is(err, record.ErrNotFound):
		return AwaitPhaseResult{Status: record.Failed, Error: "its workflow ended before it was prepared"}, true, nil
	case err != nil:
		return out, false, fmt.Errorf("read run %s: %w", name, err)
	case run.Status == record.Running:
		return out, false, nil
	}
	out = AwaitPhaseResult{Status: run.Status, Error: run.Failure().Error, Retry: run.CanRetry()}
	if run.Status != record.Completed && run.Status != record.Stopped {
		return out, true, nil
	}
	return out, true, c.readPromoted(ctx, run, &out)
}

// readPromoted adds the version that a run promoted, and how good it is.
func (c *Coordinator) readPromoted(ctx context.Context, run record.Run, out *AwaitPhaseResult) error {
	s, err := decodeSpec(run)
	if err != nil {
		return err
	}
	policy := model.DefaultPolicy
	if s.Optimizer != nil {
		policy = record.PromptsPolicy
	}
	promoted, err := c.Ledger.Promoted(ctx, run.Name, policy)
	if err != nil {
		return fmt.Errorf("read the promoted version of run %s: %w", run.Name, err)
	}
	evaluations, err := c.Ledger.Evaluations(ctx, run.Name)
	if err != nil {
		return fmt.Errorf("read the evaluations of run %s: %w", run.Name, err)
	}
	out.Promoted = promoted.Version
	for _, e := range evaluations {
		rewards := &out.Gate
		if e.Kind == record.Test {
			rewards = &out.Test
		}
		if e.Policy != policy || e.Kind != record.Gate && e.Kind != record.Test {
			continue
		}
		if e.Version == 0 {
			rewards.Before = &e.Mean
		}
		if e.Version == promoted.Version {
			rewards.After = &e.Mean
		}
	}
	return nil
}

// CancelPhase asks the run of a phase to end, if it is under way.
func (c *Coordinator) CancelPhase(ctx context.Context, in CancelPhaseInput) error {
	return c.Starter.CancelRun(ctx, in.Run)
}
