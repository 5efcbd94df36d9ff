package testsuite_test

import (
	"flag"
	"fmt"
	"os"
	"testing"
)

// skipShort skips a test in short mode, which is used with the race detector (make race).
// Such a test would take minutes there, and other tests use the same goroutines.
func skipShort(t *testing.T, why string) {
	t.Helper()
	if testing.Short() {
		t.Skip(why)
	}
}

// everyKind has the tests show of each kind of run what they otherwise show of one.
var everyKind = flag.Bool("every-kind", false, "show of each kind of run what is otherwise shown of one (.ci/nightly kinds)")

// skipKind skips a test without -every-kind. Another kind of run, which the reason names,
// then shows the same.
func skipKind(t *testing.T, why string) {
	t.Helper()
	if !*everyKind {
		t.Skip(why)
	}
}

// TestMain lets this binary also run as the shim of agents, as an agent that is a
// program, and as the process that crash tests kill.
func TestMain(m *testing.M) {
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
