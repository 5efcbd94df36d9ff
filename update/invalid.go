package update

import (
	"errors"
	"fmt"

	"github.com/fulgurite/fulgurite/model"
)

// InvalidError is an error that trying again cannot mend: a person has to change
// something.
type InvalidError struct{ error }

// Unwrap returns the error without the mark.
func (e InvalidError) Unwrap() error { return e.error }

// Invalid marks err as one that trying again cannot mend, however it is wrapped
// afterwards.
func Invalid(err error) error { return InvalidError{err} }

// unreadable adds to err, which came from reading an input of version id, what a person
// can do. It is no InvalidError: restoring the blob mends it, and until then the step
// waits visibly.
func unreadable(err error, id model.VersionID) error {
	remedy := "start the run again under another name"
	if id.Number > 0 {
		id.Number--
		remedy = fmt.Sprintf("start another run from the newest version that is whole, from %s on down (fulgurite export, then model.base)", id)
	}
	return fmt.Errorf("%w; put a copy of the file back, and it goes on by itself; without one, %s", err, remedy)
}

// engineError marks err, met when an engine was given a model, as one that trying again
// can't mend, unless the engine was lost: it then starts again.
func engineError(err error) error {
	if errors.Is(err, model.ErrEngineLost) {
		return err
	}
	return Invalid(err)
}
