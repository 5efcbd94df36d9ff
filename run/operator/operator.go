package operator

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"go.temporal.io/sdk/client"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/runstate"
	"github.com/fulgurite/fulgurite/trace"
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
	Evaluations(ctx context.Context, run string) ([]record.Evaluation, error)
	Promotions(ctx context.Context, run, policy string) ([]record.Promotion, error)
	Promote(ctx context.Context, p record.Promotion) error
	ForgetQuarantines(ctx context.Context, run string) error
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
		if errors.Is(err, trace.ErrConflict) {
			return refused(a, Refuse("a request with this id but other contents was done before: send it with a new id"))
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
	case record.ActionPause, record.ActionResume, record.ActionSet, record.ActionApprove, record.ActionReject:
		return o.update(ctx, a)
	}
	return record.ActionResult{}, Refuse("there is no action %q", a.Name)
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
