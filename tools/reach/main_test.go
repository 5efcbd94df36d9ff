package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// Package a is imported by b, and b by the tests of c. Package d stands alone.
const list = `
{"ImportPath": "m/a", "Module": {"Path": "m"}}
{"ImportPath": "m/a.test", "Deps": ["m/a [m/a.test]"], "Module": {"Path": "m"}}
{"ImportPath": "m/b", "Deps": ["m/a"], "Module": {"Path": "m"}}
{"ImportPath": "m/b.test", "Deps": ["m/a", "m/b [m/b.test]"], "Module": {"Path": "m"}}
{"ImportPath": "m/c", "Module": {"Path": "m"}}
{"ImportPath": "m/c.test", "Deps": ["m/a", "m/b", "m/c [m/c.test]"], "Module": {"Path": "m"}}
{"ImportPath": "m/d", "Module": {"Path": "m"}}
{"ImportPath": "m/d.test", "Deps": ["m/d [m/d.test]"], "Module": {"Path": "m"}}
`

func TestAChangeReachesWhatImportsIt(t *testing.T) {
	t.Parallel()
	packages, err := decode([]byte(list))
	require.NoError(t, err)
	for name, c := range map[string]struct {
		files, want []string
	}{
		"code":                   {[]string{"a/code.go"}, []string{"m/a", "m/b", "m/c"}},
		"in the middle":          {[]string{"b/code.go"}, []string{"m/b", "m/c"}},
		"a test":                 {[]string{"a/code_test.go"}, []string{"m/a"}},
		"data of a package":      {[]string{"b/testdata/kept/one.json"}, []string{"m/b", "m/c"}},
		"a document":             {[]string{"README.md", "docs/page.md"}, nil},
		"two":                    {[]string{"d/code.go", "c/code.go"}, []string{"m/c", "m/d"}},
		"other modules' numbers": {[]string{"go.mod"}, []string{"m/a", "m/b", "m/c", "m/d"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.want, reach(packages, c.files))
		})
	}
	_, err = decode([]byte("{"))
	require.ErrorContains(t, err, "read go list")
}

func TestTheChangeOfAModuleIsFound(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	git := func(arguments ...string) {
		_, err := output(dir, "git", append([]string{"-c", "user.name=a", "-c", "user.email=a@b"}, arguments...)...)
		require.NoError(t, err)
	}
	write("go.mod", "module m\n")
	write("a/a.go", "package a\n")
	write("b/b.go", "package b\n\nimport _ \"m/a\"\n")
	write("b/b_test.go", "package b\n")
	write("d/d_test.go", "package d\n")
	git("init", "-q")
	git("add", ".")
	git("commit", "-qm", "first")

	reached, err := run(dir, "HEAD")
	require.NoError(t, err)
	require.Empty(t, reached)
	write("a/a.go", "package a\n\nconst changed = true\n")
	reached, err = run(dir, "HEAD")
	require.NoError(t, err)
	require.Equal(t, []string{"m/b"}, reached)
	write("d/new_test.go", "package d\n")
	reached, err = run(dir, "HEAD")
	require.NoError(t, err)
	require.Equal(t, []string{"m/b", "m/d"}, reached, "a file that git does not know")
	_, err = run(dir, "no-such-commit")
	require.ErrorContains(t, err, "no-such-commit")
}
