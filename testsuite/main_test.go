package testsuite_test

import (
	"os"
	"testing"

	"github.com/fulgurite/fulgurite/agent"
)

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
	os.Exit(m.Run())
}
