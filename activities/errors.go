package activities

import (
	"errors"

	"go.temporal.io/sdk/temporal"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/update"
)

// invalid marks err as an error that another try cannot fix. The mark stays, however err
// is wrapped on its way out of the activity.
func invalid(err error) error { return update.Invalid(err) }

// permanent reports whether err is one that another try can't fix.
func permanent(err error) bool {
	var mark update.InvalidError
	return errors.As(err, &mark)
}

// temporalError turns an invalid error into a non-retryable error of Temporal. Every
// activity that can get an invalid error defers it. Only the outermost error decides
// whether Temporal tries again, so the mark has to be outermost. The new error has no
// cause: with a cause, Temporal would repeat the same words for each wrapping.
func temporalError(err *error) {
	if permanent(*err) {
		kind := ErrTypeInvalid
		var last update.FinalError
		if errors.As(*err, &last) {
			kind = ErrTypeFinal
		}
		*err = temporal.NewNonRetryableApplicationError((*err).Error(), kind, nil)
	}
}

// named returns a codec by its name. An unknown codec ends the run. If a codec of the
// store can't be read now, it is read again later.
func (c Codecs) named(name string) (dialog.Codec, error) {
	codec, err := c(name)
	if errors.Is(err, dialog.ErrCodec) {
		err = invalid(err)
	}
	return codec, err
}
