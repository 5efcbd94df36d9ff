package main

import (
	"context"
	"errors"
	"time"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"

	"github.com/fulgurite/fulgurite/internal/progress"
)

const (
	// askWithin bounds one question to a run.
	askWithin = 3 * time.Second
	// reachWithin is how long Temporal may take to answer at all. It is away if it
	// does not twice in a row.
	reachWithin = time.Second
)

// absence tells who follows a run that Temporal is away, and when it is back.
type absence struct {
	remedy string
	// space says that there is none where the state lies; nil where it lies elsewhere.
	space  func() (text string, full bool)
	missed int
	said   bool
	full   bool
}

// note takes what came of a question.
func (a *absence) note(ctx context.Context, c client.Client, asked error, d *progress.Display) {
	if a.space != nil {
		text, full := a.space()
		if full && !a.full {
			d.Println(text)
		}
		a.full = full
	}
	if asked != nil && !a.full && !reachable(ctx, c) {
		a.missed++
		if a.missed > 1 && !a.said && ctx.Err() == nil {
			a.said = true
			d.Println("the stack is away, waiting" + a.remedy)
		}
		return
	}
	if a.said {
		d.Println("the stack is back")
	}
	a.missed, a.said = 0, false
}

// reachable says whether Temporal answers, whatever is the matter with the run.
func reachable(ctx context.Context, c client.Client) bool {
	ctx, cancel := context.WithTimeout(ctx, reachWithin)
	defer cancel()
	_, err := c.WorkflowService().GetSystemInfo(ctx, &workflowservice.GetSystemInfoRequest{})
	return err == nil
}

// outlast repeats what fails because Temporal is away.
func outlast(ctx context.Context, ask func() error) error {
	for {
		err := ask()
		var away *serviceerror.Unavailable
		if !errors.As(err, &away) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pollEvery):
		}
	}
}
