package main

import (
	"bytes"
	"cmp"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/internal/shell"
)

// advice is a command that a message shows, as the words of a command line. Words that the
// message fills in are placeholders.
type advice struct {
	where string
	words []string
}

// quoted is a command in a text. All of it has to be there: a word that is filled in is not
// quoted for a shell.
var quoted = regexp.MustCompile("`fulgurite ([^`]*)`")

// loose is a command that stands in a text without backquotes. Package shell completes only
// those with them.
var loose = regexp.MustCompile(`(^|[^` + "`" + `/])\bfulgurite (demo|dev|doctor|temporal|train|schedule|plan|try|evaluate|compare|tasks|grade|status|runs|page|token|report|calls|traffic|keys|credit|versions|promote|rollback|pin|unpin|approve|reject|pause|resume|stop|retry|set|chat|import|export|data|track|provenance|forget|prune|backup|restore|warm-start|schema)\b`)

// shownCommands finds the commands that the messages of the program show: in the literals
// of all packages, in calls of package shell, and in the templates of the page.
func shownCommands(t *testing.T) []advice {
	t.Helper()
	var all []advice
	root := os.DirFS("../..")
	require.NoError(t, fs.WalkDir(root, ".", func(p string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if p != "." && strings.HasPrefix(entry.Name(), ".") || slices.Contains([]string{"bin", "testdata", "bench", "testsuite", "tools", "examples", "docs", "dist"}, entry.Name()) {
				return fs.SkipDir
			}
			return nil
		}
		text, err := fs.ReadFile(root, p)
		switch path.Ext(p) {
		case ".go":
			if err == nil && !strings.HasSuffix(p, "_test.go") && !strings.HasPrefix(p, "internal/shell/") {
				all = append(all, inGo(t, p, text)...)
			}
		case ".html", ".js":
			all = append(all, inTemplate(p, string(text))...)
		case ".py":
			all = append(all, inText(t, p, string(text))...)
		}
		return err
	}))
	return all
}

// inGo finds the commands in a file of Go.
func inGo(t *testing.T, p string, text []byte) (all []advice) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), p, text, 0)
	require.NoError(t, err)
	tags := map[*ast.BasicLit]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Field:
			tags[n.Tag] = n.Tag != nil
		case *ast.BasicLit:
			if n.Kind != token.STRING || tags[n] { // the help of a flag names commands
				return true
			}
			literal, err := strconv.Unquote(n.Value)
			require.NoError(t, err)
			all = append(all, inText(t, p, literal)...)
			if found := loose.FindString(literal); found != "" {
				t.Errorf("%s: %q shows a command that shell.Command has to write, or backquotes have to enclose", p, literal)
			}
			if strings.HasPrefix(p, "cmd/fulgurite/") && slices.ContainsFunc(quoted.FindAllStringSubmatch(literal, -1), func(found []string) bool { return parses(strings.Fields(found[1])) == nil }) {
				t.Errorf("%s: %q shows a command without --dir: Flags.Command writes it with that", p, literal)
			}
		case *ast.CallExpr:
			if f, ok := n.Fun.(*ast.SelectorExpr); ok && f.Sel.Name == "Command" && !strings.HasPrefix(identifierOf(f.X), "exec") && len(n.Args) > 0 {
				if words := wordsOf(n); words != nil {
					all = append(all, advice{p, words})
				}
			}
		}
		return true
	})
	return all
}

// inText finds the commands in a text.
func inText(t *testing.T, p, text string) (all []advice) {
	t.Helper()
	for _, found := range quoted.FindAllStringSubmatch(text, -1) {
		if strings.Contains(found[1], "%") {
			t.Errorf("%s: %q fills in a word that no shell may read: shell.Command writes it", p, found[0])
			continue
		}
		all = append(all, advice{p, strings.Fields(found[1])})
	}
	return all
}

// called is a command that a template writes.
var called = regexp.MustCompile(`{{command ([^}]*)}}`)

func inTemplate(p, text string) (all []advice) {
	for _, found := range called.FindAllStringSubmatch(text, -1) {
		var words []string
		for _, word := range strings.Fields(found[1]) {
			words = append(words, strings.Trim(word, `"`))
		}
		all = append(all, advice{p, words})
	}
	for _, found := range regexp.MustCompile(`<code>fulgurite ([^<]*)</code>`).FindAllStringSubmatch(text, -1) {
		all = append(all, advice{p, strings.Fields(found[1])})
	}
	return all
}

func identifierOf(e ast.Expr) string {
	if id, ok := e.(*ast.Ident); ok {
		return id.Name
	}
	return ""
}

// wordsOf returns the words of a call that writes a command, or nil if its first argument
// is no name of a command.
func wordsOf(call *ast.CallExpr) (words []string) {
	arguments := call.Args
	if list, ok := arguments[0].(*ast.CallExpr); ok { // of slices.Concat
		arguments = nil
		for _, part := range list.Args {
			if literal, ok := part.(*ast.CompositeLit); ok {
				arguments = append(arguments, literal.Elts...)
			} else {
				arguments = append(arguments, part)
			}
		}
	}
	for i, a := range arguments {
		literal, ok := a.(*ast.BasicLit)
		switch {
		case ok && literal.Kind == token.STRING:
			word, err := strconv.Unquote(literal.Value)
			if err != nil {
				return nil
			}
			words = append(words, word)
		case i == 0:
			return nil
		default:
			words = append(words, "WORD")
		}
	}
	return words
}

// filled is what a person puts in the place of some words.
var filled = map[string]string{"KEY=NUMBER": "training.optimizer.learning_rate=1", "N": "2"}

// Whoever pastes a command that a message shows gets no error of usage for it.
func TestCommandsInMessagesExist(t *testing.T) {
	t.Parallel()
	all := shownCommands(t)
	require.Greater(t, len(all), 50, "the search finds no commands")
	names := map[string]bool{}
	for _, a := range all {
		names[a.words[0]] = true
		words := slices.Clone(a.words)
		if rest := slices.Index(words, "…"); rest >= 0 {
			words = words[:rest]
		}
		for i, word := range words {
			if words[i] = cmp.Or(filled[word], word); i > 0 && words[i-1] == "--port" {
				words[i] = "7233"
			}
		}
		if len(words) == 1 && (isCommand(words[0]) || words[0] == "--help") {
			continue // the text names the command
		}
		require.NoError(t, parses(words), "%s shows `fulgurite %s`", a.where, strings.Join(a.words, " "))
	}
	for _, name := range []string{"retry", "resume", "stop", "status", "report", "approve", "reject", "set", "versions", "runs", "export", "evaluate", "train", "dev", "doctor", "import", "tasks", "temporal"} {
		require.True(t, names[name], "no message shows %s any more, or the search does not find it", name)
	}
}

// parses reads a command line and starts nothing.
func parses(words []string) error {
	parser, err := kong.New(&commands{}, kong.Name(shell.Program), kong.Writers(io.Discard, io.Discard), kong.Exit(func(int) {}))
	if err != nil {
		return err
	}
	_, err = parser.Parse(words)
	return err
}

func isCommand(name string) bool {
	parser, err := kong.New(&commands{}, kong.Name(shell.Program))
	return err == nil && slices.ContainsFunc(parser.Model.Children, func(n *kong.Node) bool { return n.Name == name })
}

// The flags by which a shown command finds the runs are flags of that command.
func TestShownCommandsTakeTheFlagsOfThePlace(t *testing.T) {
	t.Parallel()
	parser, err := kong.New(&commands{}, kong.Name(shell.Program))
	require.NoError(t, err)
	place := shell.Place{Dir: "a b", Store: "s", Blobs: "b"}
	for _, command := range parser.Model.Children {
		flags := place.Flags(command.Name)
		has := func(name string) bool {
			return slices.ContainsFunc(command.Flags, func(f *kong.Flag) bool { return f.Name == name })
		}
		if len(flags) == 0 {
			require.False(t, has("store"), command.Name)
			continue
		}
		require.Equal(t, has("store"), slices.Contains(flags, "--store"), command.Name)
		require.Equal(t, has("blobs"), slices.Contains(flags, "--blobs"), command.Name)
	}
}

// paste implements "paste CODE BEGINNING ARGUMENTS...": a shell in another directory, without
// the script's FULGURITE_DIR, runs the command that the last output shows, up to a backquote
// or the end of the line, with further arguments.
func paste(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: paste CODE BEGINNING ARGUMENTS...")
	}
	line := strings.Join(append([]string{shownIn(ts, args[1])}, args[2:]...), " ")
	exitCode(ts, false, append([]string{args[0]}, inAnotherDirectory(ts, line)...))
}

// shownIn returns the command with a beginning that the last output shows.
func shownIn(ts *testscript.TestScript, beginning string) string {
	shown := regexp.MustCompile(regexp.QuoteMeta(beginning) + "[^`\n]*").FindString(ts.ReadFile("stdout") + ts.ReadFile("stderr"))
	if shown == "" {
		ts.Fatalf("the last output shows no %q", beginning)
	}
	return shown
}

// inAnotherDirectory returns the words that run a line in a shell in another directory, without the
// script's FULGURITE_DIR.
func inAnotherDirectory(ts *testscript.TestScript, line string) []string {
	folder := ts.MkAbs("another directory")
	ts.Check(os.MkdirAll(folder, 0o755))
	return []string{"sh", "-c", `cd "$0" && unset FULGURITE_DIR && ` + line, folder}
}

// pasteServer implements "serve BEGINNING TEXT": it does what paste does with a command that keeps
// running, and ends it by a signal as soon as it has printed the text.
func pasteServer(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: serve BEGINNING TEXT")
	}
	words := inAnotherDirectory(ts, "exec "+shownIn(ts, args[0]))
	command := exec.Command(words[0], words[1:]...)
	command.Env = []string{"FULGURITE_PAGE_PORT=0", "FULGURITE_GATEWAY_PORT=0", "FULGURITE_UI_PORT=0", "FULGURITE_METRICS_PORT=0"}
	for _, name := range []string{"PATH", "HOME", "TMPDIR", "TEMPORAL_ADDRESS"} {
		command.Env = append(command.Env, name+"="+ts.Getenv(name))
	}
	var printed lockedBuffer
	command.Stdout, command.Stderr = &printed, &printed
	ts.Check(command.Start())
	ended := make(chan error, 1)
	go func() { ended <- command.Wait() }()
	poll(ts, args[1], func() bool {
		if strings.Contains(printed.String(), args[1]) {
			return true
		}
		select {
		case err := <-ended:
			ts.Fatalf("%s ended: %v\n%s", words[2], err, printed.String())
		default:
		}
		return false
	})
	ts.Check(command.Process.Signal(os.Interrupt))
	if err := <-ended; err != nil {
		ts.Fatalf("%s: %v\n%s", words[2], err, printed.String())
	}
}

// lockedBuffer is written by one goroutine and read by another.
type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// documented implements "documented FILE TEXT": a shell runs the block of commands of a
// document that has the text.
func documented(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: documented FILE TEXT")
	}
	text, err := os.ReadFile(documents + args[0])
	ts.Check(err)
	for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		if strings.Contains(block[1], args[1]) {
			ts.Check(ts.Exec("sh", "-e", "-c", block[1]))
			return
		}
	}
	ts.Fatalf("%s has no commands with %q", args[0], args[1])
}

// documents is the folder of the documents, seen from this package.
const documents = "../../docs/"
