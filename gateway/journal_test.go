package gateway_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/gateway"
	"github.com/fulgurite/fulgurite/record"
)

// journalUnderTest is a journal with the methods that only its owner calls.
type journalUnderTest interface {
	gateway.Journal
	Begin(record.Attempt)
	Seal(record.Address, record.Outcome)
	Refusals(context.Context, record.Address) ([]record.Refusal, error)
}

func TestTheDoubleKeepsTheContractOfAJournal(t *testing.T) {
	t.Parallel()
	testJournal(t, func() journalUnderTest { return newMemory() })
}

// testJournal tests what the gateway relies on.
func testJournal(t *testing.T, open func() journalUnderTest) {
	begun := record.Attempt{Address: address, Terms: terms, KeyHash: hash(key), TaskID: "t17"}
	second := begun
	second.Address.Attempt = 2
	first := record.Exchange{Call: record.Call{
		Address: address, ID: "chatcmpl-a", Parent: -1, Policy: "main", Version: 2, Key: "k", Prompt: []int32{1, 2},
		Completion: []int32{3}, Logprobs: []float32{-1}, Finish: "stop", Started: start,
	}, Request: []byte(`{}`), Response: []byte(`{}`)}
	next := first
	next.ID, next.Seq, next.Parent, next.Occurrence, next.Prompt = "chatcmpl-b", 1, 0, 1, []int32{1, 2, 3, 4}

	t.Run("unknown attempts are not found", func(t *testing.T) {
		t.Parallel()
		j := open()
		_, err := j.Attempt(t.Context(), address)
		require.ErrorIs(t, err, record.ErrNotFound)
	})
	t.Run("terms and key come back", func(t *testing.T) {
		t.Parallel()
		j := open()
		j.Begin(begun)
		got, err := j.Attempt(t.Context(), address)
		require.NoError(t, err)
		require.Equal(t, begun.Terms, got.Terms)
		require.Equal(t, begun.KeyHash, got.KeyHash)
		require.Equal(t, record.OutcomeRunning, got.Outcome)
	})
	t.Run("calls come back whole and in order", func(t *testing.T) {
		t.Parallel()
		j := open()
		j.Begin(begun)
		require.NoError(t, j.AppendCall(t.Context(), &first))
		require.NoError(t, j.AppendCall(t.Context(), &first), "the same again")
		require.NoError(t, j.AppendCall(t.Context(), &next))
		got, err := j.Exchanges(t.Context(), address)
		require.NoError(t, err)
		require.Empty(t, cmp.Diff([]record.Exchange{first, next}, got, cmpopts.IgnoreFields(record.Call{}, "Recorded")))
		require.False(t, got[0].Recorded.IsZero())
	})
	t.Run("another call of the same number, or the same request and occurrence, conflicts", func(t *testing.T) {
		t.Parallel()
		j := open()
		j.Begin(begun)
		require.NoError(t, j.AppendCall(t.Context(), &first))
		other := next
		other.Seq, other.Parent = 0, -1
		require.ErrorIs(t, j.AppendCall(t.Context(), &other), record.ErrConflict)
		other = next
		other.Occurrence = 0
		require.ErrorIs(t, j.AppendCall(t.Context(), &other), record.ErrConflict)
	})
	t.Run("earlier calls are those that earlier attempts sampled", func(t *testing.T) {
		t.Parallel()
		j := open()
		j.Begin(begun)
		require.NoError(t, j.AppendCall(t.Context(), &first))
		require.NoError(t, j.AppendCall(t.Context(), &next))
		j.Begin(second)
		replayed, fresh := first, next
		replayed.Address, replayed.ReplayedFrom, replayed.RequestName = second.Address, 1, "e1"
		fresh.Address, fresh.Key = second.Address, "l"
		fresh.Divergence = &record.Divergence{Address: second.Address, Seq: 1, Earlier: 1, EarlierSeq: 1, Difference: "d"}
		require.NoError(t, j.AppendCall(t.Context(), &replayed))
		require.NoError(t, j.AppendCall(t.Context(), &fresh))
		third := second
		third.Address.Attempt = 3
		j.Begin(third)
		for n, want := range map[int][]record.Exchange{1: nil, 2: {first, next}, 3: {first, next, fresh}} {
			got, err := j.EarlierExchanges(t.Context(), record.Address{RolloutID: address.RolloutID, Attempt: n})
			require.NoError(t, err)
			require.Empty(t, cmp.Diff(want, got, cmpopts.IgnoreFields(record.Call{}, "Recorded"), cmpopts.EquateEmpty()))
		}
		got, err := j.Exchanges(t.Context(), second.Address)
		require.NoError(t, err)
		require.Equal(t, replayed.ReplayedFrom, got[0].ReplayedFrom)
		require.Equal(t, replayed.RequestName, got[0].RequestName)
	})
	t.Run("rewards are given once", func(t *testing.T) {
		t.Parallel()
		j := open()
		j.Begin(begun)
		r := record.Reward{Address: address, Name: "final", Value: 1, Source: "agent"}
		require.NoError(t, j.PutReward(t.Context(), r))
		require.NoError(t, j.PutReward(t.Context(), r))
		r.Value = 0
		require.ErrorIs(t, j.PutReward(t.Context(), r), record.ErrConflict)
	})
	t.Run("refusals are counted by code", func(t *testing.T) {
		t.Parallel()
		j := open()
		require.ErrorIs(t, j.AddRefusal(t.Context(), record.Refusal{Address: address, Code: "c"}), record.ErrNotFound)
		j.Begin(begun)
		for _, r := range []record.Refusal{{Code: "c", Message: "1"}, {Code: "d", Message: "2"}, {Code: "c", Message: "3"}} {
			r.Address = address
			require.NoError(t, j.AddRefusal(t.Context(), r))
		}
		got, err := j.Refusals(t.Context(), address)
		require.NoError(t, err)
		want := []record.Refusal{{Address: address, Code: "c", Message: "3", Count: 2}, {Address: address, Code: "d", Message: "2", Count: 1}}
		require.Empty(t, cmp.Diff(want, got, cmpopts.IgnoreFields(record.Refusal{}, "First", "Last")))
	})
	t.Run("an open attempt has no end", func(t *testing.T) {
		t.Parallel()
		j := open()
		_, err := j.AttemptEnd(t.Context(), address)
		require.ErrorIs(t, err, record.ErrNotFound)
		j.Begin(begun)
		ended, err := j.AttemptEnd(t.Context(), address)
		require.NoError(t, err)
		require.True(t, ended.IsZero())
	})
	for name, end := range map[string]func(journalUnderTest){
		"sealed":   func(j journalUnderTest) { j.Seal(address, record.OutcomeCompleted) },
		"replaced": func(j journalUnderTest) { j.Begin(second) },
	} {
		t.Run(name+" attempts take nothing that counts", func(t *testing.T) {
			t.Parallel()
			j := open()
			j.Begin(begun)
			require.NoError(t, j.AppendCall(t.Context(), &first))
			end(j)
			ended, err := j.AttemptEnd(t.Context(), address)
			require.NoError(t, err)
			require.False(t, ended.IsZero())
			require.ErrorIs(t, j.AppendCall(t.Context(), &next), record.ErrFenced)
			require.ErrorIs(t, j.PutReward(t.Context(), record.Reward{Address: address, Name: "final"}), record.ErrFenced)
			require.ErrorIs(t, j.PutEvent(t.Context(), record.Event{Address: address, Name: "x"}), record.ErrFenced)
			require.NoError(t, j.PutSpans(t.Context(), address, []record.Span{{Trace: "t", ID: "1"}}), "but spans, which come late")
		})
	}
}
