package training

import (
	"context"
	"errors"
	"time"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/progress"
)

const (
	// queryTimeout bounds one question to a run.
	queryTimeout = 3 * time.Second
	// reachTimeout is how long Temporal may take to answer at all. It counts as away once it
	// has not answered twice in a row.
	reachTimeout = time.Second
)

// outage tells the user who follows a run when Temporal is away and when it is back.
type outage struct {
	remedy string
	// space reports that no disk space is left for the state. It is nil if the state is
	// on another machine.
	space    func() (text string, full bool)
	missed   int
	reported bool
	full     bool
}

// note takes the error of a query, which is nil if the query was answered.
func (o *outage) note(ctx context.Context, c client.Client, asked error, d *progress.Display) {
	if o.space != nil {
		text, full := o.space()
		if full && !o.full {
			d.Println(text)
		}
		o.full = full
	}
	if asked != nil && !o.full && !reachable(ctx, c) {
		o.missed++
		if o.missed > 1 && !o.reported && ctx.Err() == nil {
			o.reported = true
			d.Println("the stack does not answer, waiting" + o.remedy)
		}
		return
	}
	if o.reported {
		d.Println("the stack is back")
	}
	o.missed, o.reported = 0, false
}

// reachable reports whether Temporal answers, regardless of the run's state.
func reachable(ctx context.Context, c client.Client) bool {
	ctx, cancel := context.WithTimeout(ctx, reachTimeout)
	defer cancel()
	_, err := c.WorkflowService().GetSystemInfo(ctx, &workflowservice.GetSystemInfoRequest{})
	return err == nil
}

// away reports whether an error says that Temporal does not answer: it can't be reached, or
// a connection that is still open got no answer in time. ctx is the caller's.
func away(ctx context.Context, err error) bool {
	var unavailable *serviceerror.Unavailable
	var late *serviceerror.DeadlineExceeded
	return errors.As(err, &unavailable) || ctx.Err() == nil && (errors.As(err, &late) || errors.Is(err, context.DeadlineExceeded))
}

// retryUnavailable repeats a call that fails because Temporal is away.
func retryUnavailable(ctx context.Context, ask func() error) error {
	for {
		err := ask()
		if !away(ctx, err) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pollEvery):
		}
	}
}
