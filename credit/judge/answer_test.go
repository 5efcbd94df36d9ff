package judge_test

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/fulgurite/fulgurite/credit/judge"
)

func TestScoresAreFoundInWhatAJudgeSays(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]float64{
		"[1, 2.5]":                          {1, 2.5},
		"```json\n[0,10]\n```":              {0, 10},
		`{"scores": [3, 4]}`:                {3, 4},
		"[[3, 4]]":                          {3, 4},
		"First [a], then: [5, 6].":          {5, 6},
		"[5, 6]\nOnce more: [5.0, 6]":       {5, 6},
		"<think>[1, 1]? No.</think> [7, 8]": {7, 8},
		"[-0, 1e0]":                         {0, 1},
	} {
		got, err := judge.Read(text, 2)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
		require.False(t, math.Signbit(got[0]), text)
	}
	for text, why := range map[string]string{
		"":                              "it has no JSON array of numbers",
		"seven and eight":               "it has no JSON array of numbers",
		"[1, 2":                         "it has no JSON array of numbers",
		`["1", "2"]`:                    "it has no JSON array of numbers",
		"[1, null]":                     "it has no JSON array of numbers",
		"[1, 1e999]":                    "it has no JSON array of numbers",
		"[]":                            "it has 0 scores, and there are 2 calls",
		"[1]":                           "it has 1 scores, and there are 2 calls",
		"[1, 2, 3]":                     "it has 3 scores, and there are 2 calls",
		"[1, -0.5]":                     "score 2 is -0.5, which is not from 0 to 10",
		"[10.1, 1]":                     "score 1 is 10.1, which is not from 0 to 10",
		"[1, 2], or rather [2, 2]":      "it has more than one array of numbers",
		"[7, 8], see [1]":               "it has more than one array of numbers",
		strings.Repeat("[", 1<<20):      "it has too many brackets",
		strings.Repeat("[x", 300):       "it has too many brackets",
		"[1, 2]</think>no array at all": "it has no JSON array of numbers",
	} {
		_, err := judge.Read(text, 2)
		require.EqualError(t, err, why, "%.40s", text)
	}
}

func TestScoresAreReadAsTheyWereWritten(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.SliceOfN(rapid.Float64Range(0, 10), 1, 20).Draw(t, "scores")
		text, err := json.Marshal(want)
		require.NoError(t, err)
		before := rapid.StringMatching(`[a-z .\n]{0,20}`).Draw(t, "before")
		after := rapid.StringMatching(`[a-z .\n}]{0,20}`).Draw(t, "after")
		got, err := judge.Read(before+string(text)+after, len(want))
		require.NoError(t, err)
		require.Equal(t, want, got)
	})
}

// FuzzAnswers checks that any answer of a judge gives either n scores in range or an
// error.
func FuzzAnswers(f *testing.F) {
	for _, s := range []string{"[1,2]", "```\n[1]\n```", `{"scores":[0,10]}`, "[[1],[2]]", "[1][1]", "</think>[", "[1e400]", "[null]", "[ 1 , 2 ]x[1,2]"} {
		f.Add(s, 2)
	}
	f.Fuzz(func(t *testing.T, answer string, n int) {
		scores, err := judge.Read(answer, n)
		if err != nil {
			return
		}
		if len(scores) != n {
			t.Fatalf("%d scores, want %d", len(scores), n)
		}
		for _, s := range scores {
			if !(s >= 0 && s <= 10) {
				t.Fatalf("score %v", s)
			}
		}
	})
}
