package update

import (
	"errors"
	"fmt"

	"github.com/fulgurite/fulgurite/internal/shell"
	"github.com/fulgurite/fulgurite/model"
)

// InvalidError is an error that another try cannot fix: a person has to change something.
type InvalidError struct{ error }

// Unwrap returns the error without the mark.
func (e InvalidError) Unwrap() error { return e.error }

// Invalid marks err as an error that another try cannot fix. The mark stays, however err
// is wrapped afterwards.
func Invalid(err error) error { return InvalidError{err} }

// FinalError is an InvalidError that a retry of the run would meet again: the retry has the
// same spec and the same record, which are what is wrong.
type FinalError struct{ error }

// Unwrap returns the InvalidError.
func (e FinalError) Unwrap() error { return e.error }

// Final marks err as an error that neither another try nor a retry of the run can fix. Its
// text has to say what a person can do instead.
func Final(err error) error { return FinalError{Invalid(err)} }

// unreadable adds to err what a person can do. err came from reading an input of version
// id. The result is no InvalidError: restoring the blob fixes it, and until then the step
// waits visibly.
func unreadable(err error, id model.VersionID) error {
	remedy := "start the run again under another name"
	if id.Number > 0 {
		id.Number--
		remedy = fmt.Sprintf("start another run from the newest version that is whole, from %s on down (`%s`, then model.base: DIRECTORY)", id, shell.Command("export", id.String(), "DIRECTORY"))
	}
	return fmt.Errorf("%w; put a copy of the file back, and the run continues by itself; without one, %s", err, remedy)
}

// engineError marks err as an error that another try can't fix, unless the engine was
// lost: it then starts again. err came from an engine that got a model.
func engineError(err error) error {
	if errors.Is(err, model.ErrEngineLost) {
		return err
	}
	return Invalid(err)
}
