package golden_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/internal/golden"
)

func TestWhatDiffersFromRunToRunIsReplaced(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"began 2026-01-02 03:04:05 +02:00, took 1.2 s":                    "began TIME, took DURATION\n",
		"2026-01-02T03:04:05Z":                                            "TIME\n",
		"12:00:01.5 12:00:02.5 at most":                                   "TIME at most\n",
		"under 1 ms, 3 min 20 s, 60 steps":                                "DURATION, DURATION, 60 steps\n",
		"http://127.0.0.1:45321/v1 and 127.0.0.1:1":                       "http://127.0.0.1:PORT/v1 and 127.0.0.1:1\n",
		"  its agents are isolated: agent.sandbox: process":               "  its agents are ISOLATION\n",
		"Agents are not isolated: this machine can't so":                  "Agents are ISOLATION\n",
		"Agents are not isolated: agent.directory, /tmp/a, lies below it": "Agents are ISOLATION\n",
		"Agents are not isolated: the spec says so":                       "Agents are not isolated: the spec says so\n",
		"in /tmp/a/b of /tmp/a\n\n":                                       "in DIR/b of DIR\n",
		"reward 0.500 ± 0.125, version 3, 5 samples":                      "reward 0.500 ± 0.125, version 3, 5 samples\n",
	} {
		require.Equal(t, want, golden.Steady(text, "/tmp/a"))
	}
}

// observed is a test that fails without ending the test around it.
type observed struct {
	testing.TB
	failed int
}

func (o *observed) Helper() {}

func (o *observed) Errorf(string, ...any) { o.failed++ }

func TestAnotherTextThanTheFileFails(t *testing.T) {
	t.Parallel()
	if golden.Updating() {
		t.Skip("with -update nothing is compared")
	}
	path := filepath.Join(t.TempDir(), "view.txt")
	require.NoError(t, os.WriteFile(path, []byte("step 1 of 2\n"), 0o644))
	o := &observed{TB: t}
	golden.File(o, path, "step 1 of 2\n")
	require.Zero(t, o.failed)
	golden.File(o, path, "step 2 of 2\n")
	require.Equal(t, 1, o.failed)
}
