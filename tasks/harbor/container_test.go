package harbor_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/tasks/harbor"
)

// client is a program in the place of docker. It writes its arguments to a file, one
// command on a line, and answers as docker does where one container starts.
const client = `#!/bin/sh
echo "$*" >>"$(dirname "$0")/asked"
env >>"$(dirname "$0")/environment"
case "$1" in
run) echo 0123abc ;;
inspect) echo /app ;;
esac
`

// Tests with a real docker are in package fleet and need FULGURITE_TEST_CONTAINERS.
func TestAContainerHasTheLabelsByWhichItIsFoundAgain(t *testing.T) {
	t.Setenv("FULGURITE_FLEET_KEY", "of the fleet")
	t.Setenv("DOCKER_CONFIG", "of docker")
	dir := t.TempDir()
	program := filepath.Join(dir, "docker")
	require.NoError(t, os.WriteFile(program, []byte(client), 0o755))
	folder := filepath.Join(dir, "task")
	for name, text := range map[string]string{
		"task.toml":              "version = \"1.0\"\n[environment]\ndocker_image = \"debian\"\n",
		"instruction.md":         "Do it.\n",
		"environment/.gitignore": "",
		"tests/test.sh":          "echo 1 > /logs/verifier/reward.txt\n",
	} {
		path := filepath.Join(folder, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	}
	task, err := harbor.Read(folder)
	require.NoError(t, err)
	w, err := harbor.Open(t.Context(), task, harbor.Place{Home: filepath.Join(dir, "home"), Options: harbor.Options{Container: program}})
	require.NoError(t, err)
	require.NoError(t, w.Close())

	text, err := os.ReadFile(filepath.Join(dir, "asked"))
	require.NoError(t, err)
	seen, err := os.ReadFile(filepath.Join(dir, "environment"))
	require.NoError(t, err)
	require.NotContains(t, string(seen), "of the fleet")
	require.Contains(t, string(seen), "DOCKER_CONFIG=of docker")
	commands := strings.Split(string(text), "\n")
	arguments := func(command, option string) []string {
		at := slices.IndexFunc(commands, func(line string) bool { return strings.HasPrefix(line, command+" ") })
		require.GreaterOrEqual(t, at, 0, "%s was never asked for:\n%s", command, text)
		var found []string
		for words := strings.Fields(commands[at]); len(words) > 1; words = words[1:] {
			if words[0] == option {
				found = append(found, strings.TrimPrefix(words[1], "label="))
			}
		}
		return found
	}
	wanted := arguments("ps", "--filter")
	require.Len(t, wanted, 2, "containers of workspaces, on this machine")
	require.Subset(t, arguments("run", "--label"), wanted, "a container that is lost is never removed")
}
