package update_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// named finds the names of metrics in code.
var named = regexp.MustCompile(`"((?:batch|reward|advantage)/[a-z_]+)"`)

// Each number has one definition, which people find in one place.
func TestEveryMetricOfABatchIsDefined(t *testing.T) {
	t.Parallel()
	defined, err := os.ReadFile("../docs/metrics.md")
	require.NoError(t, err)
	found := map[string]bool{}
	for _, pattern := range []string{"*.go", "../workflows/*.go", "../record/*.go"} {
		files, err := filepath.Glob(pattern)
		require.NoError(t, err)
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			code, err := os.ReadFile(file)
			require.NoError(t, err)
			for _, match := range named.FindAllStringSubmatch(string(code), -1) {
				found[match[1]] = true
			}
		}
	}
	require.Greater(t, len(found), 12)
	for name := range found {
		first, last, _ := strings.Cut(name, "/")
		short := strings.Contains(string(defined), "`"+first+"/mean`") && strings.Contains(string(defined), "`/"+last+"`")
		require.True(t, short || strings.Contains(string(defined), "`"+name+"`"), "docs/metrics.md does not define %s", name)
	}
}
