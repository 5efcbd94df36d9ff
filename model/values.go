package model

import (
	"errors"
	"fmt"
)

// ValuesFormat names the layout of a critic's values; docs/formats.md describes
// it, model/files/hf reads and writes it.
const ValuesFormat = "fulgurite.values/1"

// ErrValues is wrapped by every error of Values.Check.
var ErrValues = errors.New("bad values")

// Values holds numbers of a model for each token that the attempts of a step sampled. For
// a critic they are its estimates. They are written once and named by their digest. The
// advantages of a step are computed from them, and so are the returns on which the critic
// is then trained.
type Values struct {
	Policy  string `json:"policy"`  // the critic's
	Version int    `json:"version"` // of the critic
	// Calls[i][j][k] is the return expected of trajectory i just before token k of
	// the completion of its call j.
	Calls [][][]float32 `json:"-"` // arrays, not JSON
}

// Check returns an error, naming the token, for values that no critic could have written.
func (v Values) Check() error {
	if v.Policy == "" {
		return fmt.Errorf("%w: policy is empty", ErrValues)
	}
	if v.Version < 0 {
		return fmt.Errorf("%w: version is %d", ErrValues, v.Version)
	}
	for i, calls := range v.Calls {
		for j, tokens := range calls {
			for k, x := range tokens {
				if !finite(float64(x)) {
					return fmt.Errorf("%w: trajectory %d call %d token %d is %v", ErrValues, i, j, k, x)
				}
			}
		}
	}
	return nil
}
