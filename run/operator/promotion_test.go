package operator_test

import (
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/operator"
	"github.com/fulgurite/fulgurite/store"
)

// run returns a mover and the store of a run with versions 0 to 4. Of these, 0, 2 and 4
// were evaluated and promoted, one after the other.
func run(t *testing.T, gate int) (operator.Mover, *store.Store) {
	t.Helper()
	s, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "store.db"), nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	require.NoError(t, s.Migrate(t.Context()))
	_, _, err = s.CreateRun(t.Context(), record.Run{Name: "demo", Splits: map[record.Kind]record.Split{record.Gate: {Count: gate}}})
	require.NoError(t, err)
	previous := -1
	for v := range 5 {
		_, _, err := s.PutVersion(t.Context(), model.Version{VersionID: model.VersionID{Run: "demo", Policy: "main", Number: v}})
		require.NoError(t, err)
		if v%2 == 1 {
			continue
		}
		require.NoError(t, s.PutEvaluation(t.Context(), record.Evaluation{Run: "demo", Policy: "main", Kind: record.Gate, Version: v}))
		require.NoError(t, s.Promote(t.Context(), record.Promotion{
			Run: "demo", Policy: "main", DecisionID: "gate-" + string(rune('0'+v)), Version: v, Previous: previous,
		}))
		previous = v
	}
	return operator.Mover{Store: s, Run: "demo", Policy: "main", By: "ada@host"}, s
}

func promoted(t *testing.T, s *store.Store) record.Promotion {
	t.Helper()
	p, err := s.Promoted(t.Context(), "demo", "main")
	require.NoError(t, err)
	return p
}

func TestARollbackGoesBackOneVersionAtATime(t *testing.T) {
	t.Parallel()
	h, s := run(t, 8)
	for _, want := range []int{2, 0} {
		p, err := h.Rollback(t.Context(), nil, "it swears")
		require.NoError(t, err)
		require.Equal(t, want, p.Version)
		got := promoted(t, s)
		require.Equal(t, []any{want, record.SourceRollback, "ada@host", "it swears"}, []any{got.Version, got.Source, got.By, got.Reason})
	}
	_, err := h.Rollback(t.Context(), nil, "")
	require.ErrorIs(t, err, operator.ErrRefused)
	require.ErrorContains(t, err, "name the one to go back to")
	four := 4
	_, err = h.Rollback(t.Context(), &four, "back again")
	require.NoError(t, err)
	require.Equal(t, 4, promoted(t, s).Version)
}

func TestOnlyEvaluatedVersionsArePromotedByHand(t *testing.T) {
	t.Parallel()
	h, s := run(t, 8)
	for version, words := range map[int]string{3: "was not evaluated on the gate split", 9: "has no version 9"} {
		_, err := h.Rollback(t.Context(), &version, "")
		require.ErrorIs(t, err, operator.ErrRefused)
		require.ErrorContains(t, err, words)
		_, err = h.Pin(t.Context(), version, "")
		require.ErrorContains(t, err, words)
	}
	require.Equal(t, 4, promoted(t, s).Version)
	h, s = run(t, 0)
	_, err := h.Pin(t.Context(), 3, "without a gate split there is nothing to ask for")
	require.NoError(t, err)
	require.Equal(t, 3, promoted(t, s).Version)
}

func TestAPinHoldsUntilTheUnpin(t *testing.T) {
	t.Parallel()
	h, s := run(t, 8)
	_, err := h.Unpin(t.Context(), "")
	require.ErrorContains(t, err, "no version of run demo is pinned")
	_, err = h.Pin(t.Context(), 2, "the paper's")
	require.NoError(t, err)
	require.True(t, promoted(t, s).Pinned())
	_, err = h.Pin(t.Context(), 2, "again")
	require.ErrorContains(t, err, "pinned already, by ada@host")
	_, err = h.Rollback(t.Context(), nil, "")
	require.ErrorContains(t, err, "unpin it first")
	require.ErrorIs(t, s.Promote(t.Context(), record.Promotion{Run: "demo", Policy: "main", DecisionID: "gate-9", Version: 4, Previous: 2}), record.ErrPinned)
	_, err = h.Pin(t.Context(), 0, "the other paper's")
	require.NoError(t, err)
	_, err = h.Unpin(t.Context(), "done")
	require.NoError(t, err)
	require.Equal(t, []any{0, false}, []any{promoted(t, s).Version, promoted(t, s).Pinned()})
	require.NoError(t, s.Promote(t.Context(), record.Promotion{Run: "demo", Policy: "main", DecisionID: "gate-9", Version: 4, Previous: 0}))
}

func TestARunWithoutAPointerIsSaidSo(t *testing.T) {
	t.Parallel()
	h, s := run(t, 8)
	h.Run = "absent"
	_, err := h.Rollback(t.Context(), nil, "")
	require.ErrorIs(t, err, record.ErrNotFound)
	_, _, err = s.CreateRun(t.Context(), record.Run{Name: "fresh"})
	require.NoError(t, err)
	h.Run = "fresh"
	_, err = h.Pin(t.Context(), 0, "")
	require.ErrorContains(t, err, "no version of run fresh is promoted yet")
}

func TestOfManyHandsOneMovesThePointer(t *testing.T) {
	t.Parallel()
	h, s := run(t, 8)
	var moved atomic.Int64
	var g errgroup.Group
	for i := range 8 {
		g.Go(func() error {
			before, err := h.Store.Promotions(t.Context(), "demo", "main")
			if err != nil || len(before) > 3 {
				return err // another goroutine was faster
			}
			if i%2 == 0 {
				_, err = h.Pin(t.Context(), 2, "two")
			} else {
				_, err = h.Pin(t.Context(), 0, "zero")
			}
			if err == nil {
				moved.Add(1)
			}
			return nil
		})
	}
	require.NoError(t, g.Wait())
	require.Positive(t, moved.Load())
	all, err := s.Promotions(t.Context(), "demo", "main")
	require.NoError(t, err)
	for i := 1; i < len(all); i++ {
		require.Equal(t, all[i-1].Version, all[i].Previous, "each move began where the one before ended")
	}
}

func TestAVersionIsPromotedByHand(t *testing.T) {
	t.Parallel()
	h, s := run(t, 8)
	_, err := h.Promote(t.Context(), 4, "")
	require.ErrorContains(t, err, "is promoted already")
	_, err = h.Promote(t.Context(), 3, "")
	require.ErrorContains(t, err, "was not evaluated on the gate split")
	p, err := h.Promote(t.Context(), 0, "it is calmer")
	require.NoError(t, err)
	require.Equal(t, []any{0, record.SourcePromote, "ada@host", "it is calmer"}, []any{p.Version, p.Source, p.By, p.Reason})
	require.NoError(t, s.Promote(t.Context(), record.Promotion{Run: "demo", Policy: "main", DecisionID: "gate-9", Version: 2, Previous: 0}), "it is not held")
	back, err := h.Rollback(t.Context(), nil, "back")
	require.NoError(t, err)
	require.Equal(t, 0, back.Version, "a rollback leads to what a person promoted")
}

func TestOneOfSeveralPoliciesIsMovedByHandOnlyIfEachIsPromotedAlone(t *testing.T) {
	t.Parallel()
	o, s := newOperator(t)
	ctx := t.Context()
	const policies = `"policies":{"checker":{},"writer":{"match":[{"agent":"w"}]}}`
	for name, text := range map[string]string{"alone": `{"promotion":{"alone":true},` + policies + `}`, "together": `{` + policies + `}`, "single": `{}`} {
		_, _, err := s.CreateRun(ctx, record.Run{Name: name, Spec: []byte(text), Splits: map[record.Kind]record.Split{record.Gate: {Digest: "sha256:g", Count: 4}}})
		require.NoError(t, err)
	}
	for v := range 3 {
		for _, policy := range []string{"checker", "writer"} {
			_, _, err := s.PutVersion(ctx, model.Version{VersionID: model.VersionID{Run: "alone", Policy: policy, Number: v}})
			require.NoError(t, err)
		}
	}
	for i, e := range []record.Evaluation{{Policy: "main"}, {Policy: "writer", EvaluationResult: record.EvaluationResult{Version: 2}}} {
		e.Run, e.Kind = "alone", record.Gate
		require.NoError(t, s.PutEvaluation(ctx, e), i)
	}
	for _, policy := range []string{"checker", "writer"} {
		require.NoError(t, s.Promote(ctx, record.Promotion{Run: "alone", Policy: policy, DecisionID: "a", Previous: -1}))
	}
	move := func(run, policy string, name record.ActionName, version *int) (string, error) {
		a, err := o.Act(ctx, record.Action{ID: operator.NewID(), Run: run, Name: name, By: "ada@host", Input: record.ActionInput{Policy: policy, Version: version}})
		return a.Result.Message, err
	}
	message, err := move("alone", "writer", record.ActionPromote, new(2))
	require.NoError(t, err)
	require.Contains(t, message, "writer, version 0 → 2")
	p, err := s.Promoted(ctx, "alone", "checker")
	require.NoError(t, err)
	require.Equal(t, 0, p.Version, "the other stays")
	_, err = move("alone", "writer", record.ActionRollback, nil)
	require.NoError(t, err, "version 0 was evaluated with all others")
	for _, test := range []struct {
		run, policy, want string
		version           int
	}{
		{"alone", "", "its policies are promoted one by one: name one, as in alone:checker", 2},
		{"alone", "author", `it has no policy "author": it has checker, writer`, 2},
		{"alone", "checker", "version 2 of run alone was not evaluated on the gate split", 2},
		{"together", "writer", "its policies are promoted together: leave :writer out", 0},
		{"single", "writer", `it has no policy "writer", since it trains only one: leave :writer out`, 0},
	} {
		message, err := move(test.run, test.policy, record.ActionPromote, &test.version)
		require.ErrorIs(t, err, operator.ErrRefused)
		require.Contains(t, message, test.want)
	}
}
