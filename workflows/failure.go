package workflows

import (
	"errors"

	"go.temporal.io/sdk/temporal"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/record"
)

// Reason says in words why a workflow failed: what went wrong, and in which activity
// of which child. The words that Temporal wraps around it are left out.
func Reason(err error) string {
	where, words := failure(err)
	if where == "" {
		return words
	}
	return where + ": " + words
}

// Failure returns the result of a run that ended with an error.
func Failure(err error) record.Failure {
	var application *temporal.ApplicationError
	last := errors.As(err, &application) && application.Type() == activities.ErrTypeFinal
	return record.Failure{Error: Reason(err), Detail: err.Error(), Final: last}
}

// failure separates the error of a workflow into the activity and the child that
// failed, and what went wrong there.
func failure(err error) (where, words string) {
	words = err.Error()
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
	return where, words
}
