package workflows

import (
	"errors"
	"fmt"
	"strings"

	"go.temporal.io/sdk/workflow"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/internal/shell"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
)

// The Updates with which people steer a run. Each is validated before it enters the
// history.
const (
	UpdatePause   = "pause"
	UpdateResume  = "resume"
	UpdateStop    = "stop"
	UpdateSet     = "set"
	UpdateApprove = "approve"
	UpdateReject  = "reject"
)

// ControlInput asks a run to pause, to go on, or to stop after the steps that
// have begun.
type ControlInput struct {
	By     string `json:"by"`
	Reason string `json:"reason,omitempty"`
}

// SetInput asks for other numbers in the spec. Values has them by the path of their key.
type SetInput struct {
	By     string             `json:"by"`
	Values map[string]float64 `json:"values"`
}

// VerdictInput is a person's decision about the candidate that waits.
type VerdictInput struct {
	Version int    `json:"version,omitempty"` // 0 means the one that waits
	By      string `json:"by"`
	Reason  string `json:"reason,omitempty"`
}

// UpdateResult says what an Update did, and from which step on.
type UpdateResult struct {
	Step    int    `json:"step"`
	Message string `json:"message"`
}

// Bounds on the settings that a run carries, since Temporal bounds its state.
const (
	maxSettings = 500
	byBytes     = 256
)

// Setting is a change of the spec while the run was under way.
type Setting struct {
	From   int                `json:"from"` // the first step that it is for
	By     string             `json:"by"`
	Values map[string]float64 `json:"values"`
}

// handleUpdates registers the handlers of all Updates.
func (t *trainingRun) handleUpdates(ctx workflow.Context) error {
	return errors.Join(
		handle(ctx, UpdatePause, t.pause, func(ControlInput) error {
			if t.Paused {
				return errors.New("the run is paused already")
			}
			return t.checkUnderWay()
		}),
		handle(ctx, UpdateResume, t.resume, func(ControlInput) error {
			if !t.Paused {
				return errors.New("the run is not paused")
			}
			return nil
		}),
		handle(ctx, UpdateStop, t.stopAfterSteps, func(ControlInput) error { return t.checkUnderWay() }),
		handle(ctx, UpdateSet, t.set, t.checkSet),
		handle(ctx, UpdateApprove, t.approve, t.checkVerdict),
		handle(ctx, UpdateReject, t.reject, t.checkVerdict),
		handle(ctx, UpdateSegment, t.requestSegment, t.checkSegment),
	)
}

func handle[In any](ctx workflow.Context, name string, do func(workflow.Context, In) (UpdateResult, error), check func(In) error) error {
	return workflow.SetUpdateHandlerWithOptions(ctx, name, do, workflow.UpdateHandlerOptions{Validator: check})
}

// awaitHandlers waits until no handler of an Update is running.
func awaitHandlers(ctx workflow.Context) error {
	return workflow.Await(ctx, func() bool { return workflow.AllHandlersFinished(ctx) })
}

func (t *trainingRun) checkUnderWay() error {
	if t.Spec.Evaluation.Only != "" {
		return fmt.Errorf("the run trains nothing and has no steps; `%s` ends it", shell.Command("stop", t.Run, "--now"))
	}
	if t.Stop != nil && t.optimizes {
		return fmt.Errorf("the search ends already, %s", t.Stop.Text())
	}
	if t.SearchEnd != nil {
		return errors.New("the search has ended already")
	}
	if t.Stop != nil {
		return fmt.Errorf("the run stops after step %d already, %s", t.Stop.After, t.Stop.Text())
	}
	return nil
}

// pause lets the steps that have begun finish and starts no other.
func (t *trainingRun) pause(_ workflow.Context, in ControlInput) (UpdateResult, error) {
	t.Paused = true
	if t.optimizes {
		return UpdateResult{Message: fmt.Sprintf("paused by %s, once what the search has asked for is done", in.By)}, nil
	}
	return UpdateResult{t.started(), fmt.Sprintf("paused by %s after step %d", in.By, t.started())}, nil
}

func (t *trainingRun) resume(_ workflow.Context, in ControlInput) (UpdateResult, error) {
	t.Paused = false
	if t.optimizes {
		return UpdateResult{Message: "resumed by " + in.By}, nil
	}
	return UpdateResult{t.started() + 1, fmt.Sprintf("resumed by %s with step %d", in.By, t.started()+1)}, nil
}

// stopAfterSteps ends the run after the steps that have begun, with everything that
// follows the last step.
func (t *trainingRun) stopAfterSteps(ctx workflow.Context, in ControlInput) (UpdateResult, error) {
	last, err := t.begun(ctx)
	if err == nil {
		err = t.checkUnderWay() // since somebody else may have stopped it meanwhile
	}
	if err != nil {
		return UpdateResult{}, err
	}
	t.Stop, t.Paused = &record.Stop{By: in.By, Reason: shortReason(in.Reason), After: last}, false
	workflow.SetCurrentDetails(ctx, t.details())
	if t.optimizes {
		return UpdateResult{Message: "the search ends with the best prompts so far, asked by " + in.By}, nil
	}
	return UpdateResult{last, fmt.Sprintf("stops after step %d, asked by %s", last, in.By)}, nil
}

// awaitPrepared waits until the spec is read, so that what is asked for can be checked.
func (t *trainingRun) awaitPrepared(ctx workflow.Context) error {
	return workflow.Await(ctx, func() bool { return t.Splits != nil })
}

// awaitLookups waits until no lookup is under way, so that no step begins during one.
func (t *trainingRun) awaitLookups(ctx workflow.Context) error {
	return workflow.Await(ctx, func() bool { return t.lookups == 0 })
}

// begun looks up the last step that has begun; all that are on record have. If a run is reset,
// Temporal repeats at once all Updates that came after that place, so what a user asked for
// after step 5 is asked for again before the run has repeated the steps that are on record.
func (t *trainingRun) begun(ctx workflow.Context) (int, error) {
	if t.optimizes {
		return t.started(), nil
	}
	t.lookups++
	defer func() { t.lookups-- }()
	var c *activities.Coordinator
	var r activities.LastStepResult
	err := workflow.ExecuteActivity(coordination(ctx, "the last step on record"), c.LastStep, activities.LastStepInput{Run: t.Run}).Get(ctx, &r)
	return max(t.started(), r.Step), err
}

// awaitResume waits while the run is paused.
func (t *trainingRun) awaitResume(ctx workflow.Context) error {
	t.enter(ctx, PhasePaused, fmt.Sprintf("after step %d", t.Step))
	return workflow.Await(ctx, func() bool { return !t.Paused || t.Step >= t.last() })
}

// checkSet leaves what is asked for while the run is being prepared to set.
func (t *trainingRun) checkSet(in SetInput) error {
	if t.Splits == nil {
		return nil
	}
	if _, ok := in.Values[spec.KeySteps]; ok && !t.optimizes {
		return fmt.Errorf("%s can't be set while this run is under way: once it has ended, `%s` lets it go on", spec.KeySteps, shell.Command("retry", t.Run, "--steps", "N"))
	}
	return t.checkSetting(t.started()+1, in)
}

// checkSetting reports why keys can't be set from a step on.
func (s *TrainingState) checkSetting(from int, in SetInput) error {
	if len(s.Settings) >= maxSettings {
		return fmt.Errorf("keys were set %d times already, which is as often as a run carries; start another with the spec as it should be", maxSettings)
	}
	if len(in.By) > byBytes {
		return fmt.Errorf("by has %d bytes: at most %d", len(in.By), byBytes)
	}
	if len(in.Values) == 0 {
		return errors.New("nothing to set: give KEY=NUMBER")
	}
	if s.Spec.Optimizer != nil {
		if err := checkSearchKeys(in.Values); err != nil {
			return err
		}
	}
	_, err := s.specAt(from).Set(in.Values)
	return err
}

// checkSearchKeys reports a key that has no effect on a search under way: what a search does
// follows from the settings that it began with. Its gate comes after it, and its budget may
// end it early.
func checkSearchKeys(values map[string]float64) error {
	for _, key := range workflow.DeterministicKeys(values) {
		if !strings.HasPrefix(key, "promotion.") && !strings.HasPrefix(key, "budget.") && !strings.HasPrefix(key, "scheduling.") {
			return fmt.Errorf("%s can't be set for a search for prompts: set promotion.margin, promotion.significance or a key of budget or scheduling, or start another search", key)
		}
	}
	return nil
}

// set changes keys of the spec from the first step that has not yet begun. After a reset that
// may be a step on record, whose result stays as it is.
func (t *trainingRun) set(ctx workflow.Context, in SetInput) (UpdateResult, error) {
	err := t.awaitPrepared(ctx)
	if err == nil {
		err = t.checkSet(in)
	}
	if err != nil {
		return UpdateResult{}, err
	}
	s := Setting{From: t.started() + 1, By: in.By, Values: in.Values}
	t.Settings = append(t.Settings, s)
	if t.optimizes {
		return UpdateResult{s.From, "set by " + in.By}, nil
	}
	return UpdateResult{s.From, fmt.Sprintf("set by %s from step %d", in.By, s.From)}, nil
}

// Set changes keys of the spec from the first step that is not finished. It is for the
// state of a run that has ended and goes on in another execution. With another number of
// steps, a run goes on that was completed or stopped.
func (s *TrainingState) Set(in SetInput) error {
	switch {
	case s.Splits == nil:
		return errors.New("nothing can be set, because it ended before it was prepared; start another with the spec as it should be")
	case s.Spec.Evaluation.Only != "":
		return errors.New("nothing can be set, because it trains nothing")
	}
	if err := s.checkSetting(s.Step+1, in); err != nil {
		return err
	}
	if n, ok := in.Values[spec.KeySteps]; ok {
		if int(n) <= s.Step {
			return fmt.Errorf("its last finished step is %d, and %s %d is not more", s.Step, spec.KeySteps, int(n))
		}
		s.Stop = nil
	}
	s.Settings = append(s.Settings, Setting{From: s.Step + 1, By: in.By, Values: in.Values})
	return nil
}

func (t *trainingRun) checkVerdict(in VerdictInput) error {
	switch {
	case t.Pending == nil:
		return errors.New("no candidate waits for approval")
	case in.Version != 0 && in.Version != t.Pending.Decision.Candidate:
		return fmt.Errorf("version %d waits for approval, not version %d", t.Pending.Decision.Candidate, in.Version)
	case in.By == "":
		return errors.New("by is missing: who decides?")
	}
	return nil
}

func (t *trainingRun) approve(ctx workflow.Context, in VerdictInput) (UpdateResult, error) {
	return t.applyVerdict(ctx, in, func(d model.Decision) (string, error) {
		d.ApprovedBy = in.By
		err := t.promote(ctx, d)
		if t.Promoted != d.Candidate {
			return fmt.Sprintf("approved by %s, but version %d stays: it was pinned or moved", in.By, t.Promoted), err
		}
		return fmt.Sprintf("version %d promoted, approved by %s", d.Candidate, in.By), err
	})
}

func (t *trainingRun) reject(ctx workflow.Context, in VerdictInput) (UpdateResult, error) {
	return t.applyVerdict(ctx, in, func(d model.Decision) (string, error) {
		verdict := "rejected by " + in.By
		if in.Reason != "" {
			verdict += ": " + in.Reason
		}
		return fmt.Sprintf("version %d %s", d.Candidate, verdict), t.recordDecision(ctx, d, verdict)
	})
}

// applyVerdict carries out a person's decision about the candidate that waits.
func (t *trainingRun) applyVerdict(ctx workflow.Context, in VerdictInput, act func(model.Decision) (string, error)) (UpdateResult, error) {
	if err := t.pointer.Lock(ctx); err != nil {
		return UpdateResult{}, err
	}
	defer t.pointer.Unlock()
	if err := t.checkVerdict(in); err != nil {
		return UpdateResult{}, err // decided while this waited
	}
	d := t.Pending.Decision
	t.Pending = nil
	message, err := act(d)
	return UpdateResult{t.Step, message}, err
}
