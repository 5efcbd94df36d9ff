package forwarder_test

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fulgurite/fulgurite/record"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testTimeout is the longest that a test waits for what must happen.
const testTimeout = 30 * time.Second

func address(run string) record.Address {
	return record.Address{RolloutID: record.RolloutID{Run: run, Kind: record.Train, Step: 3, Task: 17, Sample: 2}, Attempt: 1}
}
