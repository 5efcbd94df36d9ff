package doctor_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/doctor"
	"github.com/fulgurite/fulgurite/spec"
)

// The test parses and validates the spec in docs/gpu.md. The guide must start the same
// server that this command recommends.
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
			base := s.Model.Base
			s.Model.Base = modelWithMoreIDsThanTokens(t)
			command := doctor.ServeCommand(s, s.Sampling.Server.URLs[0])
			require.Contains(t, string(guide), strings.ReplaceAll(command, s.Model.Base, base))
		}
	}
}

// Documents start vLLM only with flags and variables that this command compares with a
// server's command line. Every flag and variable of the command that this program prints
// is documented.
func TestTheDocumentsStartVLLMAsThisCommandDoes(t *testing.T) {
	t.Parallel()
	word := regexp.MustCompile(`VLLM_[A-Z_]+|--[a-z][a-z-]+`)
	documented := map[string]bool{}
	for _, name := range []string{"gpu.md", "samplers.md"} {
		text, err := os.ReadFile("../../../../docs/" + name)
		require.NoError(t, err)
		for line := range strings.Lines(string(text)) {
			if !strings.Contains(line, "vllm serve") {
				continue
			}
			for _, w := range word.FindAllString(line, -1) {
				documented[w] = true
				if !strings.HasPrefix(w, "VLLM_") {
					require.Contains(t, doctor.VLLMFlags(), w, "%s: %s", name, line)
				}
			}
		}
	}
	s := adapters("http://127.0.0.1:8004")
	s.Sampling.Server.ShareGPU = true
	for _, w := range word.FindAllString(doctor.ServeCommand(s, s.Sampling.Server.URLs[0]), -1) {
		require.Contains(t, documented, w)
	}
}
