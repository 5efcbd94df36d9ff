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
	const begin = "--- writer, candidate 0\n+++ writer, candidate 1\n"
	for name, c := range map[string]struct {
		before, after, want string
		colour              bool
	}{
		"a line":         {before: "a\nb\nc\nd\ne\nf", after: "a\nb\nc\nd\nE\nf", want: "@@ -2,5 +2,5 @@\n b\n c\n d\n-e\n+E\n f\n"},
		"two places":     {before: "x\na\nb\nc\nd\ne\nf\ng\ny", after: "a\nb\nc\nd\ne\nf\ng\nz", want: "@@ -1,4 +1,3 @@\n-x\n a\n b\n c\n@@ -6,4 +5,4 @@\n e\n f\n g\n-y\n+z\n"},
		"lines together": {before: "1\n2", after: "3\n4\n5", want: "@@ -1,2 +1,3 @@\n-1\n-2\n+3\n+4\n+5\n"},
		"an end of line": {before: "a", after: "a\n", want: "@@ -1 +1,2 @@\n a\n+\n"},
		"from nothing":   {after: "a", want: "@@ -0,0 +1 @@\n+a\n"},
		"control":        {before: "a", after: "\x1b[2J", want: "@@ -1 +1 @@\n-a\n+\\x1b[2J\n"},
		"words":          {before: "Sort the word.\nb", after: "Sort each word.\nb", colour: true, want: "@@ -1,2 +1,2 @@\n\x1b[31m-Sort \x1b[7mthe\x1b[27m word.\x1b[0m\n\x1b[32m+Sort \x1b[7meach\x1b[27m word.\x1b[0m\n b\n"},
		"whole lines":    {before: "one", after: "other things", colour: true, want: "@@ -1 +1 @@\n\x1b[31m-one\x1b[0m\n\x1b[32m+other things\x1b[0m\n"},
	} {
		require.Equal(t, begin+c.want, lineDiff(textChange{"writer", c.before, c.after}, "candidate 0", "candidate 1", c.colour), name)
	}
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
