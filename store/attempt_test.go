package store_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/store"
)

func TestAttemptIsReadAsItWasWritten(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		before := time.Now()
		a := begin(t, s, rollout(17, 2))
		require.Equal(t, "demo/train-3/17/2/1", a.String())
		got, err := s.Attempt(t.Context(), a)
		require.NoError(t, err)
		require.WithinRange(t, got.Begun, before.Add(-time.Second), time.Now().Add(time.Second))
		require.Equal(t, time.UTC, got.Begun.Location())
		want := record.Attempt{Address: a, Terms: terms, KeyHash: "c0ffee", TaskID: "task-x", Begun: got.Begun}
		requireEqual(t, want, got)

		appendCalls(t, s, call(a, 0, []int32{1}, []int32{2, 3}), call(a, 1, []int32{4}, []int32{5}))
		want.Outcome, want.Reward, want.Result = record.AgentFailed, number(-0.25), "42"
		want.Failure, want.Error, want.Verdict = "exit", "exit status 1", "The query fails."
		want.Ended = time.Date(2026, 11, 20, 0, 0, 1, 5, time.UTC)
		require.NoError(t, s.SealAttempt(t.Context(), want))
		want.Calls, want.Tokens = 2, 3
		got, err = s.Attempt(t.Context(), a)
		require.NoError(t, err)
		requireEqual(t, want, got)
	})
}

func TestWhatIsNotThereIsNotFound(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		a := record.Address{RolloutID: rollout(1, 1), Attempt: 1}
		_, err := s.Attempt(t.Context(), a)
		require.ErrorIs(t, err, record.ErrNotFound)
		require.ErrorContains(t, err, a.String())
		_, err = s.CurrentAttempt(t.Context(), a.RolloutID)
		require.ErrorIs(t, err, record.ErrNotFound)
		c := call(a, 0, []int32{1}, nil)
		require.ErrorIs(t, s.AppendCall(t.Context(), &c), record.ErrNotFound)
		require.ErrorIs(t, s.SealAttempt(t.Context(), record.Attempt{Address: a, Outcome: record.OutcomeCompleted}), record.ErrNotFound)
		require.ErrorIs(t, s.PutReward(t.Context(), record.Reward{Address: a, Name: "final"}), record.ErrNotFound)
		require.ErrorIs(t, s.PutEvent(t.Context(), record.Event{Address: a, Name: "x"}), record.ErrNotFound)
		_, err = s.Trajectories(t.Context(), []record.Address{a})
		require.ErrorIs(t, err, record.ErrNotFound)
	})
}

func TestWhatIsNoRolloutHasNoAttempt(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		for _, id := range []record.RolloutID{
			{Run: "a/b", Kind: record.Train}, {Run: "demo", Kind: "nap"}, {Run: "demo", Kind: record.Train, Task: -1}, {},
		} {
			_, err := s.BeginAttempt(t.Context(), id, "x", terms, "")
			require.ErrorIs(t, err, record.ErrAddress)
		}
	})
}

func TestNextAttemptFencesTheLast(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		first := begin(t, s, rollout(0, 0))
		other := begin(t, s, rollout(0, 1))
		second := begin(t, s, rollout(0, 0))
		require.Equal(t, []int{1, 1, 2}, []int{first.Attempt, other.Attempt, second.Attempt})

		c := call(first, 0, []int32{1}, []int32{2})
		require.ErrorIs(t, s.AppendCall(t.Context(), &c), record.ErrFenced)
		require.ErrorIs(t, s.PutReward(t.Context(), record.Reward{Address: first, Name: "final", Source: "agent"}), record.ErrFenced)
		require.ErrorIs(t, s.PutReward(t.Context(), record.Reward{Address: first, Name: "final", Source: store.Grader}), record.ErrFenced)
		require.ErrorIs(t, s.PutEvent(t.Context(), record.Event{Address: first, Name: "x"}), record.ErrFenced)
		require.ErrorIs(t, s.SealAttempt(t.Context(), record.Attempt{Address: first, Outcome: record.OutcomeCompleted}), record.ErrFenced)
		appendCalls(t, s, call(second, 0, []int32{1}, []int32{2}), call(other, 0, []int32{1}, []int32{2}))

		current, err := s.CurrentAttempt(t.Context(), rollout(0, 0))
		require.NoError(t, err)
		require.Equal(t, second, current.Address)
	})
}

func TestAnAttemptEndsWhenItIsSealedOrReplaced(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		before := time.Now()
		first := begin(t, s, rollout(0, 0))
		end := func(a record.Address) time.Time {
			t.Helper()
			at, err := s.AttemptEnd(t.Context(), a)
			require.NoError(t, err)
			return at
		}
		require.Zero(t, end(first))
		second := begin(t, s, rollout(0, 0))
		replaced := end(first)
		require.WithinRange(t, replaced, before, time.Now())
		require.Zero(t, end(second))
		begin(t, s, rollout(0, 0))
		require.Equal(t, replaced, end(first), "it ended when the next one began")
		third := second
		third.Attempt = 3
		sealed := time.Now().Add(-time.Minute)
		require.NoError(t, s.SealAttempt(t.Context(), record.Attempt{Address: third, Outcome: record.OutcomeCompleted, Ended: sealed}))
		require.WithinDuration(t, sealed, end(third), time.Microsecond)
		third.Attempt = 4
		_, err := s.AttemptEnd(t.Context(), third)
		require.ErrorIs(t, err, record.ErrNotFound)
	})
}

// Once BeginAttempt returned, the earlier attempt has all the calls that it
// will ever have, and exactly those whose writers were told so.
func TestNoCallSlipsPastTheFence(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		first := begin(t, s, rollout(0, 0))
		var acknowledged atomic.Int64
		started := make(chan struct{})
		var once sync.Once
		var g errgroup.Group
		for w := range 8 {
			g.Go(func() error {
				for i := 0; ; i++ {
					c := call(first, 8*i+w, []int32{1}, []int32{2})
					err := s.AppendCall(t.Context(), &c)
					if errors.Is(err, record.ErrFenced) {
						return nil
					}
					if err != nil {
						return err
					}
					if acknowledged.Add(1) == 20 {
						once.Do(func() { close(started) })
					}
				}
			})
		}
		<-started
		begin(t, s, rollout(0, 0))
		fenced, err := s.Exchanges(t.Context(), first)
		require.NoError(t, err)
		require.NoError(t, g.Wait())
		final, err := s.Exchanges(t.Context(), first)
		require.NoError(t, err)
		require.Len(t, final, len(fenced))
		require.Len(t, final, int(acknowledged.Load()))
		a, err := s.Attempt(t.Context(), first)
		require.NoError(t, err)
		require.Equal(t, len(final), a.Calls)
	})
}

// Several workers, in several processes, may each begin an attempt at the same rollout.
func TestAttemptNumbersAreNeverGivenTwice(t *testing.T) {
	t.Parallel()
	eachURL(t, func(t *testing.T, url string) {
		stores := []*store.Store{open(t, url), open(t, url)}
		numbers := make([]int, 40)
		var g errgroup.Group
		for i := range numbers {
			g.Go(func() error {
				a, err := stores[i%2].BeginAttempt(t.Context(), rollout(0, 0), "x", terms, "")
				numbers[i] = a.Attempt
				return err
			})
		}
		require.NoError(t, g.Wait())
		slices.Sort(numbers)
		for i, n := range numbers {
			require.Equal(t, i+1, n)
		}
	})
}

func TestSealedAttemptTakesNoMoreWrites(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		a := begin(t, s, rollout(0, 0))
		require.NoError(t, s.SealAttempt(t.Context(), record.Attempt{Address: a, Outcome: record.OutcomeCompleted}))
		c := call(a, 0, []int32{1}, []int32{2})
		require.ErrorIs(t, s.AppendCall(t.Context(), &c), record.ErrFenced)
		require.ErrorIs(t, s.PutReward(t.Context(), record.Reward{Address: a, Name: "final", Source: "agent"}), record.ErrFenced)
		require.ErrorIs(t, s.PutEvent(t.Context(), record.Event{Address: a, Name: "x"}), record.ErrFenced)
	})
}

// An attempt that has ended refuses a call, whether it is new, recorded already, or in
// conflict with the record. It keeps the calls that it had.
func TestAClosedAttemptRefusesEveryKindOfCall(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		sealed, replaced := begin(t, s, rollout(0, 0)), begin(t, s, rollout(0, 1))
		for _, a := range []record.Address{sealed, replaced} {
			recorded := call(a, 0, []int32{1}, []int32{2})
			appendCalls(t, s, recorded)
			if a == sealed {
				require.NoError(t, s.SealAttempt(t.Context(), record.Attempt{Address: a, Outcome: record.OutcomeCompleted}))
			} else {
				begin(t, s, a.RolloutID)
			}
			fresh, otherNumber, otherCall := call(a, 1, []int32{3}, []int32{4}), recorded, recorded
			fresh.Key, otherNumber.Seq, otherCall.ID = "other", 1, "other"
			for _, c := range []record.Exchange{fresh, recorded, otherNumber, otherCall} {
				require.ErrorIs(t, s.AppendCall(t.Context(), &c), record.ErrFenced)
			}
			got, err := s.Exchanges(t.Context(), a)
			require.NoError(t, err)
			requireEqual(t, []record.Exchange{recorded}, got)
			attempt, err := s.Attempt(t.Context(), a)
			require.NoError(t, err)
			require.Equal(t, 1, attempt.Calls)
		}
		nowhere := call(record.Address{RolloutID: rollout(9, 9), Attempt: 1}, 0, []int32{1}, []int32{2})
		require.ErrorIs(t, s.AppendCall(t.Context(), &nowhere), record.ErrNotFound)
	})
}

func TestSealIsIdempotentAndFinal(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		a := begin(t, s, rollout(0, 0))
		seal := record.Attempt{Address: a, Outcome: record.OutcomeCompleted, Reward: number(1), Result: "42"}
		require.NoError(t, s.SealAttempt(t.Context(), seal))
		require.NoError(t, s.SealAttempt(t.Context(), seal))
		for name, change := range map[string]func(*record.Attempt){
			"outcome":   func(a *record.Attempt) { a.Outcome = record.AgentFailed },
			"reward":    func(a *record.Attempt) { a.Reward = number(0.5) },
			"no reward": func(a *record.Attempt) { a.Reward = nil },
			"result":    func(a *record.Attempt) { a.Result = "43" },
			"failure":   func(a *record.Attempt) { a.Failure = "hang" },
			"error":     func(a *record.Attempt) { a.Error = "x" },
		} {
			changed := seal
			change(&changed)
			require.ErrorIs(t, s.SealAttempt(t.Context(), changed), record.ErrConflict, name)
		}
		begin(t, s, rollout(0, 0))
		require.NoError(t, s.SealAttempt(t.Context(), seal), "what was acknowledged stays so")
	})
}

func TestSealThatMakesNoSenseIsRefused(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		a := begin(t, s, rollout(0, 0))
		nan := 0.0
		nan /= nan
		for _, bad := range []record.Attempt{
			{Outcome: record.OutcomeRunning}, {Outcome: "tired"}, {Outcome: record.InfraFault, Reward: number(0)}, {Outcome: record.OutcomeCompleted, Reward: &nan},
		} {
			bad.Address = a
			require.Error(t, s.SealAttempt(t.Context(), bad))
		}
		got, err := s.Attempt(t.Context(), a)
		require.NoError(t, err)
		require.Equal(t, record.OutcomeRunning, got.Outcome)
	})
}

// Agents return anything: NUL, broken UTF-8, megabytes.
func TestAnyResultCanBeSealed(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		a := begin(t, s, rollout(0, 0))
		seal := record.Attempt{Address: a, Outcome: record.OutcomeCompleted, Result: "a\x00b\xffc", Error: strings.Repeat("é", 40_000)}
		require.NoError(t, s.SealAttempt(t.Context(), seal))
		require.NoError(t, s.SealAttempt(t.Context(), seal), "it is the same seal after cleaning, too")
		got, err := s.Attempt(t.Context(), a)
		require.NoError(t, err)
		require.Equal(t, "a\uFFFDb\uFFFDc", got.Result)
		require.Equal(t, strings.Repeat("é", 32_768), got.Error)
	})
}

func TestRolloutThatHasEndedBeginsNoMoreAttempts(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		id := rollout(2, 0)
		next := func(terms record.Terms) (int, bool) {
			a, ended, err := s.BeginUnlessEnded(t.Context(), id, "task-x", terms, "c0ffee")
			require.NoError(t, err)
			require.Equal(t, id, a.RolloutID)
			return a.Attempt, ended
		}
		seal := func(attempt int, outcome record.Outcome) {
			a := record.Address{RolloutID: id, Attempt: attempt}
			require.NoError(t, s.SealAttempt(t.Context(), record.Attempt{Address: a, Outcome: outcome}))
		}
		for want := 1; want <= 3; want++ { // never sealed, then sealed as a fault
			number, ended := next(terms)
			require.Equal(t, want, number)
			require.False(t, ended)
		}
		seal(3, record.InfraFault)
		number, ended := next(terms)
		require.Equal(t, 4, number)
		require.False(t, ended)
		seal(4, record.AgentFailed)
		for range 2 {
			number, ended = next(terms)
			require.Equal(t, 4, number)
			require.True(t, ended)
		}
		other := terms
		other.Version++
		number, ended = next(other)
		require.Equal(t, 5, number, "another version is another question")
		require.False(t, ended)
		seal(5, record.OutcomeCompleted)
		other.Prompts = "sha256:of other prompts"
		number, ended = next(other)
		require.Equal(t, 6, number, "other prompts are another question")
		require.False(t, ended)
		seal(6, record.OutcomeCompleted)
		other.Policies = []record.PolicyRule{{Policy: "writer", Match: []record.PolicyMatch{{Agent: "writer"}}}, {Policy: "rest"}}
		number, ended = next(other)
		require.Equal(t, 7, number, "other policies are another question")
		require.False(t, ended)
		seal(7, record.OutcomeCompleted)
		number, ended = next(other)
		require.Equal(t, 7, number)
		require.True(t, ended)
		begin(t, s, id) // BeginAttempt begins an attempt in any case
		number, ended = next(terms)
		require.Equal(t, 9, number)
		require.False(t, ended)
	})
}

func TestPlacesTellHowFarEachAttemptCame(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		id := rollout(1, 0)
		places, err := s.AttemptProgress(t.Context(), id)
		require.NoError(t, err)
		require.Empty(t, places)

		first := begin(t, s, id)
		one, two := call(first, 0, []int32{1}, []int32{2}), call(first, 1, []int32{1}, []int32{2})
		appendCalls(t, s, one, two)
		require.NoError(t, s.SealAttempt(t.Context(), record.Attempt{Address: first, Outcome: record.InfraFault, Failure: "hang", Error: "why"}))
		second := begin(t, s, id)
		again, occurrence := call(second, 0, []int32{1}, []int32{2}), call(second, 1, []int32{1}, []int32{2})
		again.Key, occurrence.Key, occurrence.Occurrence = one.Key, two.Key, two.Occurrence
		appendCalls(t, s, again, occurrence)
		begin(t, s, id)
		begin(t, s, rollout(1, 1)) // another rollout

		places, err = s.AttemptProgress(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, []record.Progress{
			{Attempt: 1, Failure: "hang", Calls: 2, Key: two.Key, Occurrence: two.Occurrence},
			{Attempt: 2, Calls: 2, Key: two.Key, Occurrence: two.Occurrence},
			{Attempt: 3},
		}, places)
		require.True(t, places[0].Same(places[1]))
		require.False(t, places[0].Same(places[2]))
	})
}

func TestAttemptsOfAStepAreListedInOrder(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		for _, id := range []record.RolloutID{rollout(10, 0), rollout(2, 1), rollout(2, 0), rollout(2, 1)} {
			begin(t, s, id)
		}
		for _, other := range []record.RolloutID{{Run: "demo", Kind: record.Gate, Step: 3}, {Run: "demo", Kind: record.Train, Step: 4}, {Run: "demo2", Kind: record.Train, Step: 3}} {
			begin(t, s, other)
		}
		all, err := s.Attempts(t.Context(), "demo", record.Train, 3)
		require.NoError(t, err)
		var got []string
		for _, a := range all {
			got = append(got, fmt.Sprint(a.Address))
		}
		require.Equal(t, []string{"demo/train-3/2/0/1", "demo/train-3/2/1/1", "demo/train-3/2/1/2", "demo/train-3/10/0/1"}, got)
	})
}
