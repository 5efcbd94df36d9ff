package activities

import (
	"errors"

	"go.temporal.io/sdk/temporal"

	"github.com/fulgurite/fulgurite/dialog"
)

// invalidError is an error that trying again cannot mend.
type invalidError struct{ error }

func (e invalidError) Unwrap() error { return e.error }

// invalid marks err as one that trying again cannot mend, however it is wrapped
// on its way out of the activity.
func invalid(err error) error { return invalidError{err} }

// settle makes the error of an activity one that Temporal understands. Every
// activity that can meet an invalid error defers it: Temporal decides by the
// outermost error alone whether to try again, so the mark has to be outermost. It
// gets no cause, or Temporal would say the same words again for each wrapping.
func settle(err *error) {
	var mark invalidError
	if errors.As(*err, &mark) {
		*err = temporal.NewNonRetryableApplicationError((*err).Error(), ErrTypeInvalid, nil)
	}
}

// named finds a codec. One that there is no such thing as ends the run; one that the
// store holds and can't be read now is there later.
func (c Codecs) named(name string) (dialog.Codec, error) {
	codec, err := c(name)
	if errors.Is(err, dialog.ErrCodec) {
		err = invalid(err)
	}
	return codec, err
}
