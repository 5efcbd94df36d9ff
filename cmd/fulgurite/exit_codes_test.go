package main

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/terminal"
	"github.com/fulgurite/fulgurite/store"
)

// exitOf runs a command line, and returns its exit code and what it wrote.
func exitOf(t *testing.T, args ...string) (code int, text string) {
	t.Helper()
	var out bytes.Buffer
	code = run(t.Context(), args, &terminal.Terminal{Out: &out, Err: &out})
	return code, out.String()
}

// line returns a command line for a command. Each argument that names something names what
// is not there. It is nil if no argument does.
func line(name string, leaf *kong.Node) []string {
	words, names := strings.Fields(name), false
	for _, argument := range leaf.Positional {
		switch {
		case argument.Name == "run", argument.Name == "attempt":
			words, names = append(words, "none"), true
		case argument.Name == "version" && argument.IsCounter(), argument.Name == "version" && argument.Target.CanInt():
			words = append(words, "1")
		case argument.Name == "version", argument.Name == "a", argument.Name == "b":
			words, names = append(words, "none@1"), true
		case argument.Name == "spec":
			words, names = append(words, "none.yaml"), true
		case argument.Name == "file":
			words = append(words, "out.jsonl")
		case argument.Name == "key=number":
			words = append(words, "training.optimizer.learning_rate=1")
		case argument.Required:
			words = append(words, "none")
		}
	}
	if !names || leaf.Hidden {
		return nil
	}
	return words
}

// Whatever a command is, it ends with 2 if the run, the version, the attempt or the file
// that it is about is not there, and says what is not.
func TestWhatIsNotThereHasOneExitCode(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	s, err := store.Open(t.Context(), filepath.Join(dir, "state", "fulgurite.db"), nil)
	require.NoError(t, err)
	require.NoError(t, s.Migrate(t.Context()))
	require.NoError(t, s.Close())
	checked := 0
	for name, leaf := range leaves() {
		words := line(name, leaf)
		if words == nil {
			continue
		}
		checked++
		for _, state := range []string{"state", "nowhere"} {
			code, text := exitOf(t, append(words, "--dir", filepath.Join(dir, state))...)
			require.Equal(t, exitUsage, code, "%v in %s: %s", words, state, text)
			require.Regexp(t, "not found|no such|no runs in|there is no", text, words)
		}
		code, text := exitOf(t, append(words, "--nonsense")...)
		require.Equal(t, exitUsage, code, text)
	}
	require.Greater(t, checked, 20)
}
