package main

import (
	"bytes"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/testsuite/chaos/checker"
	"github.com/fulgurite/fulgurite/testsuite/chaos/processes"
)

func TestReportsAreAddedUp(t *testing.T) {
	t.Parallel()
	var names []string
	for i, longest := range []float64{3, 8} {
		r := unharmed()
		median := longest / 2
		r.ByRole = map[processes.Role]recovery{processes.Gateway: {Kills: 3, Hangs: 1, Median: &median, Max: &longest}}
		r.PagesRead, r.SampledUnrecorded = 5, 9
		if i == 1 {
			r.Runs[0].DigestEqual, r.Runs[0].Wrong = false, []string{"a version too many"}
			r.Error = "it stopped"
			r.Runs[0].Traffic, r.Runs[0].SampledUnrecorded = &checker.TrafficFindings{Unrecorded: 6}, 7
		}
		name := filepath.Join(t.TempDir(), "report.json")
		require.NoError(t, r.write(name))
		names = append(names, name)
	}
	var out bytes.Buffer
	require.NoError(t, printSum(names, &out))
	for _, row := range []string{
		"| kills (SIGKILL) | 6 |", "| runs | 2 |", "| runs with other weights, answers or winner than without faults | 1 |", "| pages read | 10 |",
		"| calls sampled and lost before their commit | 11 |", "does not consent | 7 |",
		"| anything else that the checker found wrong | 2 |", "| gateway | 6 | 2 | 2.8 | 8.0 |", "a version too many", "it stopped",
	} {
		require.Contains(t, out.String(), row)
	}
	require.Error(t, printSum(nil, &out))
	require.ErrorContains(t, printSum([]string{filepath.Join(t.TempDir(), "none.json")}, &out), "none.json")
}
