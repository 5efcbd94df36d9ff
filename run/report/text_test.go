package report_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/run/report"
	"github.com/fulgurite/fulgurite/spec"
)

func TestWhatIsolatesAgentsIsSaidInWords(t *testing.T) {
	t.Parallel()
	id := "sha256:" + strings.Repeat("0", 64)
	for want, a := range map[string]spec.Agent{
		"isolated: agent.sandbox: container (podman, image localhost/agent:1, " + id + ")": {Sandbox: spec.SandboxContainer, Image: "localhost/agent:1", ImageID: id},
		"isolated: agent.sandbox: process":                                                 {Sandbox: spec.SandboxProcess},
		"not isolated: the spec says agent.sandbox: none":                                  {Sandbox: spec.SandboxNone},
		"not isolated: this machine can't":                                                 {Sandbox: spec.SandboxNone, SandboxReason: "this machine can't"},
	} {
		a.Command = []string{"agent"}
		require.Equal(t, want, report.IsolationText(a.Isolation()))
	}
}

func TestCollectedVersionsAreListedInRanges(t *testing.T) {
	t.Parallel()
	require.Empty(t, report.CollectedText(nil))
	for want, versions := range map[string][]int{
		"7":           {7},
		"1–2":         {1, 2},
		"1–3, 5, 7–9": {1, 2, 3, 5, 7, 8, 9},
	} {
		text := report.CollectedText(versions)
		require.True(t, strings.HasSuffix(text, ": "+want), text)
	}
}
