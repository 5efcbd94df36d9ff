package pageserver

import (
	"context"
	"fmt"
	"time"

	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"

	"github.com/fulgurite/fulgurite/page/actions"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/operator"
)

// Operate has the code of the commands by which the page acts.
type Operate struct {
	operator.Operator
	live *live
}

func newOperate(l *live) Operate {
	o := Operate{live: l}
	o.Operator = operator.Operator{Store: l.records.Store, Dial: func(ctx context.Context) (client.Client, string, func(), error) {
		c, err := l.reach(ctx)
		return c.Client, c.Namespace, func() {}, err // others use the connection too
	}}
	return o
}

// reachTimeout is how long Temporal may take to answer at all.
const reachTimeout = 2 * time.Second

// Reach implements actions.Operator.
func (o Operate) Reach(ctx context.Context) error {
	c, err := o.live.reach(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, reachTimeout)
	defer cancel()
	if _, err := c.WorkflowService().GetSystemInfo(ctx, &workflowservice.GetSystemInfoRequest{}); err != nil {
		return fmt.Errorf("Temporal does not answer: %w", err)
	}
	return nil
}

// Act implements actions.Operator. If Temporal can't be reached, it refuses the action at
// once instead of waiting.
func (o Operate) Act(ctx context.Context, a record.Action) (record.Action, error) {
	if !actions.MovesPointer(a.Name) {
		if err := o.Reach(ctx); err != nil {
			a.Outcome, a.Result.Message = record.ActionRefused, fmt.Sprintf("nothing was done: %v", err)
			return a, err
		}
	}
	return o.Operator.Act(ctx, a)
}

// Temporal returns the connection that the page uses. The caller must not close it.
func (o Operate) Temporal(ctx context.Context) (client.Client, error) {
	c, err := o.live.reach(ctx)
	return c.Client, err
}
