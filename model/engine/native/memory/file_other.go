//go:build !linux && !darwin

package memory

import (
	"errors"
	"os"
	"time"
)

// MapsFiles reports whether this system supports MapFile.
const MapsFiles = false

// MapFile is not supported on this system.
func MapFile(*os.File, int, int) (*Floats, error) { return nil, errors.ErrUnsupported }

// Free is not supported on this system.
func Free(string) (int64, error) { return 0, errors.ErrUnsupported }

// Lock is not supported on this system.
func Lock(*os.File, time.Duration) error { return errors.ErrUnsupported }
