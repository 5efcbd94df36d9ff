// Command reach prints the packages whose tests a change can reach, one on each line: those
// with a changed file, and those whose tests or code import one of these, however far away.
// A changed test reaches the tests beside it alone. go.mod and go.sum reach all packages.
//
//	go run ./tools/reach COMMIT
//
// The change is what differs from the commit in the folder, files that git does not know
// included. A file that is not Go's belongs to the package of the nearest folder above it;
// where there is none, as for documents and scripts, it reaches nothing by imports. Files
// that a test reads in another package's folder are not seen either.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "reach: name the commit to compare with")
		os.Exit(2)
	}
	reached, err := run(".", os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, "reach:", err)
		os.Exit(1)
	}
	for _, name := range reached {
		fmt.Println(name)
	}
}

// run returns what the change of a module reaches.
func run(module, commit string) ([]string, error) {
	changed, err := output(module, "git", "diff", "--name-only", "--no-renames", commit, "--")
	if err != nil {
		return nil, err
	}
	unknown, err := output(module, "git", "ls-files", "--others", "--exclude-standard")
	if err != nil {
		return nil, err
	}
	list, err := output(module, "go", "list", "-test", "-json=ImportPath,ForTest,Deps,Module", "./...")
	if err != nil {
		return nil, err
	}
	packages, err := decode(list)
	if err != nil {
		return nil, err
	}
	return reach(packages, strings.Fields(string(changed)+string(unknown))), nil
}

// listed is a package as go list prints it.
type listed struct {
	ImportPath, ForTest string
	Deps                []string // however far away
	Module              struct{ Path string }
}

func decode(list []byte) ([]listed, error) {
	var all []listed
	for d := json.NewDecoder(bytes.NewReader(list)); ; {
		var p listed
		switch err := d.Decode(&p); {
		case errors.Is(err, io.EOF):
			return all, nil
		case err != nil:
			return nil, fmt.Errorf("read go list: %w", err)
		}
		all = append(all, p)
	}
}

// reach returns the packages with tests that the changed files reach, sorted.
func reach(packages []listed, files []string) []string {
	known := map[string]bool{}
	for _, p := range packages {
		known[plain(p.ImportPath)] = true
	}
	code, tests, all := map[string]bool{}, map[string]bool{}, false
	for _, file := range files {
		if file == "go.mod" || file == "go.sum" {
			all = true
		}
		name := owner(known, packages[0].Module.Path, file)
		if strings.HasSuffix(file, "_test.go") {
			tests[name] = true
		} else {
			code[name] = true
		}
	}
	reached := map[string]bool{}
	for _, p := range packages {
		// The program of a package's tests depends on all that they need.
		name, isTest := strings.CutSuffix(p.ImportPath, ".test")
		if !isTest || !known[name] {
			continue
		}
		if all || tests[name] || code[name] || slices.ContainsFunc(p.Deps, func(d string) bool { return code[plain(d)] }) {
			reached[name] = true
		}
	}
	return slices.Sorted(maps.Keys(reached))
}

// owner returns the package that a file belongs to, or "".
func owner(known map[string]bool, module, file string) string {
	for folder := path.Dir(file); folder != "."; folder = path.Dir(folder) {
		if name := module + "/" + folder; known[name] {
			return name
		}
	}
	return ""
}

// plain returns a path without the tests that a variant of its package was made for, as in
// "a/b [a/b.test]".
func plain(importPath string) string {
	name, _, _ := strings.Cut(importPath, " ")
	return name
}

// output runs a command in a folder.
func output(folder, name string, args ...string) ([]byte, error) {
	var complaint bytes.Buffer
	command := exec.Command(name, args...)
	command.Dir, command.Stderr = folder, &complaint
	out, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %s", strings.Join(command.Args, " "), err, bytes.TrimSpace(complaint.Bytes()))
	}
	return out, nil
}
