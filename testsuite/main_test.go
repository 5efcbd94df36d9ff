package testsuite_test

import (
	"os"
	"testing"

	"github.com/fulgurite/fulgurite/agent"
)

// skipShort skips what is tested without the race detector alone (make race): it would
// take minutes there and shows nothing of goroutines that no other test does.
func skipShort(t *testing.T, why string) {
	t.Helper()
	if testing.Short() {
		t.Skip(why)
	}
}

// TestMain lets this binary be the shim of agents, an agent that is a program,
// and the process that crash tests kill.
func TestMain(m *testing.M) {
	agent.ShimMain()
	if os.Getenv(agentVariable) != "" {
		os.Exit(commandAgent())
	}
	if dir := os.Getenv(victimVariable); dir != "" {
		os.Exit(victim(dir))
	}
	code := m.Run()
	if sharedTorch.Engine != nil {
		sharedTorch.Close()
	}
	os.Exit(code)
}
