package doctor_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/doctor"
	"github.com/fulgurite/fulgurite/spec"
)

// The spec of docs/gpu.md is one, and the server that the guide starts is the one that
// this command asks for.
func TestTheGuideToAGPUHolds(t *testing.T) {
	t.Parallel()
	guide, err := os.ReadFile("../../../../docs/gpu.md")
	require.NoError(t, err)
	_, text, found := strings.Cut(string(guide), "```yaml\n")
	require.True(t, found)
	text, _, _ = strings.Cut(text, "```")
	s, err := spec.Parse([]byte(text), "docs/gpu.md")
	require.NoError(t, err)
	s = s.WithDefaults()
	require.NoError(t, s.Validate())
	require.NoError(t, s.Trainable())
	require.Contains(t, string(guide), doctor.ServeCommand(s, s.Sampling.Server.URLs[0]))
}
