// Package operator carries out the actions that users request on runs: pause, resume,
// stop and retry them, set keys of their spec, approve and reject candidates, and move
// their promoted pointer. Both the commands and the page use it.
//
// It decides nothing about a run under way: the run's workflow validates a request (an
// Update). What may be promoted by hand it checks itself: a version that exists and was
// evaluated. It starts no runs.
//
// Guarantees: each action is in the store before it is done, with the person and the
// reason, and afterwards with the answer. Without a store, only Temporal's history has
// it. An action with one id is done once, even if a process dies meanwhile: its id is the
// id of Temporal's Update and part of the id of the pointer's move. An action that
// already has an answer returns the same answer again.
package operator

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/promptsearch"
	"github.com/fulgurite/fulgurite/run/report"
	"github.com/fulgurite/fulgurite/run/runstate"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/workflows"
)

var (
	// ErrRefused is wrapped when a run, or the store, refuses a request. The text says
	// why, and what to do.
	ErrRefused = errors.New("refused")
	// ErrNotUnderWay is wrapped, together with ErrRefused, when the run has no workflow
	// that could answer.
	ErrNotUnderWay = errors.New("not under way")
	// ErrNoAnswer is wrapped when a run does not answer in time. It may still do what was
	// requested; sending the request again with the same id returns the answer.
	ErrNoAnswer = errors.New("no answer")
)

// answerTimeout is how long a run may take to answer. It answers immediately, unless no
// worker is available.
const answerTimeout = 30 * time.Second

// Store records actions and holds the promoted pointer.
type Store interface {
	runstate.Store
	Version(ctx context.Context, id model.VersionID) (model.Version, error)
	PromptVersion(ctx context.Context, run string, number int) (record.PromptVersion, error)
	Evaluations(ctx context.Context, run string) ([]record.Evaluation, error)
	Promotions(ctx context.Context, run, policy string) ([]record.Promotion, error)
	Promote(ctx context.Context, p record.Promotion) error
	ForgetQuarantines(ctx context.Context, run string) error
	PutTrafficSetting(ctx context.Context, run, setting, by, reason string) error
	Forgotten(ctx context.Context, run string) ([]record.Forgotten, error)
	RebindRun(ctx context.Context, r record.Run, execution string) error
	BeginAction(ctx context.Context, a record.Action) (record.Action, error)
	EndAction(ctx context.Context, id string, outcome record.ActionOutcome, r record.ActionResult) error
}

// Dial connects to Temporal, and returns the namespace that it uses. done closes the
// connection.
type Dial func(ctx context.Context) (c client.Client, namespace string, done func(), err error)

// Operator carries out actions for users. It is safe for concurrent use.
type Operator struct {
	// Store may be nil for actions that a workflow does; they are then not recorded in a
	// store.
	Store Store
	Dial  Dial
	// Timeout is how long a run may take to answer; 0 is half a minute.
	Timeout time.Duration
}

// NewID returns a new, unique id for an action.
func NewID() string { return rand.Text() }

// Act does an action and returns it with its outcome. If the action is refused, both the
// error and the result say why. If the outcome is not known, Act returns an error and the
// outcome stays ActionAsked; sending the action again with the same id returns the
// answer.
func (o Operator) Act(ctx context.Context, a record.Action) (record.Action, error) {
	return o.Record(ctx, a, o.do)
}

// Record does something as an action and records it. do returns an error by Refuse to
// refuse the action; any other error leaves the outcome open.
func (o Operator) Record(ctx context.Context, a record.Action, do func(context.Context, record.Action) (record.ActionResult, error)) (record.Action, error) {
	a.Outcome = record.ActionAsked
	if err := a.Check(); err != nil {
		return refused(a, Refuse("%s", err))
	}
	if o.Store != nil {
		begun, err := o.Store.BeginAction(ctx, a)
		if errors.Is(err, record.ErrConflict) {
			return refused(a, Refuse("a request with this id but other contents was done before: send it with a new id"))
		}
		if errors.Is(err, record.ErrForgotten) { // its actions went with it, and no others are put on record
			return refused(a, Refuse("%s", err))
		}
		if err != nil {
			return a, err
		}
		switch begun.Outcome {
		case record.ActionDone:
			return begun, nil
		case record.ActionRefused:
			return begun, Refuse("%s", begun.Result.Message)
		}
		a = begun
	}
	result, err := do(ctx, a)
	var no refusal
	switch {
	case err == nil:
		a.Outcome, a.Result = record.ActionDone, result
	case errors.As(err, &no):
		a, _ = refused(a, no)
	default:
		return a, err
	}
	if o.Store != nil {
		// Recorded even if the caller no longer waits for the answer.
		if failed := o.Store.EndAction(context.WithoutCancel(ctx), a.ID, a.Outcome, a.Result); failed != nil {
			return a, errors.Join(err, failed)
		}
	}
	return a, err
}

func refused(a record.Action, no error) (record.Action, error) {
	a.Outcome, a.Result = record.ActionRefused, record.ActionResult{Message: no.Error()}
	return a, no
}

func (o Operator) do(ctx context.Context, a record.Action) (record.ActionResult, error) {
	switch a.Name {
	case record.ActionPromote, record.ActionRollback, record.ActionPin, record.ActionUnpin:
		return o.move(ctx, a)
	case record.ActionRetry:
		return o.retry(ctx, a)
	case record.ActionStop:
		if a.Input.Now {
			return o.end(ctx, a)
		}
		return o.update(ctx, a)
	case record.ActionSet:
		if a.Input.Record != "" {
			return o.setRecording(ctx, a)
		}
		return o.update(ctx, a)
	case record.ActionPause, record.ActionResume, record.ActionApprove, record.ActionReject:
		return o.update(ctx, a)
	}
	return record.ActionResult{}, Refuse("there is no action %q", a.Name)
}

// setRecording sets what is recorded of a run's conversations, even if the run has ended.
// Setting it twice, because the process was killed in between, changes nothing.
func (o Operator) setRecording(ctx context.Context, a record.Action) (out record.ActionResult, err error) {
	if !slices.Contains(spec.Recordings(), a.Input.Record) {
		return out, Refuse("%s is %q: want %s", spec.KeyRecord, a.Input.Record, strings.Join(spec.Recordings(), ", "))
	}
	if o.Store == nil {
		return out, Refuse("%s is set in the store of the run, which is not known here: name it with --store", spec.KeyRecord)
	}
	err = o.Store.PutTrafficSetting(ctx, a.Run, a.Input.Record, a.By, a.Reason)
	switch {
	case errors.Is(err, record.ErrForgotten):
		return out, Refuse("%s", err)
	case errors.Is(err, record.ErrNotFound):
		return out, Refuse("there is no run of that name")
	case err != nil:
		return out, err
	}
	return record.ActionResult{Message: fmt.Sprintf("%s is %s from the next request on, set by %s", spec.KeyRecord, a.Input.Record, a.By)}, nil
}

// refusal is a refusal that does not change if the request is repeated.
type refusal struct {
	text string
	kind error // ErrNotUnderWay, or nothing
}

// Refuse returns an error that says why something is not done. It wraps ErrRefused.
func Refuse(format string, args ...any) error { return refusal{text: fmt.Sprintf(format, args...)} }

func (r refusal) Error() string { return r.text }

// Is reports that a refusal is ErrRefused, and also its kind.
func (r refusal) Is(target error) bool {
	return target == ErrRefused || r.kind != nil && target == r.kind
}

// inputOf returns the input of an action's Update.
func inputOf(a record.Action) any {
	switch a.Name {
	case record.ActionSet:
		return workflows.SetInput{By: a.By, Values: a.Input.Values}
	case record.ActionApprove, record.ActionReject:
		in := workflows.VerdictInput{By: a.By, Reason: a.Reason}
		if v := a.Input.Version; v != nil {
			in.Version = *v
		}
		return in
	}
	return workflows.ControlInput{By: a.By, Reason: a.Reason}
}

// update sends the action to the run's workflow, as the Update with the action's name.
func (o Operator) update(ctx context.Context, a record.Action) (out record.ActionResult, err error) {
	c, _, done, err := o.Dial(ctx)
	if err != nil {
		return out, err
	}
	defer done()
	limit := cmp.Or(o.Timeout, answerTimeout)
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var r workflows.UpdateResult
	handle, err := c.UpdateWorkflow(limited, client.UpdateWorkflowOptions{
		UpdateID: a.ID, WorkflowID: a.Run, UpdateName: string(a.Name), Args: []any{inputOf(a)}, WaitForStage: client.WorkflowUpdateStageCompleted,
	})
	if err == nil {
		err = handle.Get(limited, &r)
	}
	var refused *temporal.ApplicationError
	var unknown *serviceerror.NotFound
	switch {
	case err == nil:
		return record.ActionResult{Message: r.Message, Step: r.Step}, nil
	case errors.As(err, &refused):
		return out, Refuse("%s", refused.Message())
	case errors.As(err, &unknown):
		return out, refusal{"it is not under way", ErrNotUnderWay}
	case ctx.Err() == nil && errors.Is(limited.Err(), context.DeadlineExceeded):
		return out, fmt.Errorf("%w within %s: is there a worker for it?", ErrNoAnswer, limit)
	}
	return out, err
}

// The waits of end for a run that was asked to end.
const (
	endTimeout = 15 * time.Second
	endPoll    = 200 * time.Millisecond
)

// end ends a run at once, whatever it waits for. It cancels the run's workflow, which then
// closes the record. If nothing does that in time, for example because no worker is there,
// it terminates the workflow; the record is closed when a worker or a command next looks.
func (o Operator) end(ctx context.Context, a record.Action) (out record.ActionResult, err error) {
	c, _, done, err := o.Dial(ctx)
	if err != nil {
		return out, err
	}
	defer done()
	var unknown *serviceerror.NotFound
	ended := func() (bool, error) {
		d, err := c.DescribeWorkflowExecution(ctx, a.Run, "")
		if errors.As(err, &unknown) {
			return true, nil
		}
		if err != nil {
			return false, fmt.Errorf("describe workflow %s: %w", a.Run, err)
		}
		return d.WorkflowExecutionInfo.Status != enums.WORKFLOW_EXECUTION_STATUS_RUNNING, nil
	}
	before, err := ended()
	if before {
		return out, refusal{"it is not under way", ErrNotUnderWay}
	}
	if err == nil {
		err = c.CancelWorkflow(ctx, a.Run, "")
	}
	if err != nil {
		return out, fmt.Errorf("cancel workflow %s: %w", a.Run, err)
	}
	out.Message = "ended at once by " + a.By
	limit := time.NewTimer(cmp.Or(o.Timeout, endTimeout))
	defer limit.Stop()
	tick := time.NewTicker(endPoll)
	defer tick.Stop()
	for {
		if now, err := ended(); now || err != nil {
			return out, err
		}
		select {
		case <-ctx.Done():
			return out, ctx.Err()
		case <-tick.C:
			continue
		case <-limit.C:
		}
		reason := strings.TrimSuffix("stopped at once by "+a.By+": "+a.Reason, ": ")
		if err := c.TerminateWorkflow(ctx, a.Run, "", reason); err != nil && !errors.As(err, &unknown) {
			return out, fmt.Errorf("terminate workflow %s: %w", a.Run, err)
		}
		return out, nil
	}
}

// retry makes the run continue where it ended.
func (o Operator) retry(ctx context.Context, a record.Action) (out record.ActionResult, err error) {
	run, err := o.Store.Run(ctx, a.Run)
	if errors.Is(err, record.ErrForgotten) {
		return out, Refuse("%s", err)
	}
	if errors.Is(err, record.ErrNotFound) {
		return out, Refuse("there is no run of that name")
	}
	if err != nil {
		return out, err
	}
	c, namespace, done, err := o.Dial(ctx)
	if err != nil {
		return out, err
	}
	defer done()
	reason := "retried by " + a.By
	if a.Reason != "" {
		reason += ": " + a.Reason
	}
	retrier := runstate.Retrier{Client: c, Namespace: namespace, Store: o.Store}
	if len(a.Input.Values) > 0 {
		return o.retryWith(ctx, retrier, run, a)
	}
	execution, err := retrier.Retry(ctx, run, reason)
	if errors.Is(err, runstate.ErrNotRetried) {
		return out, Refuse("%s", err)
	}
	return record.ActionResult{Message: "it goes on, retried by " + a.By, Execution: execution}, err
}

// retryWith makes the run continue with other numbers for keys of its spec.
func (o Operator) retryWith(ctx context.Context, retrier runstate.Retrier, run record.Run, a record.Action) (out record.ActionResult, err error) {
	limit := cmp.Or(o.Timeout, answerTimeout)
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	execution, step, err := retrier.RetryWith(limited, run, a.ID, workflows.SetInput{By: a.By, Values: a.Input.Values})
	switch {
	case errors.Is(err, runstate.ErrNotRetried):
		return out, Refuse("%s", err)
	case err != nil && ctx.Err() == nil && errors.Is(limited.Err(), context.DeadlineExceeded):
		return out, fmt.Errorf("%w within %s: is there a worker for it?", ErrNoAnswer, limit)
	}
	return record.ActionResult{Message: fmt.Sprintf("it goes on with step %d, set and retried by %s", step, a.By), Step: step, Execution: execution}, err
}

// policy returns the policy whose versions an action moves the promoted pointer of. One of
// several policies has a pointer if each is promoted alone.
func (o Operator) policy(ctx context.Context, a record.Action) (string, error) {
	r, err := o.Store.Run(ctx, a.Run)
	if err != nil {
		return "", err
	}
	s, err := spec.Stored(r.Spec)
	names := s.PolicyNames()
	switch of := a.Input.Policy; {
	case of == "" && err == nil && s.Promotion.Alone:
		return "", Refuse("its policies are promoted one by one: name one, as in %s:%s", a.Run, names[0])
	case of == "":
		return promptsearch.PolicyOf(r), nil
	case err != nil:
		return "", fmt.Errorf("decode the spec of run %s: %w", a.Run, err)
	case !slices.Contains(names, of) && len(names) > 0:
		return "", Refuse("it has no policy %q: it has %s", of, strings.Join(names, ", "))
	case !slices.Contains(names, of):
		return "", Refuse("it has no policy %q, since it trains only one: leave :%s out", of, of)
	case !s.Promotion.Alone:
		return "", Refuse("its policies are promoted together: leave :%s out", of)
	}
	return a.Input.Policy, nil
}

// move moves the promoted pointer, even if the run has ended.
func (o Operator) move(ctx context.Context, a record.Action) (out record.ActionResult, err error) {
	policy, err := o.policy(ctx, a)
	if errors.Is(err, record.ErrNotFound) {
		return out, Refuse("there is no run of that name")
	}
	if err != nil {
		return out, err
	}
	m := mover{Store: o.Store, Run: a.Run, Policy: policy, By: a.By, ID: a.ID, Moves: a.Input.Moves}
	var p record.Promotion
	switch a.Name {
	case record.ActionPromote:
		p, err = m.Promote(ctx, *a.Input.Version, a.Reason)
	case record.ActionRollback:
		p, err = m.Rollback(ctx, a.Input.Version, a.Reason)
	case record.ActionPin:
		p, err = m.Pin(ctx, *a.Input.Version, a.Reason)
	default:
		p, err = m.Unpin(ctx, a.Reason)
	}
	switch {
	case errors.Is(err, record.ErrNotFound):
		return out, Refuse("there is no run of that name")
	case err != nil:
		return out, err
	}
	return record.ActionResult{Message: report.Move(p)}, nil
}
