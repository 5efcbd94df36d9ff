package results

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/prompts/search"
	"github.com/fulgurite/fulgurite/run/promptsearch"
	"github.com/fulgurite/fulgurite/spec"
)

func TestOnlyTheLinesThatChangedAreShown(t *testing.T) {
	t.Parallel()
	text, err := lineDiff(textChange{"writer", "a\nb\nc\nd\ne\nf", "a\nb\nc\nd\nE\nf\n"}, "candidate 0", "candidate 1")
	require.NoError(t, err)
	require.Equal(t, "--- writer, candidate 0\n+++ writer, candidate 1\n@@ -2,5 +2,5 @@\n b\n c\n d\n-e\n+E\n f\n", text)
}

func TestTheBestCandidatesComeFirstAndTheEarliestOfEquals(t *testing.T) {
	t.Parallel()
	var all []promptsearch.Candidate
	for i, score := range []float64{0.5, 0.75, -1, 0.75, 1} {
		c := promptsearch.Candidate{Number: i}
		if score >= 0 {
			c.Score = &score
		}
		all = append(all, c)
	}
	var got []int
	for _, c := range best(all, 3) {
		got = append(got, c.Number)
	}
	require.Equal(t, []int{4, 1, 3}, got)
}

func TestArgumentsThatDoNotGoTogetherAreRefused(t *testing.T) {
	t.Parallel()
	for words, c := range map[string]Prompts{
		"give one of them":             {Text: true, Diff: true, Which: []string{"0", "1"}},
		"give two":                     {Diff: true, Which: []string{"0"}},
		`"1": that is one`:             {Text: true, Which: []string{"0", "1"}},
		`"0": a candidate is for`:      {Which: []string{"0"}},
		`"best": a candidate is for`:   {All: true, Which: []string{"best"}},
		`"2": that is one candidate`:   {Diff: true, Which: []string{"0", "1", "2"}},
		"--all, --text, --diff and --": {All: true, Export: "x"},
	} {
		require.ErrorContains(t, c.check(), words)
	}
	for _, c := range []Prompts{{}, {All: true}, {Text: true}, {Diff: true, Which: []string{"0", "1"}}, {Export: "x", Which: []string{"0"}}} {
		require.NoError(t, c.check())
	}
}

// What was written is read again as the same prompts, whatever their texts are.
func TestExportedPromptsAreThoseThatWereExported(t *testing.T) {
	t.Parallel()
	position := 0
	p := spec.Prompts{
		Texts: []spec.PromptText{{Name: "writer", Text: "first"}, {Name: "on", Text: "x {a}", Placeholders: []string{"a"}}},
		Rules: []spec.PromptRule{
			{Prompt: "writer", Match: spec.PromptMatch{Role: "system", Exact: "<Write>: \"yes\"\n# é & no"}},
			{Prompt: "on", Match: spec.PromptMatch{Role: "user", Position: &position}},
		},
		MaxBytes: 1000,
	}
	candidate := search.NewCandidate([]search.Prompt{{Name: "writer", Text: "  two\n\nlines \n"}, {Name: "on", Text: "y: {a}"}})
	set, err := p.WithTexts(candidate.Text)
	require.NoError(t, err)
	dir := t.TempDir()
	files, err := exportPrompts(dir, p, promptTexts{Prompts: set.Digest(), candidate: promptsearch.Candidate{Candidate: candidate}})
	require.NoError(t, err)
	require.Len(t, files, 3)
	section, err := os.ReadFile(filepath.Join(dir, sectionFile))
	require.NoError(t, err)
	file := filepath.Join(dir, "spec.yaml")
	require.NoError(t, os.WriteFile(file, append([]byte("agent: {func: a}\ntasks: {train: \"arithmetic:train:4\"}\ngrader: {type: exact}\ntraining: {steps: 1}\n"), section...), 0o600))
	read, err := spec.Load(file)
	require.NoError(t, err)
	read, err = read.ReadPrompts() // it refuses another digest
	require.NoError(t, err)
	again, err := read.Prompts.Set()
	require.NoError(t, err)
	require.Equal(t, set.Digest(), again.Digest())
}
