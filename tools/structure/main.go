// Command structure prints figures about the shape of the module: files, their lengths,
// folders, imports and exported names, with and without what only develops it (testsuite,
// bench, examples, tools). Tests and generated files are left out.
//
//	go run ./tools/structure [FOLDER]
package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
)

func main() {
	folder := "."
	if len(os.Args) > 1 {
		folder = os.Args[1]
	}
	if err := run(os.DirFS(folder), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "structure:", err)
		os.Exit(1)
	}
}

// figures are those of a set of files.
type figures struct {
	lines    []int // of each file
	folders  map[string]bool
	imports  int
	exported int // names of packages, methods and fields
}

func run(root fs.FS, out io.Writer) error {
	all, product := figures{folders: map[string]bool{}}, figures{folders: map[string]bool{}}
	err := fs.WalkDir(root, ".", func(p string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && p != "." && (strings.HasPrefix(entry.Name(), ".") || entry.Name() == "testdata"):
			return fs.SkipDir
		case path.Ext(p) != ".go" || strings.HasSuffix(p, "_test.go"):
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
		if ast.IsGenerated(file) {
			return nil
		}
		all.add(p, text, file)
		if top, _, _ := strings.Cut(p, "/"); !slices.Contains([]string{"testsuite", "bench", "examples", "tools"}, top) {
			product.add(p, text, file)
		}
		return nil
	})
	if err != nil {
		return err
	}
	fmt.Fprintln(out, "| without tests | files | lines | mean | median | below 60 | folders | imports | exported names |")
	fmt.Fprintln(out, "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
	all.print(out, "all")
	product.print(out, "the product")
	return nil
}

func (f *figures) add(p string, text []byte, file *ast.File) {
	f.lines = append(f.lines, bytes.Count(text, []byte("\n")))
	f.folders[path.Dir(p)] = true
	f.imports += len(file.Imports)
	if file.Name.Name == "main" {
		return // nobody imports it
	}
	for _, d := range file.Decls {
		ast.Inspect(d, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				f.count(n.Name)
				return false // what is inside belongs to it alone
			case *ast.TypeSpec:
				f.count(n.Name)
			case *ast.ValueSpec:
				f.count(n.Names...)
				return false
			case *ast.Field:
				f.count(n.Names...)
			case *ast.FuncType:
				return false // parameters
			}
			return true
		})
	}
}

func (f *figures) count(names ...*ast.Ident) {
	for _, n := range names {
		if n.IsExported() {
			f.exported++
		}
	}
}

func (f *figures) print(out io.Writer, name string) {
	slices.Sort(f.lines)
	total, short := 0, 0
	for _, n := range f.lines {
		total += n
		if n < 60 {
			short++
		}
	}
	n := max(1, len(f.lines))
	median := 0
	if len(f.lines) > 0 {
		median = f.lines[len(f.lines)/2]
	}
	fmt.Fprintf(out, "| %s | %d | %d | %d | %d | %d | %d | %d | %d |\n", name, len(f.lines), total, total/n, median, short, len(f.folders), f.imports, f.exported)
}
