package native_test

import (
	"testing"

	"go.uber.org/goleak"
)

// Every trainer and decoder of these tests is closed; none may leave a goroutine.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
