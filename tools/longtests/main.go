// Command longtests finds the tests that do less or nothing under -short. It prints two
// lines: those of the named packages that have such tests, and the tests as an expression
// for `go test -run`. The gate runs these as users run them; all others of the packages it
// runs under the race detector only.
//
// It reads the sources: a test counts if it, or a function of the package's tests that it
// mentions, mentions testing.Short.
package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const module = "github.com/fulgurite/fulgurite/"

func main() {
	var packages, tests []string
	for _, path := range os.Args[1:] {
		names, err := longTests(filepath.FromSlash(strings.TrimPrefix(path, module)))
		if err != nil {
			fmt.Fprintln(os.Stderr, "longtests:", err)
			os.Exit(1)
		}
		if len(names) > 0 {
			packages, tests = append(packages, path), append(tests, names...)
		}
	}
	fmt.Printf("%s\n^(%s)\\z\n", strings.Join(packages, " "), strings.Join(tests, "|"))
}

// longTests returns the names of the tests of a folder that mention testing.Short, perhaps
// by way of other functions.
func longTests(folder string) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(folder, "*_test.go"))
	if err != nil {
		return nil, err
	}
	mentions := map[string][]string{} // by function, the identifiers in it
	short := map[string]bool{}
	for _, name := range files {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			return nil, err
		}
		for _, d := range f.Decls {
			function, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			ast.Inspect(function, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.SelectorExpr:
					if x, ok := n.X.(*ast.Ident); ok && x.Name == "testing" && n.Sel.Name == "Short" {
						short[function.Name.Name] = true
					}
				case *ast.Ident:
					mentions[function.Name.Name] = append(mentions[function.Name.Name], n.Name)
				}
				return true
			})
		}
	}
	for grown := true; grown; {
		grown = false
		for name, identifiers := range mentions {
			if !short[name] && slices.ContainsFunc(identifiers, func(i string) bool { return short[i] }) {
				short[name], grown = true, true
			}
		}
	}
	var out []string
	for name := range short {
		if strings.HasPrefix(name, "Test") && name != "TestMain" {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out, nil
}
