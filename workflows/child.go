package workflows

import (
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"
)

// Between looks at whether a child of an earlier execution has ended.
const (
	firstLook = time.Second
	longLook  = 30 * time.Second
)

// onceFree starts a child again for as long as another workflow has its id: a child
// that an execution before a reset started, and that the reset left running. What
// that one does is on record, so that nothing is done twice when the id is free.
func onceFree(ctx workflow.Context, child func() error) error {
	for wait := firstLook; ; wait = min(2*wait, longLook) {
		err := child()
		if !temporal.IsWorkflowExecutionAlreadyStartedError(err) {
			return err
		}
		if err := workflow.Sleep(ctx, wait); err != nil {
			return err
		}
	}
}
