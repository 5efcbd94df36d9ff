package catalog_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/catalog"
	"github.com/fulgurite/fulgurite/spec"
)

// countingStore counts the reads of prompts.
type countingStore struct {
	catalog.Store
	reads int
}

func (s *countingStore) Promoted(ctx context.Context, run, policy string) (record.Promotion, error) {
	if policy == record.PromptsPolicy {
		s.reads++
	}
	return s.Store.Promoted(ctx, run, policy)
}

func (s *countingStore) PromptVersion(ctx context.Context, run string, number int) (record.PromptVersion, error) {
	s.reads++
	return s.Store.PromptVersion(ctx, run, number)
}

func TestThePromotedPromptsOfARunAreServed(t *testing.T) {
	t.Parallel()
	ctx, s := t.Context(), newFakeRecords(t)
	counting := &countingStore{Store: s.store}
	s.Store = counting
	_, err := s.Resolve(ctx, "demo")
	require.NoError(t, err)
	require.Zero(t, counting.reads, "a run without prompts needs none")

	_, _, err = s.store.CreateRun(ctx, record.Run{
		Name: "prompted", Spec: []byte(`{"model":{"codec":"compact"},"prompts":{"texts":[{"name":"writer","text":"Write."}],"digest":"sha256:spec"}}`),
		Splits: map[record.Kind]record.Split{record.Gate: {Digest: "sha256:g", Count: 4}},
	})
	require.NoError(t, err)
	weights := s.versions[0]
	weights.Run = "prompted"
	s.put(t, weights)
	require.NoError(t, s.store.Promote(ctx, record.Promotion{Run: "prompted", Policy: "main", DecisionID: "d", Version: 0, Previous: -1}))
	check := func(digest string, number int) {
		t.Helper()
		for _, name := range []string{"prompted", "prompted@promoted", "prompted@newest", "prompted@0"} {
			served, err := s.Resolve(ctx, name)
			require.NoError(t, err)
			require.Equal(t, model.Served{
				VersionID: weights.VersionID, MaxCalls: spec.DefaultMaxCalls, Codec: "compact", Prompts: digest, PromptsNumber: number,
				Newest: name == "prompted@newest", Pinned: name == "prompted@0",
			}, served, name)
		}
	}
	check("sha256:spec", 0) // nothing of the prompts is promoted, as in a training

	move := func(from, to int, source record.Source) {
		t.Helper()
		require.NoError(t, s.store.Promote(ctx, record.Promotion{
			Run: "prompted", Policy: record.PromptsPolicy, DecisionID: string(source), Version: to, Previous: from, Source: source,
		}))
	}
	move(-1, 0, record.SourceGate)
	check("sha256:spec", 0) // version 0 is not on record before the end of the search
	require.NoError(t, s.store.PutPromptVersion(ctx, record.PromptVersion{Run: "prompted", Number: 1, Prompts: "sha256:winner"}))
	move(0, 1, record.SourcePromote)
	check("sha256:winner", 1)
	move(1, 0, record.SourceRollback)
	check("sha256:spec", 0)
	move(0, 1, record.SourcePin)
	check("sha256:winner", 1)
}
