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
	var documents []string
	for i, part := range strings.Split(string(guide), "```yaml\n") {
		if i > 0 {
			text, _, _ := strings.Cut(part, "```")
			documents = append(documents, text)
		}
	}
	require.Len(t, documents, 2)
	served := strings.ReplaceAll(documents[0], "sampling: { max_tokens: 256 }\n", documents[1])
	require.NotEqual(t, documents[0], served)
	for _, text := range []string{documents[0], served} {
		s, err := spec.Parse([]byte(text), "docs/gpu.md")
		require.NoError(t, err)
		s = s.WithDefaults()
		require.NoError(t, s.Validate())
		require.NoError(t, s.Trainable())
		if s.Sampling.Server != nil {
			require.Contains(t, string(guide), doctor.ServeCommand(s, s.Sampling.Server.URLs[0]))
		}
	}
}
