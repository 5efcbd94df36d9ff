package report_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/run/report"
)

func TestCollectedVersionsAreListedInRanges(t *testing.T) {
	t.Parallel()
	require.Empty(t, report.CollectedText(nil))
	for want, versions := range map[string][]int{
		"7":           {7},
		"1–2":         {1, 2},
		"1–3, 5, 7–9": {1, 2, 3, 5, 7, 8, 9},
	} {
		text := report.CollectedText(versions)
		require.True(t, strings.HasSuffix(text, ": "+want), text)
	}
}
