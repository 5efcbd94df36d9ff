package activities_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/prompts"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
)

func TestThePromptsOfARunAreFixedWhenItIsPrepared(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	w.write("writer.txt", "Write one query.\n")
	s := w.spec()
	s.Prompts = &spec.Prompts{
		Texts: []spec.PromptText{{Name: "writer", File: "writer.txt"}},
		Rules: []spec.PromptRule{{Prompt: "writer", Match: spec.PromptMatch{Prefix: "old"}}},
	}
	got := w.prepare(s)
	require.Nil(t, got.Spec.Prompts, "no workflow needs them")
	w.write("writer.txt", "Something else.\n")
	require.Equal(t, got, w.prepare(s), "the file may change")

	run, err := w.store.Run(t.Context(), "demo")
	require.NoError(t, err)
	kept, err := spec.Stored(run.Spec)
	require.NoError(t, err)
	require.Equal(t, spec.PromptText{Name: "writer", Text: "Write one query."}, kept.Prompts.Texts[0])
	require.Equal(t, spec.Digest(kept), spec.Digest(kept.WithDefaults()))
	terms := activities.AttemptTerms(kept, model.VersionID{Run: "demo", Policy: model.DefaultPolicy})
	require.Equal(t, kept.PromptsDigest(), terms.Prompts)

	encoded, err := w.blobs.Get(t.Context(), terms.Prompts)
	require.NoError(t, err)
	set, err := prompts.Decode(encoded)
	require.NoError(t, err)
	require.Equal(t, terms.Prompts, set.Digest())
	text, err := set.Prompts().Text("writer")
	require.NoError(t, err)
	require.Equal(t, "Write one query.", text)
	require.Equal(t, []prompts.Rule{{Prompt: "writer", Match: prompts.Match{Role: prompts.System, Prefix: "old"}}}, set.Rules())
}

func TestARunWithoutPromptsHasNoneInItsTerms(t *testing.T) {
	t.Parallel()
	require.Empty(t, activities.AttemptTerms(newTestEnv(t).spec().WithDefaults(), model.VersionID{}).Prompts)
}

func TestPromptsThatDontMatchTheirRulesAreRefused(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	s := w.spec()
	s.Prompts = &spec.Prompts{
		Texts: []spec.PromptText{{Name: "writer", File: "absent.txt"}, {Name: "critic", Text: "x"}},
		Rules: []spec.PromptRule{{Prompt: "riter", Match: spec.PromptMatch{Role: "assistant"}}},
	}
	_, err := do[activities.PrepareRunResult](t, w.coordinator.PrepareRun, w.request(s))
	requireRefused(t, err, "prompts.texts[0].file", "absent.txt", "prompts.rules[0].prompt", `"riter"`, "prompts.rules[0].match.role")
}

func TestARunBeginsWithTheTextsOfAVersionOfAnotherRunsPrompts(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	other := func(version string, texts ...spec.PromptText) (spec.Spec, error) {
		s := w.spec()
		s.Prompts = &spec.Prompts{Version: version, Texts: texts, Rules: []spec.PromptRule{{Prompt: "writer", Match: spec.PromptMatch{Prefix: "old"}}}}
		in := w.request(s)
		in.Run, in.WorkflowID, in.ExecutionID = "other", "other", "execution-2"
		if _, err := do[activities.PrepareRunResult](t, w.coordinator.PrepareRun, in); err != nil {
			return s, err
		}
		return w.catalog.Spec(t.Context(), "other")
	}
	_, err := other("demo@0")
	requireRefused(t, err, "prompts.version: no run demo is on record")
	s := w.spec()
	s.Prompts = &spec.Prompts{Texts: []spec.PromptText{{Name: "writer", Text: "first"}}}
	w.prepare(s)
	_, err = other("demo@1")
	requireRefused(t, err, "prompts.version: run demo has no version 1 of its prompts")
	_, err = other("demo@0", spec.PromptText{Name: "writer"}, spec.PromptText{Name: "critic"})
	requireRefused(t, err, "prompts.texts[1].name", "critic")

	better, err := prompts.New(map[string]prompts.Prompt{"writer": {Text: "better"}})
	require.NoError(t, err)
	set, err := prompts.NewSet(better, nil)
	require.NoError(t, err)
	digest, err := w.blobs.Put(t.Context(), set.Encode())
	require.NoError(t, err)
	require.NoError(t, w.store.PutPromptVersion(t.Context(), record.PromptVersion{Run: "demo", Number: 1, Prompts: digest, Candidate: "c"}))
	got, err := other("demo@1")
	require.NoError(t, err)
	require.Equal(t, []spec.PromptText{{Name: "writer", Text: "better"}}, got.Prompts.Texts)
	encoded, err := w.blobs.Get(t.Context(), got.PromptsDigest())
	require.NoError(t, err)
	served, err := prompts.Decode(encoded)
	require.NoError(t, err)
	require.Equal(t, got.PromptsDigest(), served.Digest())
	require.Len(t, served.Rules(), 1, "rules are the run's own")
}
