package testsuite_test

import (
	"os"
	"testing"

	"github.com/fulgurite/fulgurite/agent"
)

// TestMain lets this binary be the shim of agents, and the process that crash
// tests kill.
func TestMain(m *testing.M) {
	agent.ShimMain()
	if dir := os.Getenv(victimVariable); dir != "" {
		os.Exit(victim(dir))
	}
	os.Exit(m.Run())
}
