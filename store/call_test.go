package store_test

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/store"
)

func TestCallsAreReadAsTheyWereWritten(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		a := begin(t, s, rollout(0, 0))
		first := call(a, 0, []int32{1, 300, 151_000}, []int32{7, 8, 9})
		first.Logprobs = []float32{-0.1, float32(math.Inf(-1)), math.SmallestNonzeroFloat32}
		first.Untrained = []bool{false, true, false}
		first.API, first.Form, first.Drift = "messages", json.RawMessage(`{"codec":"compact","call":true}`), true
		first.Server = "gpu-1:8000"
		second := after(first, 1, []int32{10}, []int32{11})
		bare := record.Exchange{Call: record.Call{Address: a, Seq: 2, Parent: -1}}
		branch := after(first, 3, nil, nil)
		want := []record.Exchange{first, second, bare, branch}
		appendCalls(t, s, want...)
		got, err := s.Exchanges(t.Context(), a)
		require.NoError(t, err)
		requireEqual(t, want, got)
	})
}

func TestAppendIsIdempotent(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		a := begin(t, s, rollout(0, 0))
		first := call(a, 0, []int32{1, 2}, []int32{3})
		second := after(first, 1, []int32{4}, []int32{5})
		appendCalls(t, s, first, second)
		again := second
		again.Started, again.Duration, again.Server = time.Now(), time.Hour, "gpu-2:8000"
		appendCalls(t, s, again, first)
		got, err := s.Exchanges(t.Context(), a)
		require.NoError(t, err)
		requireEqual(t, []record.Exchange{first, second}, got)
		attempt, err := s.Attempt(t.Context(), a)
		require.NoError(t, err)
		require.Equal(t, []int{2, 2}, []int{attempt.Calls, attempt.Tokens}, "counted once")
	})
}

func TestAnotherCallUnderTheSameNumberIsAConflict(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		begin(t, s, rollout(0, 0))
		a := begin(t, s, rollout(0, 0))
		root := call(a, 0, []int32{1}, []int32{2})
		recorded := after(root, 1, []int32{3}, []int32{4, 5})
		appendCalls(t, s, root, recorded)
		for name, change := range map[string]func(*record.Exchange){
			"id":          func(c *record.Exchange) { c.ID = "other" },
			"parent":      func(c *record.Exchange) { c.Parent = -1 },
			"agent":       func(c *record.Exchange) { c.Agent = "other" },
			"policy":      func(c *record.Exchange) { c.Policy = "critic" },
			"version":     func(c *record.Exchange) { c.Version++ },
			"weights":     func(c *record.Exchange) { c.Weights = "cd34" },
			"key":         func(c *record.Exchange) { c.Key = "other" },
			"occurrence":  func(c *record.Exchange) { c.Occurrence++ },
			"prompt":      func(c *record.Exchange) { c.Prompt = append(c.Prompt[:2:2], 9) },
			"completion":  func(c *record.Exchange) { c.Completion = []int32{4, 6} },
			"logprobs":    func(c *record.Exchange) { c.Logprobs = []float32{0, 0} },
			"untrained":   func(c *record.Exchange) { c.Untrained = []bool{true, false} },
			"api":         func(c *record.Exchange) { c.API = "responses" },
			"form":        func(c *record.Exchange) { c.Form = json.RawMessage(`{}`) },
			"drift":       func(c *record.Exchange) { c.Drift = true },
			"seed":        func(c *record.Exchange) { c.Seed++ },
			"temperature": func(c *record.Exchange) { c.Temperature = 1 },
			"finish":      func(c *record.Exchange) { c.Finish = "length" },
			"parse error": func(c *record.Exchange) { c.ParseError = "" },
			"request":     func(c *record.Exchange) { c.Request = json.RawMessage(`{}`) },
			"response":    func(c *record.Exchange) { c.Response = nil },
			"provenance":  func(c *record.Exchange) { c.ReplayedFrom = 1 },
			"name":        func(c *record.Exchange) { c.RequestName = "e2" },
		} {
			c := recorded
			change(&c)
			require.ErrorIs(t, s.AppendCall(t.Context(), &c), record.ErrConflict, name)
		}
		got, err := s.Exchanges(t.Context(), a)
		require.NoError(t, err)
		requireEqual(t, []record.Exchange{root, recorded}, got)
	})
}

func TestACallKeepsItsOwnPolicy(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		several := terms
		several.Policies = []record.PolicyRule{{Policy: "checker", Match: []record.PolicyMatch{{Role: "system", Position: new(0), Prefix: "You check"}}}, {Policy: "writer"}}
		a, err := s.BeginAttempt(t.Context(), rollout(0, 0), "task-x", several, "c0ffee")
		require.NoError(t, err)
		calls := []record.Exchange{call(a, 0, []int32{1}, []int32{2}), call(a, 1, []int32{1}, []int32{2}), call(a, 2, []int32{1}, []int32{2})}
		calls[0].Policy, calls[1].Policy, calls[1].Key = "writer", "checker", calls[0].Key
		calls[2].Policy = "writer"
		appendCalls(t, s, calls...)
		exchanges, err := s.Exchanges(t.Context(), a)
		require.NoError(t, err)
		requireEqual(t, calls, exchanges)
		between, err := s.ExchangesBetween(t.Context(), a, 1, 2)
		require.NoError(t, err)
		requireEqual(t, calls[1:2], between)
		trajectories, err := s.Trajectories(t.Context(), []record.Address{a})
		require.NoError(t, err)
		requireEqual(t, record.Calls(calls), trajectories[0].History)
		require.Equal(t, several, trajectories[0].Terms)
		next := begin(t, s, rollout(0, 0))
		earlier, err := s.EarlierExchanges(t.Context(), next)
		require.NoError(t, err)
		requireEqual(t, calls, earlier)
		all, err := s.CallsOfRollout(t.Context(), a.RolloutID)
		require.NoError(t, err)
		requireEqual(t, record.Calls(calls), all)
	})
}

func TestSameRequestAndOccurrenceUnderAnotherNumberIsAConflict(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		a := begin(t, s, rollout(0, 0))
		first := call(a, 0, []int32{1}, []int32{2})
		appendCalls(t, s, first)
		c := first
		c.Seq = 1
		require.ErrorIs(t, s.AppendCall(t.Context(), &c), record.ErrConflict)
		c.Occurrence = 1
		require.NoError(t, s.AppendCall(t.Context(), &c))
		other := first
		other.Address = begin(t, s, rollout(0, 1))
		require.NoError(t, s.AppendCall(t.Context(), &other), "another rollout may ask the same")
	})
}

func TestCallMustContinueItsParent(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		a := begin(t, s, rollout(0, 0))
		root := call(a, 0, []int32{1, 2}, []int32{3})
		appendCalls(t, s, root)
		for name, c := range map[string]record.Exchange{
			"other prompt":     {Parent: 0, Prompt: []int32{1, 9, 3, 4}},
			"other completion": {Parent: 0, Prompt: []int32{1, 2, 9, 4}},
			"shorter":          {Parent: 0, Prompt: []int32{1, 2}},
			"absent":           {Parent: 1, Prompt: []int32{1, 2, 3}},
			"itself":           {Parent: 5, Prompt: []int32{1, 2, 3}},
		} {
			c.Address, c.Seq = a, 5
			require.ErrorIs(t, s.AppendCall(t.Context(), &c), store.ErrChain, name)
		}
		for name, c := range map[string]record.Exchange{
			"log-probabilities": {Parent: -1, Completion: []int32{1}},
			"marks":             {Parent: -1, Completion: []int32{1}, Logprobs: []float32{0}, Untrained: []bool{}},
			"parent":            {Parent: -2},
			"occurrence":        {Parent: -1, Occurrence: -1},
			"provenance":        {Parent: -1, ReplayedFrom: 1},
			"temperature":       {Parent: -1, Temperature: math.NaN()},
		} {
			c.Address, c.Seq = a, 5
			require.Error(t, s.AppendCall(t.Context(), &c), name)
		}
		got, err := s.Exchanges(t.Context(), a)
		require.NoError(t, err)
		require.Len(t, got, 1)
	})
}

func TestCallsOfARolloutComeAttemptByAttempt(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		var want []record.Exchange
		for range 3 {
			a := begin(t, s, rollout(0, 0))
			root := call(a, 0, []int32{1, int32(a.Attempt)}, []int32{3})
			want = append(want, root, after(root, 1, []int32{4}, []int32{5}))
			appendCalls(t, s, want[len(want)-2:]...)
		}
		got, err := s.CallsOfRollout(t.Context(), rollout(0, 0))
		require.NoError(t, err)
		requireEqual(t, record.Calls(want), got)
	})
}

func TestTheStoreSaysWhenItRecordedACall(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		c := call(begin(t, s, rollout(0, 0)), 0, []int32{1}, []int32{2})
		before := time.Now()
		c.Recorded = before.Add(time.Hour) // the store ignores the caller's value
		appendCalls(t, s, c)
		after := time.Now()
		first, err := s.Exchanges(t.Context(), c.Address)
		require.NoError(t, err)
		require.False(t, first[0].Recorded.Before(before.Truncate(0)), first[0].Recorded)
		require.False(t, first[0].Recorded.After(after), first[0].Recorded)
		appendCalls(t, s, c)
		again, err := s.Exchanges(t.Context(), c.Address)
		require.NoError(t, err)
		require.Equal(t, first, again, "the first commit is what counts")
	})
}

func TestEarlierCallsAreThoseThatWereSampled(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		one := begin(t, s, rollout(0, 0))
		root := call(one, 0, []int32{1}, []int32{2})
		next := after(root, 1, []int32{3}, []int32{4})
		appendCalls(t, s, root, next)
		// The second attempt replays both and goes on; the third only replays.
		two := begin(t, s, rollout(0, 0))
		more := after(replayed(next, two), 2, []int32{5}, []int32{6})
		appendCalls(t, s, replayed(root, two), replayed(next, two), more)
		three := begin(t, s, rollout(0, 0))
		appendCalls(t, s, replayed(root, three))
		for attempt, want := range map[int][]record.Exchange{1: nil, 2: {root, next}, 3: {root, next, more}, 4: {root, next, more}} {
			got, err := s.EarlierExchanges(t.Context(), record.Address{RolloutID: rollout(0, 0), Attempt: attempt})
			require.NoError(t, err)
			requireEqual(t, want, got)
		}
		got, err := s.Exchanges(t.Context(), two)
		require.NoError(t, err)
		require.Equal(t, []int{1, 1, 0}, []int{got[0].ReplayedFrom, got[1].ReplayedFrom, got[2].ReplayedFrom})
		attempt, err := s.Attempt(t.Context(), two)
		require.NoError(t, err)
		require.Equal(t, []int{3, 3}, []int{attempt.Calls, attempt.Tokens}, "what was replayed counts")
	})
}

// replayed returns c as a later attempt records it when it replays c.
func replayed(c record.Exchange, by record.Address) record.Exchange {
	c.ReplayedFrom, c.Address = c.Attempt, by
	return c
}

// A conversation of n turns repeats its beginning n times; the store keeps it
// once.
func TestStorageOfAConversationGrowsLinearly(t *testing.T) {
	t.Parallel()
	eachURL(t, func(t *testing.T, url string) {
		s := open(t, url)
		a := begin(t, s, rollout(0, 0))
		const turns, each = 60, 20
		tokens := make([]int32, each) // one byte each
		c := call(a, 0, tokens, tokens)
		appendCalls(t, s, c)
		for i := 1; i < turns; i++ {
			c = after(c, i, tokens, tokens)
			appendCalls(t, s, c)
		}
		var prompts, completions int
		row := tables(t, url).QueryRowContext(t.Context(), `SELECT SUM(LENGTH(prompt)), SUM(LENGTH(completion)) FROM calls`)
		require.NoError(t, row.Scan(&prompts, &completions))
		require.Equal(t, []int{turns * each, turns * each}, []int{prompts, completions})
		got, err := s.Exchanges(t.Context(), a)
		require.NoError(t, err)
		requireEqual(t, c, got[turns-1])
	})
}

// Trees of calls, of any shape and with any tokens, are read back complete.
func TestAnyTreeOfCallsComesBack(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		task := 0
		rapid.Check(t, func(r *rapid.T) {
			a := begin(t, s, rollout(task, 0))
			task++
			tokens := rapid.SliceOfN(rapid.Int32(), 0, 5)
			var want []record.Exchange
			for seq := range rapid.IntRange(1, 5).Draw(r, "calls") {
				if p := rapid.IntRange(-1, seq-1).Draw(r, "parent"); p >= 0 {
					want = append(want, after(want[p], seq, tokens.Draw(r, "more"), tokens.Draw(r, "completion")))
				} else {
					want = append(want, call(a, seq, tokens.Draw(r, "prompt"), tokens.Draw(r, "completion")))
				}
			}
			appendCalls(t, s, want...)
			got, err := s.Exchanges(t.Context(), a)
			require.NoError(r, err)
			requireEqual(t, want, got)
		})
	})
}
