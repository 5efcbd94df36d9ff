package operator_test

import (
	"encoding/json"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/operator"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/store"
)

// The versions of a search are prompts: its weights have one version, which stays.
func TestThePointerOfASearchIsThatOfItsPrompts(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s, err := store.Open(ctx, filepath.Join(t.TempDir(), "store.db"), nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	require.NoError(t, s.Migrate(ctx))
	data, err := json.Marshal(spec.Spec{
		Prompts: &spec.Prompts{Texts: []spec.PromptText{{Name: "writer", Text: "Write."}}}, Optimizer: &spec.PromptOptimizer{},
	})
	require.NoError(t, err)
	_, _, err = s.CreateRun(ctx, record.Run{Name: "demo", Spec: data, Splits: map[record.Kind]record.Split{record.Gate: {Count: 8}}})
	require.NoError(t, err)
	require.NoError(t, s.Promote(ctx, record.Promotion{Run: "demo", Policy: "main", DecisionID: "gate-0", Previous: -1}))
	for v := range 3 {
		require.NoError(t, s.PutPromptVersion(ctx, record.PromptVersion{Run: "demo", Number: v, Parent: v - 1, Prompts: "sha256:" + string(rune('0'+v))}))
		if v == 2 {
			continue
		}
		require.NoError(t, s.PutEvaluation(ctx, record.Evaluation{Run: "demo", Policy: record.PromptsPolicy, Kind: record.Gate, Version: v}))
		require.NoError(t, s.Promote(ctx, record.Promotion{
			Run: "demo", Policy: record.PromptsPolicy, DecisionID: "gate-" + string(rune('0'+v)), Version: v, Previous: v - 1,
		}))
	}
	act := func(name record.ActionName, version *int) error {
		_, err := operator.Operator{Store: s}.Act(ctx, record.Action{ID: operator.NewID(), Run: "demo", Name: name, By: "ada@host", Input: record.ActionInput{Version: version}})
		return err
	}
	promoted := func(policy string) int {
		p, err := s.Promoted(ctx, "demo", policy)
		require.NoError(t, err)
		return p.Version
	}
	require.NoError(t, act(record.ActionRollback, nil))
	require.Equal(t, 0, promoted(record.PromptsPolicy))
	one, two, nine := 1, 2, 9
	for version, words := range map[*int]string{&two: "was not evaluated on the gate split", &nine: "has no version 9: `fulgurite prompts demo`"} {
		err := act(record.ActionPin, version)
		require.ErrorIs(t, err, operator.ErrRefused)
		require.ErrorContains(t, err, words)
	}
	require.NoError(t, act(record.ActionPin, &one))
	require.Equal(t, 1, promoted(record.PromptsPolicy))
	require.ErrorContains(t, act(record.ActionRollback, nil), "pinned")
	require.NoError(t, act(record.ActionUnpin, nil))
	require.Equal(t, 0, promoted("main"), "the weights stay")
}
