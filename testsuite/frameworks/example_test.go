package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/tasks"
)

// The frameworks themselves are not needed for this.
func TestEveryExampleIsComplete(t *testing.T) {
	t.Parallel()
	examples, err := readExamples("../../examples", nil)
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(examples), 18)
	frameworks, err := os.ReadFile("../../docs/frameworks.md")
	require.NoError(t, err)
	for _, e := range examples {
		readme, err := os.ReadFile(filepath.Join(e.Folder, "README.md"))
		require.NoError(t, err)
		require.Contains(t, string(readme), "make examples ONLY="+e.Name)
		require.Contains(t, string(frameworks), "examples/"+e.Name+")", "docs/frameworks.md has a line for each")
		if e.Spec == "" {
			continue
		}
		s, err := spec.Load(filepath.Join(e.Folder, e.Spec))
		require.NoError(t, err)
		s = s.WithDefaults()
		require.NoError(t, s.Validate())
		require.Equal(t, e.Name, s.Name)
		source, err := spec.ParseSource(s.Tasks.Train)
		require.NoError(t, err)
		if source.Path != "" && !strings.Contains(source.Path, "/.examples/") { // what an example makes is tested by itself
			list, err := tasks.Open(s.Tasks.Train)
			require.NoError(t, err)
			require.NotEmpty(t, list)
		}
	}
}

func TestWhatIsInstalledIsPinnedAndNamesNoServer(t *testing.T) {
	t.Parallel()
	pinned := regexp.MustCompile(`^(#.*|[A-Za-z0-9._\[\]-]+==[^ ]+( ; .*)?)?$`)
	lists, err := filepath.Glob("../../examples/*/requirements.txt")
	require.NoError(t, err)
	require.NotEmpty(t, lists)
	for _, list := range lists {
		text, err := os.ReadFile(list)
		require.NoError(t, err)
		for line := range strings.SplitSeq(string(text), "\n") {
			require.Regexp(t, pinned, line, list)
		}
	}
	locks, err := filepath.Glob("../../examples/*/package-lock.json")
	require.NoError(t, err)
	require.NotEmpty(t, locks)
	for _, lock := range locks {
		text, err := os.ReadFile(lock)
		require.NoError(t, err)
		require.NotContains(t, string(text), `"resolved"`, lock)
		require.Contains(t, string(text), `"integrity"`, lock)
	}
}

func TestMistakesOfAnExampleAreNamed(t *testing.T) {
	t.Parallel()
	const good = "walks: [{command: [sh], api: chat, calls: 1, replies: [{say: x}]}]"
	for text, want := range map[string]string{
		"walks: []":                                      "walks is empty",
		strings.Replace(good, "[sh]", "[]", 1):           "walks[0].command is missing",
		strings.Replace(good, "chat", "telnet", 1):       `walks[0].api is "telnet"`,
		strings.Replace(good, "calls: 1", "call: 1", 1):  "field call not found",
		strings.Replace(good, "calls: 1", "calls: 0", 1): "walks[0].calls is 0",
		strings.Replace(good, "[{say: x}]", "[]", 1):     "walks[0].replies is empty",
	} {
		folder := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(folder, exampleFile), []byte(text), 0o600))
		_, err := readExamples(filepath.Dir(folder), []string{filepath.Base(folder)})
		require.ErrorContains(t, err, want)
	}
	_, err := readExamples(t.TempDir(), nil)
	require.ErrorContains(t, err, "no example in")
}

func TestProgramsOfAnExampleAreRelativeToIt(t *testing.T) {
	t.Parallel()
	for program, want := range map[string]string{"sh": "sh", "./agent": "/x/agent", "../bin/agent": "/bin/agent", "/y/agent": "/y/agent"} {
		w := walk{Command: []string{program}}
		w.resolve("/x")
		require.Equal(t, want, w.Command[0])
	}
}
