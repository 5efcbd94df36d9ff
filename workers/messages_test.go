package workers_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/internal/shell"
	"github.com/fulgurite/fulgurite/store"
	"github.com/fulgurite/fulgurite/workers"
)

var (
	// quotedCommand is a command of this program in a message. It may end at a comment.
	quotedCommand = regexp.MustCompile("`" + shell.Worker + " ([^`]*)`")
	// looseCommand is one outside of backquotes, which package shell does not complete.
	looseCommand = regexp.MustCompile("(^|[^`])" + shell.Worker + " (cpu|gpu|sampler|gateway|tools|page|migrate|mend|health|version)\\b")
)

// workerCommands finds the commands of this program that messages of all packages show, by
// file: in literals, and in calls that write one.
func workerCommands(t *testing.T) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	root := os.DirFS("..")
	require.NoError(t, fs.WalkDir(root, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && (path != "." && strings.HasPrefix(entry.Name(), ".") || slices.Contains([]string{"bin", "dist", "testdata", "testsuite", "tools", "bench", "examples"}, entry.Name())) {
			return fs.SkipDir
		}
		if entry.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		text, err := fs.ReadFile(root, path)
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, text, 0)
		require.NoError(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			found[path] = append(found[path], commandsOf(t, path, n)...)
			return true
		})
		return nil
	}))
	return found
}

// commandsOf returns the commands that a part of a file shows.
func commandsOf(t *testing.T, path string, n ast.Node) (all []string) {
	t.Helper()
	switch n := n.(type) {
	case *ast.BasicLit:
		if n.Kind != token.STRING {
			return nil
		}
		text, err := strconv.Unquote(n.Value)
		require.NoError(t, err)
		require.NotRegexp(t, looseCommand, text, "%s: WorkerCommand has to write the command, or backquotes have to enclose it", path)
		for _, command := range quotedCommand.FindAllStringSubmatch(text, -1) {
			all = append(all, command[1])
		}
	case *ast.CallExpr:
		f, ok := n.Fun.(*ast.SelectorExpr)
		if !ok || f.Sel.Name != "WorkerCommand" || len(n.Args) != 1 {
			return nil
		}
		if literal, ok := n.Args[0].(*ast.BasicLit); ok {
			name, err := strconv.Unquote(literal.Value)
			require.NoError(t, err)
			all = append(all, name)
		}
	}
	return all
}

// Whoever pastes a command of this program that a message shows gets no error
// of usage for it.
func TestWorkerCommandsInMessagesExist(t *testing.T) {
	t.Parallel()
	names := map[string]bool{}
	place := shell.Place{Store: "s", Blobs: "b"}
	for path, commands := range workerCommands(t) {
		for _, command := range commands {
			words := strings.Fields(command)
			names[words[0]] = true
			if !slices.Contains(words, "--store") {
				words = append(words, place.WorkerFlags(words[0])...)
			}
			_, err := workers.Parse(words, io.Discard)
			require.NoError(t, err, "%s shows `%s %s`", path, shell.Worker, command)
		}
	}
	for _, name := range []string{"migrate", "cpu", "gpu"} {
		require.True(t, names[name], "no message shows %s any more, or the search does not find it", name)
	}
}

// The flags by which a shown command finds the records are flags of that command.
func TestShownWorkerCommandsTakeTheFlagsOfThePlace(t *testing.T) {
	t.Parallel()
	parsed, err := workers.Parse([]string{"version"}, io.Discard)
	require.NoError(t, err)
	for _, command := range parsed.Model.Children {
		flags := shell.Place{Dir: "d", Store: "s", Blobs: "b"}.WorkerFlags(command.Name)
		for _, name := range []string{"store", "blobs"} {
			has := slices.ContainsFunc(command.Flags, func(f *kong.Flag) bool { return f.Name == name })
			require.Equal(t, has, slices.Contains(flags, "--"+name), "%s --%s", command.Name, name)
		}
		require.NotContains(t, flags, "--dir")
	}
}

// The command that makes a store works where it is shown, pasted in another directory.
func TestTheShownMigrationMakesTheStore(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "it is $mine; really")
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "blobs"), 0o700))
	database := filepath.Join(dir, "fleet.db")
	page := []string{"page", "--store", database, "--blobs", filepath.Join(dir, "blobs"), "--wait", "100ms"}
	var log strings.Builder
	require.Equal(t, workers.ExitFailed, workers.Run(t.Context(), page, &log))
	require.NoFileExists(t, database)
	shown := quotedCommand.FindString(log.String())
	require.NotEmpty(t, shown, log.String())

	bin := t.TempDir()
	self, err := os.Executable()
	require.NoError(t, err)
	require.NoError(t, os.Symlink(self, filepath.Join(bin, shell.Worker)))
	line := strings.Trim(shown, "`") + " --wait 5s" // nothing is at the address of Temporal, which comes after the store
	pasted := exec.CommandContext(t.Context(), "sh", "-c", line)
	pasted.Dir = t.TempDir()
	pasted.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), asCommand+"=1", "TEMPORAL_ADDRESS=127.0.0.1:1")
	printed, err := pasted.CombinedOutput()
	require.Error(t, err, "there is no Temporal")
	require.Contains(t, string(printed), "wait 5s for the Temporal")
	made, err := store.Open(t.Context(), database, nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, made.Close()) }()
	require.NoError(t, made.Ready(t.Context()))
}
