package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/testsuite/chaos/checker"
)

// unharmed returns the report of a suite in which nothing went wrong.
func unharmed() report {
	return report{Kills: 3, Completed: true, DigestEqual: true, Runs: []runResult{{
		Findings: checker.Findings{Run: "chaos-1", Completed: true, CallsReplayed: 2}, DigestEqual: true,
	}}}
}

func TestWhateverIsWrongFailsTheSuite(t *testing.T) {
	t.Parallel()
	r := unharmed()
	require.True(t, r.asExpected(false))
	require.False(t, r.asExpected(true), "nothing was sampled again, so the journal was not missed")
	for name, spoil := range map[string]func(r *report){
		"not completed":  func(r *report) { r.Completed = false },
		"other weights":  func(r *report) { r.DigestEqual = false },
		"skipped":        func(r *report) { r.PromptsSkipped = 1 },
		"duplicated":     func(r *report) { r.PromptsDuplicated = 1 },
		"wrong":          func(r *report) { r.Runs[0].Wrong = []string{"a version too few"} },
		"other accounts": func(r *report) { r.Runs[0].Disagreements = []string{"calls replayed"} },
	} {
		r := unharmed()
		spoil(&r)
		require.False(t, r.asExpected(false), name)
		r.RecordedCallsSampledAgain = 1
		require.False(t, r.asExpected(true), "%s: not for the journal's sake alone", name)
	}
	r.RecordedCallsSampledAgain = 1
	require.False(t, r.asExpected(false))
	require.True(t, r.asExpected(true))
}

func TestAReportIsWrittenAndSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	r := unharmed()
	r.MedianRecovery, r.MaxRecovery = medianAndMax([]time.Duration{3 * time.Second, time.Second, 2 * time.Second, 4 * time.Second})
	r.Runs[0].Repeated = []string{"call 0 of train-1/0/0"}
	path := filepath.Join(t.TempDir(), "report.json")
	require.NoError(t, r.write(path))
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	var keys map[string]any
	require.NoError(t, json.Unmarshal(data, &keys))
	for _, key := range []string{
		"kills", "completed", "digest_equal", "prompts_skipped", "prompts_duplicated", "recorded_calls_sampled_again",
		"sampled_unrecorded", "calls_replayed", "median_recovery_seconds", "by_role", "runs", "seed", "seconds", "store", "journal", "machine",
	} {
		require.Contains(t, keys, key)
	}
	require.InDelta(t, 2.5, keys["median_recovery_seconds"], 1e-9)
	require.InDelta(t, 4, keys["max_recovery_seconds"], 1e-9)
	var text bytes.Buffer
	r.print(&text)
	require.Contains(t, text.String(), "WRONG  chaos-1: call 0 of train-1/0/0")
}

func TestTheProductsFiguresAreHeldAgainstTheEvidence(t *testing.T) {
	t.Parallel()
	e := checker.Evidence{Records: checker.Records{Samples: 4}}
	f := checker.Findings{Run: "chaos-1", Prompts: 8, Attempts: 9, CallsRecorded: 5, CallsReplayed: 2}
	const said = `{"prompts": {"issued": 2}, "attempts": {"total": 9, "calls": {"recorded": 7, "sampled": 5, "replayed": 2}}}`
	var a productReport
	require.NoError(t, json.Unmarshal([]byte(said), &a))
	require.Empty(t, a.differences(e, f, true))
	require.Len(t, a.differences(e, f, false), 1, "it finds fault where none is")
	a.Prompts.Skipped = 1
	a.Attempts.Calls.Replayed = 0
	require.Len(t, a.differences(e, f, true), 2)
	f.Wrong = []string{"a version too few"}
	a.Prompts.Skipped, a.Attempts.Calls.Replayed = 0, 2
	require.Empty(t, a.differences(e, f, false))
}
