package activities_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/prompts"
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
