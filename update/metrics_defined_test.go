package update_test

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const kinds = `(?:batch|reward|advantage|signals|judge|train|warm_start|critic|curriculum)`

var (
	// named finds the names of metrics in code.
	named = regexp.MustCompile(`"(` + kinds + `/[a-z_]*[a-z])"`)
	// shares finds the names of a curriculum's shares, which have no part before them.
	shares = regexp.MustCompile(`share\("([a-z_]+)"`)
	// spreads finds what is described by four numbers, or one for each name.
	spreads = regexp.MustCompile(`\.put\(out, "([a-z]+)/?"`)
	// defined finds the names in the document.
	defined = regexp.MustCompile("`(" + kinds + "/[a-z_]+)`")
)

// emitted returns the names of the metrics that the code writes.
func emitted(t *testing.T) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	for _, pattern := range []string{"*.go", "../workflows/*.go", "../record/*.go", "../activities/*.go"} {
		files, err := filepath.Glob(pattern)
		require.NoError(t, err)
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			code := string(text)
			for _, match := range named.FindAllStringSubmatch(code, -1) {
				found[match[1]] = true
			}
			for _, match := range shares.FindAllStringSubmatch(code, -1) {
				found["curriculum/"+match[1]] = true
			}
			for _, match := range spreads.FindAllStringSubmatch(code, -1) {
				for _, number := range []string{"mean", "std", "min", "max"} {
					found[match[1]+"/"+number] = true
				}
			}
		}
	}
	return found
}

// Each number has one definition, which people find in one place, and what is defined there
// exists.
func TestEveryMetricOfAStepIsDefined(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../docs/metrics.md")
	require.NoError(t, err)
	known := map[string]bool{}
	for _, match := range defined.FindAllStringSubmatch(string(text), -1) {
		known[match[1]] = true
	}
	for _, kind := range []string{"reward", "advantage"} { // written as `reward/mean`, `/std`, `/min`, `/max`
		for _, number := range []string{"std", "min", "max"} {
			known[kind+"/"+number] = strings.Contains(string(text), "`"+kind+"/mean`, `/std`, `/min`, `/max`")
		}
	}
	known["advantage/zero_fraction"] = strings.Contains(string(text), "`/max`, `/zero_fraction` |")
	found := emitted(t)
	require.Greater(t, len(found), 50)
	require.Equal(t, slices.Sorted(maps.Keys(found)), slices.Sorted(maps.Keys(known)))
	for name, ok := range known {
		require.True(t, ok, "docs/metrics.md does not define %s", name)
	}
	for _, name := range []string{"`train/last_NAME`", "`train/mismatch/HOST:PORT`", "`signals/NAME`, `signals/NAME_sum`", "`reward/NAME/…`"} {
		require.Contains(t, string(text), name, "a name of several metrics")
	}
}
