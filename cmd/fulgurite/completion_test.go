package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/store"
	"github.com/fulgurite/fulgurite/workers/stack"
)

// completed returns the words that the program offers for the last word of a line.
func completed(t *testing.T, line ...string) []string {
	t.Helper()
	code, text := exitOf(t, append([]string{"complete"}, line...)...)
	require.Zero(t, code, text)
	var out []string
	for _, one := range strings.Split(strings.TrimSpace(text), "\n") {
		word, _, _ := strings.Cut(one, "\t")
		out = append(out, word)
	}
	return out
}

// withRun makes a directory with a run on record.
func withRun(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	s, err := store.Open(t.Context(), stack.Layout(dir).Database(), nil)
	require.NoError(t, err)
	require.NoError(t, s.Migrate(t.Context()))
	_, _, err = s.CreateRun(t.Context(), record.Run{Name: "small", WorkflowID: "small", ExecutionID: "e", Spec: []byte("{}"), Status: record.Running})
	require.NoError(t, err)
	require.NoError(t, s.Close())
	return dir
}

func TestWordsAreCompleted(t *testing.T) {
	t.Parallel()
	dir := withRun(t)
	require.Subset(t, completed(t, ""), []string{"train", "status", "help"})
	require.NotContains(t, completed(t, ""), "complete")
	require.Equal(t, []string{"status"}, completed(t, "stat"))
	require.Equal(t, []string{"create", "list", "revoke"}, completed(t, "token", ""))
	require.Equal(t, []string{"--json"}, completed(t, "status", "small", "--js"))
	require.Equal(t, []string{"hf", "merged", "peft", "gguf"}, completed(t, "export", "small", "out", "--format", ""))
	require.Equal(t, []string{"bash", "zsh", "fish"}, completed(t, "completion", ""))
	require.Equal(t, []string{"small"}, completed(t, "status", "--dir", dir, ""))
	require.Equal(t, []string{"small"}, completed(t, "--dir="+dir, "export", "s"))
	require.Equal(t, []string{"small@promoted"}, completed(t, "chat", "--dir", dir, "small@p"))
	require.Equal(t, []string{"list"}, completed(t, "help", "token", "l"))
	require.Equal(t, []string{""}, completed(t, "train", ""), "the shell completes files")
	require.Equal(t, []string{""}, completed(t, "status", "--dir", t.TempDir(), ""))
}

// The script of each shell is read by that shell, if it is here, and offers what the
// program offers.
func TestShellsComplete(t *testing.T) {
	t.Parallel()
	bin, dir := t.TempDir(), withRun(t)
	program, err := os.Executable()
	require.NoError(t, err)
	wrapper := "#!/bin/sh\nexport " + toolVariable + "=\"$(printf '%s\\n' \"$@\"; printf x)\"\nexport " + toolVariable + "=\"${" + toolVariable + "%?x}\"\nexec " + program + "\n"
	require.NoError(t, os.WriteFile(filepath.Join(bin, "fulgurite"), []byte(wrapper), 0o755))
	asked := map[string]string{
		"bash": `source <(fulgurite completion bash)
ask() { COMP_LINE="$1" COMP_POINT=${#1} COMP_WORDBREAKS=' @='; _fulgurite; printf '%s\n' "${COMPREPLY[@]}"; }
ask 'fulgurite stat'; ask 'fulgurite chat small@prom'; ask 'fulgurite status '`,
		"zsh": `compdef() { : }
source <(fulgurite completion zsh)
_describe() { print -l -- "${(@)found%%:*}" }
ask() { words=("$@"); CURRENT=$#; _fulgurite }
ask fulgurite stat; ask fulgurite chat small@prom; ask fulgurite status ''`,
		"fish": `fulgurite completion fish | source
complete -C 'fulgurite stat'; complete -C 'fulgurite chat small@prom'; complete -C 'fulgurite status '`,
	}
	for shell, script := range asked {
		path, err := exec.LookPath(shell)
		if err != nil {
			require.NotEqual(t, "bash", shell, "tests need bash")
			continue
		}
		command := exec.CommandContext(t.Context(), path, "-c", script)
		command.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "FULGURITE_DIR="+dir, "HOME="+t.TempDir())
		text, err := command.CombinedOutput()
		require.NoError(t, err, "%s: %s", shell, text)
		var words []string
		for _, one := range strings.Split(strings.TrimSpace(string(text)), "\n") {
			word, _, _ := strings.Cut(one, "\t")
			words = append(words, strings.TrimPrefix(word, "small@"))
		}
		require.Equal(t, []string{"status", "promoted", "small"}, words, "%s: %s", shell, text)
	}
}
