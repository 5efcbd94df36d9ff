package store_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/store"
)

func TestTheFirstAnswerToARequestStands(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		answers, err := s.SearchAnswers(t.Context(), "demo", 0)
		require.NoError(t, err)
		require.Empty(t, answers, "none is no error")
		want := record.SearchAnswer{Run: "demo", Request: "seed", Answer: json.RawMessage(`{"request":"seed"}`), Reflection: "k", At: noon}
		got, created, err := s.PutSearchAnswer(t.Context(), want)
		require.NoError(t, err)
		require.True(t, created)
		requireEqual(t, want, got)
		other := want
		other.Answer = json.RawMessage(`{"request":"seed","retries":1}`)
		got, created, err = s.PutSearchAnswer(t.Context(), other)
		require.NoError(t, err)
		require.False(t, created)
		requireEqual(t, want, got)

		other.Run = "other"
		_, created, err = s.PutSearchAnswer(t.Context(), other)
		require.NoError(t, err)
		require.True(t, created, "runs are apart")
	})
}

func TestAnswersThatComeTogetherGetNumbersOfTheirOwn(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		const n = 20
		var g errgroup.Group
		for i := range 2 * n { // each twice
			g.Go(func() error {
				request := fmt.Sprintf("%d", i%n)
				_, _, err := s.PutSearchAnswer(t.Context(), record.SearchAnswer{Run: "demo", Request: request, Answer: json.RawMessage(`{}`)})
				return err
			})
		}
		require.NoError(t, g.Wait())
		answers, err := s.SearchAnswers(t.Context(), "demo", 0)
		require.NoError(t, err)
		require.Len(t, answers, n)
		for i, a := range answers {
			require.Equal(t, i, a.Number)
		}
		later, err := s.SearchAnswers(t.Context(), "demo", n-3)
		require.NoError(t, err)
		requireEqual(t, answers[n-3:], later)
	})
}

func TestTheFirstReflectionStands(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		_, err := s.Reflection(t.Context(), "k")
		require.ErrorIs(t, err, record.ErrNotFound)
		want := record.Reflection{
			Key: "k", Reply: record.ReflectionReply{Model: "m", Text: "```\nbe brief\n```", CutOff: true, InputTokens: 7, OutputTokens: 3},
			Run: "demo", Request: "p0-reflect", At: noon,
		}
		got, created, err := s.PutReflection(t.Context(), want)
		require.NoError(t, err)
		require.True(t, created)
		requireEqual(t, want, got)
		other := want
		other.Reply.Text, other.Run = "another", "other"
		got, created, err = s.PutReflection(t.Context(), other)
		require.NoError(t, err)
		require.False(t, created)
		requireEqual(t, want, got)
		all, err := s.Reflections(t.Context(), "demo")
		require.NoError(t, err)
		requireEqual(t, []record.Reflection{want}, all)
		all, err = s.Reflections(t.Context(), "other")
		require.NoError(t, err)
		require.Empty(t, all, "it found the reply on record")
	})
}

func TestWhatARunHasUsedIsCounted(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		ctx := t.Context()
		spent, err := s.Spent(ctx, "demo")
		require.NoError(t, err)
		require.Zero(t, spent)
		for _, run := range []string{"demo", "other"} {
			_, _, err = s.PutReflection(ctx, record.Reflection{Key: "k-" + run, Run: run, Request: "p0"})
			require.NoError(t, err)
			_, _, err = s.PutJudgment(ctx, record.Judgment{Key: "k-" + run, Model: "m", Scores: []float64{1}, Run: run, Policy: "main", Step: 1})
			require.NoError(t, err)
			require.NoError(t, s.PutNonsense(ctx, record.Nonsense{Run: run, Policy: "main", Step: 1, Judgment: "k", Try: 1, Answer: "?", Reason: "no score"}))
		}
		spent, err = s.Spent(ctx, "demo")
		require.NoError(t, err)
		require.Equal(t, record.Spent{Calls: 3}, spent)
	})
}

func TestVersionsOfPromptsNeverChange(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		zero := record.PromptVersion{Run: "demo", Parent: -1, Prompts: "sha256:00", At: noon}
		one := record.PromptVersion{Run: "demo", Number: 1, Prompts: "sha256:01", Candidate: "c1", At: noon}
		for _, v := range []record.PromptVersion{zero, one, one} {
			require.NoError(t, s.PutPromptVersion(t.Context(), v))
		}
		changed := one
		changed.Prompts = "sha256:02"
		require.ErrorIs(t, s.PutPromptVersion(t.Context(), changed), record.ErrConflict)
		got, err := s.PromptVersion(t.Context(), "demo", 1)
		require.NoError(t, err)
		requireEqual(t, one, got)
		_, err = s.PromptVersion(t.Context(), "demo", 2)
		require.ErrorIs(t, err, record.ErrNotFound)
		all, err := s.PromptVersions(t.Context(), "demo")
		require.NoError(t, err)
		requireEqual(t, []record.PromptVersion{zero, one}, all)
	})
}
