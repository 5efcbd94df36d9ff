package activities

import (
	"go.temporal.io/sdk/temporal"
)

// invalid marks err as one that trying again cannot mend.
func invalid(err error) error {
	return temporal.NewNonRetryableApplicationError(err.Error(), ErrTypeInvalid, err)
}
