package training

import (
	"context"
	"errors"

	"go.temporal.io/sdk/client"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/terminal"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/operator"
	"github.com/fulgurite/fulgurite/spec"
)

// StartRecorded starts a run as Start does, for a person, and records the action if o has
// a store. If the run can't be started because of its spec or its name, the action is
// refused.
func StartRecorded(ctx context.Context, c client.Client, o operator.Operator, a record.Action, s spec.Spec) (client.WorkflowRun, record.Action, error) {
	a.Name, a.Input.Digest = record.ActionStart, spec.Digest(s)
	var run client.WorkflowRun
	a, err := o.Record(ctx, a, func(ctx context.Context, a record.Action) (out record.ActionResult, err error) {
		run, err = Start(ctx, c, a.Run, s)
		var usage terminal.UsageError
		if errors.As(err, &usage) {
			return out, operator.Refuse("%s", err)
		}
		return record.ActionResult{Message: "started by " + a.By}, err
	})
	if err == nil && run == nil { // it was started before
		run = c.GetWorkflow(ctx, a.Run, "")
	}
	return run, a, err
}
