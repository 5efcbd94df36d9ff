package testsuite_test

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// This file holds the rules of the repository that a compiler does not. It reads
// the files itself: a test that ran `go list` would be served from the cache
// although a file has changed.

const (
	module = "github.com/fulgurite/fulgurite/"
	// mostLines is the length of a file beyond which it holds more than one noun.
	mostLines = 400
)

// source is one Go file, its folder relative to the root of the repository.
type source struct {
	folder, name string
	lines        int
	file         *ast.File
}

func (s source) String() string { return path.Join(s.folder, s.name) }

func (s source) isTest() bool { return strings.HasSuffix(s.name, "_test.go") }

func (s source) imports() []string {
	var paths []string
	for _, i := range s.file.Imports {
		p, err := strconv.Unquote(i.Path.Value)
		if err != nil {
			panic(err) // the parser has accepted it
		}
		paths = append(paths, p)
	}
	return paths
}

// sources reads all Go files of the module.
func sources(t *testing.T) []source {
	t.Helper()
	var all []source
	root := os.DirFS("..")
	require.NoError(t, fs.WalkDir(root, ".", func(p string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			hidden := p != "." && strings.HasPrefix(entry.Name(), ".")
			if hidden || slices.Contains([]string{"bin", "testdata", "tools"}, entry.Name()) {
				return fs.SkipDir
			}
			return nil
		}
		if path.Ext(p) != ".go" {
			return nil
		}
		text, err := fs.ReadFile(root, p)
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), p, text, parser.ParseComments)
		if err != nil {
			return err
		}
		all = append(all, source{path.Dir(p), path.Base(p), bytes.Count(text, []byte("\n")), file})
		return nil
	}))
	require.NotEmpty(t, all)
	return all
}

// within says whether an import path is one of the given packages or below one;
// what is not of the standard library or of others is named without the module.
func within(p string, packages ...string) bool {
	p = strings.TrimPrefix(p, module)
	return slices.ContainsFunc(packages, func(one string) bool {
		return p == one || strings.HasPrefix(p, one+"/")
	})
}

// edges touch the world: disks, networks, processes, devices.
func edges() []string {
	return []string{"store", "gateway", "agent", "web", "model/native", "model/gomlx", "model/remote", "model/upstream"}
}

func TestImportsFollowTheDesign(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, s := range sources(t) {
		seen[strings.SplitN(s.folder, "/", 2)[0]] = true
		if s.isTest() {
			continue // tests see everything
		}
		for _, p := range s.imports() {
			if why := forbidden(s.folder, p); why != "" {
				t.Errorf("%s imports %s: %s", s, p, why)
			}
		}
	}
	for _, one := range []string{"spec", "trace", "credit", "update", "workflows", "store", "gateway", "agent", "model", "cmd", "internal"} {
		require.True(t, seen[one], "the rules speak of %s, which is not there", one)
	}
}

// forbidden is the reason why files of a folder must not import p, or nothing.
func forbidden(folder, p string) string {
	ours := strings.HasPrefix(p, module)
	switch {
	case within(folder, "spec") && ours && !within(p, "spec") && strings.TrimPrefix(p, module) != "credit":
		return "a leaf imports nothing of ours; spec shares the names of credit"
	case within(folder, "trace") && ours && !within(p, "trace"):
		return "a leaf imports nothing of ours"
	case within(folder, "wire") && (ours && !within(p, "wire", "dialog") || within(p, "database", "log", "math/rand", "os")):
		return "wire turns bytes into dialogs and back, and does no more"
	case within(folder, "gateway/conversation", "gateway/inflight") && within(p, "net"):
		return "the gateway's own package alone speaks HTTP"
	case folder == "credit" && ours:
		return "credit is arithmetic and knows nothing of what it is used for"
	case within(folder, "credit") && within(p, "database", "log", "math/rand", "net", "os", "syscall"):
		return "assigning credit does no I/O and knows no chance"
	case folder == "credit" && within(p, "bufio", "crypto", "database", "io", "log", "math/rand", "net", "os", "runtime", "syscall", "time"):
		return "credit does no I/O and knows no clock and no chance"
	case within(folder, "update") && within(p, "go.temporal.io", "store", "record", "database"):
		return "updates need neither Temporal nor rows of a database"
	case within(folder, "workflows") && ours && within(p, edges()...):
		return "workflows tell the story; activities touch the world"
	case within(folder, "workflows") && within(p, "crypto/rand", "database", "io", "log", "math/rand", "net", "os", "sync", "syscall", "github.com/gomlx"):
		return "workflows are deterministic and do no I/O"
	case within(p, "go.temporal.io/server", "github.com/temporalio/ui-server") && !within(folder, "internal/devserver"):
		return "the embedded server is linked through internal/devserver alone"
	case ours && within(p, "internal/devserver") && !within(folder, "cmd/fulgurite", "internal/stack", "internal/devserver"):
		return "only the tool for people brings a server with it"
	case ours && within(p, "internal/stack") && !within(folder, "cmd/fulgurite", "internal/stack", "bench"):
		return "it brings the embedded server with it"
	case ours && within(p, "internal/ptytest", "internal/pgtest", "testsuite") && !within(folder, "testsuite"):
		return "it is for tests"
	case ours && within(p, "cmd") && !within(folder, "cmd/fulgurite"):
		return "a command is nobody's library"
	}
	from, to := edgeOf(folder), edgeOf(strings.TrimPrefix(p, module))
	if ours && from != "" && to != "" && from != to {
		return "edges know no other edge; commands wire them"
	}
	return ""
}

func TestImportsAgainstTheDesignAreNoticed(t *testing.T) {
	t.Parallel()
	for _, c := range [][2]string{
		{"spec", module + "trace"},
		{"spec", module + "credit/assign"},
		{"wire", module + "trace"},
		{"credit", module + "trace"},
		{"credit", "time"},
		{"credit/signals", "net/http"},
		{"credit", "math/rand/v2"},
		{"update", "go.temporal.io/sdk/activity"},
		{"update", module + "record"},
		{"workflows", module + "store"},
		{"workflows", module + "model/gomlx"},
		{"workflows", "net/http"},
		{"workflows", "github.com/gomlx/gomlx/graph"},
		{"gateway", module + "store/blob"},
		{"gateway/conversation", "net/http"},
		{"model/native/kernel", module + "model/gomlx"},
		{"workers", "go.temporal.io/server/temporal"},
		{"cmd/fulgurite-worker", module + "internal/devserver"},
		{"cmd/fulgurite-worker", module + "internal/stack"},
		{"store", module + "internal/pgtest"},
		{"internal/fleet", module + "testsuite/chaos/processes"},
		{"web", module + "cmd/fulgurite"},
	} {
		require.NotEmpty(t, forbidden(c[0], c[1]), "%s imports %s", c[0], c[1])
	}
	for _, c := range [][2]string{
		{"model/native", module + "model/native/kernel"},
		{"spec", module + "credit"},
		{"credit/signals", module + "wire"},
		{"credit/signals", "time"},
		{"store", module + "store/blob"},
		{"gateway", module + "model"},
		{"workflows", "time"},
		{"workflows", "go.temporal.io/sdk/log"},
		{"internal/devserver", "go.temporal.io/server/temporal"},
		{"cmd/fulgurite", module + "internal/devserver"},
		{"cmd/fulgurite", module + "cmd/fulgurite/internal/state"},
		{"testsuite/chaos", module + "testsuite/chaos/processes"},
	} {
		require.Empty(t, forbidden(c[0], c[1]), "%s imports %s", c[0], c[1])
	}
}

// No package that the fleet's command imports, however far away, may bring the
// server with it.
func TestTheFleetNeverLinksTheEmbeddedServer(t *testing.T) {
	t.Parallel()
	imports := map[string][]string{} // by folder
	for _, s := range sources(t) {
		if !s.isTest() {
			imports[s.folder] = append(imports[s.folder], s.imports()...)
		}
	}
	const command = "cmd/fulgurite-worker"
	from := map[string]string{command: ""} // who was seen to import a folder first
	for queue := []string{command}; len(queue) > 0; queue = queue[1:] {
		for _, p := range imports[queue[0]] {
			if within(p, "go.temporal.io/server", "github.com/temporalio/ui-server") {
				t.Errorf("%s imports %s; it is imported by %s", queue[0], p, from[queue[0]])
			}
			folder := strings.TrimPrefix(p, module)
			if _, seen := from[folder]; !seen && folder != p {
				from[folder] = queue[0]
				queue = append(queue, folder)
			}
		}
	}
	require.Contains(t, from, "internal/fleet", "the search went somewhere")
}

// edgeOf is the edge that a folder belongs to, or nothing.
func edgeOf(folder string) string {
	for _, one := range edges() {
		if within(folder, one) {
			return one
		}
	}
	return ""
}

func TestEveryPackageSaysWhatItIs(t *testing.T) {
	t.Parallel()
	docs := map[string][]string{} // by folder
	names := map[string]string{}
	for _, s := range sources(t) {
		if s.isTest() {
			continue
		}
		names[s.folder] = s.file.Name.Name
		if s.file.Doc != nil {
			docs[s.folder] = append(docs[s.folder], s.file.Doc.Text())
		}
	}
	for folder, name := range names {
		if !within(folder, "cmd", "examples") && len(docs[folder]) != 1 {
			t.Errorf("%s has %d package comments, want one", folder, len(docs[folder]))
		}
		begin := "Package " + name + " "
		if name == "main" {
			begin = "Command " + path.Base(folder) + " "
		}
		for _, doc := range docs[folder] {
			if !strings.HasPrefix(doc, begin) {
				t.Errorf("the comment of %s begins %.30q, want %q", folder, doc, begin)
			}
		}
		if len(docs[folder]) == 0 {
			t.Errorf("%s has no package comment", folder)
		}
	}
}

func TestFilesAreShort(t *testing.T) {
	t.Parallel()
	for _, s := range sources(t) {
		if s.lines > mostLines && !ast.IsGenerated(s.file) {
			t.Errorf("%s has %d lines, more than %d", s, s.lines, mostLines)
		}
	}
}

func TestNothingRunsBeforeMainAndNoTestSleeps(t *testing.T) {
	t.Parallel()
	for _, s := range sources(t) {
		ast.Inspect(s.file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				if n.Recv == nil && n.Name.Name == "init" {
					t.Errorf("%s has an init function", s)
				}
			case *ast.SelectorExpr:
				if x, ok := n.X.(*ast.Ident); ok && s.isTest() && x.Name == "time" && n.Sel.Name == "Sleep" {
					t.Errorf("%s sleeps", s)
				}
			}
			return true
		})
	}
}

func TestDocumentedTargetsExist(t *testing.T) {
	t.Parallel()
	makefile, err := os.ReadFile("../Makefile")
	require.NoError(t, err)
	targets := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^([a-z][a-z0-9-]*):([^=]|$)`).FindAllSubmatch(makefile, -1) {
		targets[string(m[1])] = true
	}
	documents, err := filepath.Glob("../*.md")
	require.NoError(t, err)
	more, err := filepath.Glob("../docs/*.md")
	require.NoError(t, err)
	command := regexp.MustCompile("(?m)(?:^\\$? *|`)make ((?:[a-z][a-z0-9-]* ?)+)")
	found := 0
	for _, document := range append(documents, more...) {
		text, err := os.ReadFile(document)
		require.NoError(t, err)
		for _, m := range command.FindAllSubmatch(text, -1) {
			for target := range strings.FieldsSeq(string(m[1])) {
				found++
				if !targets[target] {
					t.Errorf("%s says `make %s`, which the Makefile lacks", filepath.Base(document), target)
				}
			}
		}
	}
	require.Positive(t, found, "no document names a target")
}
