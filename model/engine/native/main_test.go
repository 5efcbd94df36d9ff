package native_test

import (
	"testing"

	"go.uber.org/goleak"
)

// Every trainer and decoder of these tests is closed; no goroutine may remain.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
