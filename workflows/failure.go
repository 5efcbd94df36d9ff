package workflows

import (
	"errors"

	"go.temporal.io/sdk/temporal"
)

// Reason says in words why a workflow failed: what went wrong, and in which activity
// of which child. What Temporal wraps around that is left out.
func Reason(err error) string {
	where, words := "", err.Error()
	for cause := err; cause != nil; cause = errors.Unwrap(cause) {
		switch e := cause.(type) { //nolint:errorlint // each error of the chain in turn
		case *temporal.ChildWorkflowExecutionError:
			where, words = "workflow "+e.WorkflowID(), e.Error()
		case *temporal.ActivityError:
			if where != "" {
				where = " of " + where
			}
			where, words = e.ActivityType().GetName()+where, e.Error()
		case *temporal.ApplicationError:
			words = e.Message()
		case *temporal.TimeoutError, *temporal.TerminatedError, *temporal.CanceledError, *temporal.PanicError:
			words = cause.Error()
		}
	}
	if where == "" {
		return words
	}
	return where + ": " + words
}
