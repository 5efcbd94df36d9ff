package update

import (
	"errors"
	"fmt"

	"github.com/fulgurite/fulgurite/model"
)

// InvalidError is an error that another try cannot fix: a person has to change something.
type InvalidError struct{ error }

// Unwrap returns the error without the mark.
func (e InvalidError) Unwrap() error { return e.error }

// Invalid marks err as an error that another try cannot fix. The mark stays, however err
// is wrapped afterwards.
func Invalid(err error) error { return InvalidError{err} }

// unreadable adds to err what a person can do. err came from reading an input of version
// id. The result is no InvalidError: restoring the blob fixes it, and until then the step
// waits visibly.
func unreadable(err error, id model.VersionID) error {
	remedy := "start the run again under another name"
	if id.Number > 0 {
		id.Number--
		remedy = fmt.Sprintf("start another run from the newest version that is whole, from %s on down (fulgurite export, then model.base)", id)
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
