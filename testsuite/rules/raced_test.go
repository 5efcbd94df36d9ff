package rules_test

import (
	"go/ast"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// sequential returns the packages whose tests don't need the race detector, as listed in
// .ci/raced.
func sequential(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile("../../.ci/raced")
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(text), "sequential='")
	require.True(t, found)
	names, _, found := strings.Cut(rest, "'")
	require.True(t, found)
	return strings.Fields(names)
}

// startsGoroutines reports whether a file starts goroutines, or shares memory with code
// that does.
func startsGoroutines(s source) bool {
	for _, p := range s.imports() {
		if within(p, "sync", "golang.org/x/sync") {
			return true
		}
	}
	found := false
	ast.Inspect(s.file, func(n ast.Node) bool {
		_, starts := n.(*ast.GoStmt)
		found = found || starts
		return !found
	})
	return found
}

func TestPackagesThatAreNotRacedStartNoGoroutine(t *testing.T) {
	t.Parallel()
	names := sequential(t)
	require.NotEmpty(t, names)
	seen := map[string]bool{}
	for _, s := range sources(t) {
		seen[s.folder] = true
		if slices.Contains(names, s.folder) && startsGoroutines(s) {
			t.Errorf("%s starts goroutines or holds locks: take %s out of the list in .ci/raced", s, s.folder)
		}
	}
	for _, name := range names {
		require.True(t, seen[name], ".ci/raced names %s, which is not there", name)
	}
}
