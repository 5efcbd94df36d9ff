package rules_test

import (
	"cmp"
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

const module = "github.com/fulgurite/fulgurite/"

// maxLines is the maximum length of a file. A longer file usually has more than one
// subject.

// source is one Go file, its folder relative to the root of the repository.
type source struct {
	folder, name string
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
	root := os.DirFS("../..")
	require.NoError(t, fs.WalkDir(root, ".", func(p string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			hidden := p != "." && strings.HasPrefix(entry.Name(), ".")
			if hidden || slices.Contains([]string{"bin", "testdata"}, entry.Name()) {
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
		all = append(all, source{path.Dir(p), path.Base(p), file})
		return nil
	}))
	require.NotEmpty(t, all)
	return all
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

// After a rename, a comment must not keep the old name.
func TestCommentsBeginWithTheNameThatTheyDescribe(t *testing.T) {
	t.Parallel()
	check := func(s source, name string, doc *ast.CommentGroup) {
		first, _, _ := strings.Cut(doc.Text(), " ")
		if first == strings.ToLower(first) && strings.TrimRight(first, ",") != name && first != "" && !isTestFunction(name) {
			t.Errorf("%s: the comment of %s begins with %q", s, name, first)
		}
	}
	for _, s := range sources(t) {
		for _, d := range s.file.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				check(s, d.Name.Name, d.Doc)
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					if typ, ok := spec.(*ast.TypeSpec); ok {
						check(s, typ.Name.Name, cmp.Or(typ.Doc, d.Doc))
					}
				}
			}
		}
	}
}

func isTestFunction(name string) bool {
	return slices.ContainsFunc([]string{"Test", "Benchmark", "Fuzz", "Example"}, func(kind string) bool { return strings.HasPrefix(name, kind) })
}

// hasFakeClock reports whether the tests of a file may sleep: in a bubble of synctest
// that takes no time.
func (s source) hasFakeClock() bool {
	return slices.ContainsFunc(s.file.Imports, func(i *ast.ImportSpec) bool { return i.Path.Value == `"testing/synctest"` })
}

// supervisors are the files whose init functions make a process the supervisor of an agent, which
// never gets to its main function.
var supervisors = []string{"agent/process/shim.go", "agent/sandbox/first_linux.go"}

func TestNothingElseRunsBeforeMainAndNoTestSleeps(t *testing.T) {
	t.Parallel()
	for _, s := range sources(t) {
		ast.Inspect(s.file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				if n.Recv == nil && n.Name.Name == "init" && !slices.Contains(supervisors, s.String()) {
					t.Errorf("%s has an init function", s)
				}
			case *ast.SelectorExpr:
				x, ok := n.X.(*ast.Ident)
				if ok && s.isTest() && x.Name == "time" && n.Sel.Name == "Sleep" && !s.hasFakeClock() {
					t.Errorf("%s sleeps", s)
				}
			}
			return true
		})
	}
}

func TestDocumentedTargetsExist(t *testing.T) {
	t.Parallel()
	makefile, err := os.ReadFile("../../Makefile")
	require.NoError(t, err)
	targets := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^([a-z][a-z0-9-]*):([^=]|$)`).FindAllSubmatch(makefile, -1) {
		targets[string(m[1])] = true
	}
	documents, err := filepath.Glob("../../*.md")
	require.NoError(t, err)
	more, err := filepath.Glob("../../docs/*.md")
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
