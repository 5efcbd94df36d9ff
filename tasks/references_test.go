package tasks_test

import (
	"bufio"
	"encoding/json"
	"math"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/tasks"
)

// readLines reads a file of JSON lines that a script in testdata wrote.
func readLines[T any](t *testing.T, path string) []T {
	t.Helper()
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	var out []T
	for s := bufio.NewScanner(f); s.Scan(); {
		var one T
		require.NoError(t, json.Unmarshal(s.Bytes(), &one))
		out = append(out, one)
	}
	require.NotEmpty(t, out)
	return out
}

// TestNumbersAreGradedAsMathVerifyDoes compares with the verdicts of testdata/numeric.py.
func TestNumbersAreGradedAsMathVerifyDoes(t *testing.T) {
	t.Parallel()
	right := 0
	for _, v := range readLines[struct {
		Gold, Result string
		Right        bool
	}](t, "testdata/numeric.jsonl") {
		got, err := tasks.Grade(spec.Grader{Type: spec.GraderNumeric}, tasks.Task{ID: "t", Answer: v.Gold}, v.Result)
		require.NoError(t, err)
		if (got == 1) != v.Right {
			t.Errorf("%q for %q: %v, Math-Verify says %v", v.Result, v.Gold, got, v.Right)
		}
		right += int(got)
	}
	require.Greater(t, right, 150)
}

// TestAnswersAreGradedAsHotpotQAAndMuSiQueDo compares with the scores of testdata/qa.py.
func TestAnswersAreGradedAsHotpotQAAndMuSiQueDo(t *testing.T) {
	t.Parallel()
	type scores struct{ F1, Exact float64 }
	right := 0
	for _, v := range readLines[struct {
		Answers []string
		Result  string
		scores
		MuSiQue *scores
	}](t, "testdata/qa.jsonl") {
		answer, err := json.Marshal(v.Answers)
		require.NoError(t, err)
		wanted := []scores{v.scores}
		right += int(v.Exact)
		if v.MuSiQue != nil {
			wanted = append(wanted, *v.MuSiQue)
		}
		for _, want := range wanted {
			for metric, score := range map[string]float64{spec.MetricF1: want.F1, spec.MetricExact: want.Exact} {
				got, err := tasks.Grade(spec.Grader{Type: spec.GraderQA, Metric: metric}, tasks.Task{ID: "t", Answer: string(answer)}, v.Result)
				require.NoError(t, err)
				if math.Abs(got-score) > 1e-12 {
					t.Errorf("%s of %q for %q: %v instead of %v", metric, v.Result, v.Answers, got, score)
				}
			}
		}
	}
	require.Greater(t, right, 100)
}
