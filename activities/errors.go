package activities

import (
	"errors"

	"go.temporal.io/sdk/temporal"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/update"
)

// invalid marks err as an error that another try cannot mend, however it is wrapped on
// its way out of the activity.
func invalid(err error) error { return update.Invalid(err) }

// temporalError turns an invalid error into a non-retryable error of Temporal. Every
// activity that can meet an invalid error defers it: Temporal decides by the
// outermost error alone whether to try again, so the mark has to be outermost. It
// gets no cause, or Temporal would repeat the same words for each wrapping.
func temporalError(err *error) {
	var mark update.InvalidError
	if errors.As(*err, &mark) {
		*err = temporal.NewNonRetryableApplicationError((*err).Error(), ErrTypeInvalid, nil)
	}
}

// named finds a codec. An unknown codec ends the run; a codec of the store that can't be
// read now is read later.
func (c Codecs) named(name string) (dialog.Codec, error) {
	codec, err := c(name)
	if errors.Is(err, dialog.ErrCodec) {
		err = invalid(err)
	}
	return codec, err
}
