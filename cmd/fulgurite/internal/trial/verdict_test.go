package trial

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
)

func TestATrialSaysThatAgentsThatFailedWereIsolated(t *testing.T) {
	t.Parallel()
	failed, completed := attempt{Outcome: record.AgentFailed, Error: "exit code 1"}, attempt{Outcome: record.OutcomeCompleted}
	for _, c := range []struct {
		isolation string
		attempts  []attempt
		says      bool
	}{
		{spec.SandboxProcess, []attempt{failed, completed}, true},
		{spec.SandboxNone, []attempt{failed, completed}, false},
		{spec.SandboxProcess, []attempt{completed}, false},
		{"", []attempt{failed}, false},
	} {
		v := verdict{trialReader: &trialReader{}, report: &report{Isolation: c.isolation, Attempts: c.attempts}}
		require.NoError(t, v.conclude())
		require.Equal(t, c.says, strings.Contains(strings.Join(v.Warnings, "\n"), "agents that failed were isolated"), "%+v", c)
	}
}
