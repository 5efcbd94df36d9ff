package testsuite_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/fulgurite/fulgurite/agent"
)

// skipShort skips a test in short mode, which is used with the race detector (make race).
// Such a test would take minutes there, and other tests use the same goroutines.
func skipShort(t *testing.T, why string) {
	t.Helper()
	if testing.Short() {
		t.Skip(why)
	}
}

// TestMain lets this binary also run as the shim of agents, as an agent that is a
// program, and as the process that crash tests kill.
func TestMain(m *testing.M) {
	agent.ShimMain()
	if os.Getenv(agentVariable) != "" {
		os.Exit(commandAgent())
	}
	if dir := os.Getenv(victimVariable); dir != "" {
		os.Exit(victim(dir))
	}
	code := m.Run()
	if err := closeSharedStack(); err != nil {
		fmt.Fprintln(os.Stderr, "close the shared stack:", err)
		code = max(code, 1)
	}
	if sharedTorch.Engine != nil {
		sharedTorch.Close()
	}
	os.Exit(code)
}
