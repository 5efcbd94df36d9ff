package record_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/fulgurite/fulgurite/record"
)

func TestAddressHasOneTextualForm(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 1<<40)
		a := record.Address{
			RolloutID: record.RolloutID{
				Run:  rapid.StringMatching(`[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?`).Draw(t, "run"),
				Kind: rapid.SampledFrom([]record.Kind{record.Train, record.Reserve, record.Gate, record.Test, record.Try, record.Minibatch, record.Validation}).Draw(t, "kind"),
				Step: n.Draw(t, "step"), Task: n.Draw(t, "task"), Sample: n.Draw(t, "sample"),
			},
			Attempt: 1 + n.Draw(t, "attempt"),
		}
		back, err := record.ParseAddress(a.String())
		require.NoError(t, err)
		require.Equal(t, a, back)
	})
}

func TestWhatIsNotAnAddressIsRefused(t *testing.T) {
	t.Parallel()
	for _, s := range []string{
		"", "demo/train-3/17/2", "demo/train-3/17/2/0", "demo/train-03/17/2/1", "demo/train-3/+17/2/1", "demo/train/1/2/3",
		"demo/nap-3/17/2/1", "../train-3/17/2/1", "Demo/train-3/17/2/1", "/train-3/1/2/1", "demo/train-3/-1/2/1", "a/b/c/d/e/f",
	} {
		_, err := record.ParseAddress(s)
		require.ErrorIs(t, err, record.ErrAddress, s)
	}
}

func TestEachKindReadsOneSplit(t *testing.T) {
	t.Parallel()
	for _, kind := range []record.Kind{record.Train, record.Reserve, record.Try, record.Minibatch} {
		require.Equal(t, record.Train, kind.Split())
	}
	for _, kind := range []record.Kind{record.Gate, record.Test, record.Validation} {
		require.Equal(t, kind, kind.Split())
	}
}

func call(prompt, completion []int32) record.Call {
	return record.Call{Prompt: prompt, Completion: completion, Logprobs: make([]float32, len(completion)), Temperature: 1}
}

func TestCallsThatExtendEachOtherBecomeOneSequence(t *testing.T) {
	t.Parallel()
	first := call([]int32{1, 2}, []int32{3, 4})
	first.Logprobs = []float32{-1, -2}
	got := record.Merge([]record.Call{first, call([]int32{1, 2, 3, 4, 5}, []int32{6}), call([]int32{9, 9, 9}, []int32{8})})
	require.Len(t, got, 2)
	require.Equal(t, []int32{1, 2, 3, 4, 5, 6}, got[0].Tokens)
	require.Equal(t, []bool{false, false, true, true, false, true}, got[0].Sampled)
	require.Equal(t, []int{-1, -1, 0, 0, -1, 1}, got[0].Call)
	require.Equal(t, []float32{0, 0, -1, -2, 0, 0}, got[0].Logprobs)
	require.Equal(t, 3, got[0].Trained())
	require.Equal(t, []int{-1, -1, -1, 2}, got[1].Call)
}

func TestBranchesAndOtherTemperaturesStartTheirOwnSequence(t *testing.T) {
	t.Parallel()
	root := call([]int32{1}, []int32{2})
	cool := call([]int32{1, 2, 3}, []int32{4})
	cool.Temperature = 0.5
	got := record.Merge([]record.Call{root, call([]int32{1, 7}, []int32{8}), cool})
	require.Len(t, got, 3)
}

func TestTokensWithoutAlternativeAreContext(t *testing.T) {
	t.Parallel()
	c := call([]int32{1}, []int32{2, 3})
	c.Untrained = []bool{true, false}
	require.Equal(t, []bool{false, false, true}, record.Merge([]record.Call{c})[0].Sampled)
}

func TestFormsGoWithTheTokensOfTheirCalls(t *testing.T) {
	t.Parallel()
	first, second, third := call([]int32{1, 2}, []int32{3, 4}), call([]int32{1, 2, 3, 4, 5}, []int32{6}), call([]int32{1, 2, 3, 4, 5, 6}, []int32{7, 8, 9})
	first.Form, third.Form = json.RawMessage(`{"codec":"a"}`), json.RawMessage(`{"codec":"b"}`)
	third.Untrained = []bool{true, false, false}
	got := record.Merge([]record.Call{first, second, third})
	require.Len(t, got, 1, "another form does not begin another sequence")
	require.Equal(t, []record.SequenceForm{{2, 2, first.Form}, {6, 3, third.Form}}, got[0].Forms)
	for _, f := range got[0].Forms {
		require.Equal(t, f.Length, len(got[0].Tokens[f.Start:f.Start+f.Length]))
	}
	require.Nil(t, record.Merge([]record.Call{second})[0].Forms)
}

// An agent may make calls at once, and any of them may be recorded first.
func TestTheOrderOfCallsDoesNotMatterToTheirSequences(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		calls := someCalls(t)
		want := record.Merge(calls)
		order := rapid.Permutation(indices(len(calls))).Draw(t, "order")
		permuted := make([]record.Call, len(calls))
		for at, i := range order {
			permuted[at] = calls[i]
		}
		got := record.Merge(permuted)
		for _, s := range got {
			for k, at := range s.Origin {
				if at >= 0 {
					s.Origin[k] = order[at]
				}
				if s.Call[k] >= 0 {
					s.Call[k] = order[s.Call[k]]
				}
			}
		}
		require.Equal(t, want, got)
	})
}

func indices(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

// someCalls returns calls of which some extend others.
func someCalls(t *rapid.T) []record.Call {
	var calls []record.Call
	for i := range rapid.IntRange(1, 8).Draw(t, "calls") {
		prompt := rapid.SliceOfN(rapid.Int32Range(0, 2), 1, 3).Draw(t, "prompt")
		if len(calls) > 0 && rapid.Bool().Draw(t, "extends") {
			p := calls[rapid.IntRange(0, len(calls)-1).Draw(t, "parent")]
			prompt = append(append(append([]int32{}, p.Prompt...), p.Completion...), prompt...)
		}
		c := call(prompt, rapid.SliceOfN(rapid.Int32Range(0, 2), 1, 3).Draw(t, "completion"))
		c.Seed = uint64(i)
		calls = append(calls, c)
	}
	return calls
}

func TestEverySampledTokenIsTrainedExactlyOnce(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		calls := someCalls(t)
		seen := map[int][]int32{}
		for _, s := range record.Merge(calls) {
			for i, c := range s.Call {
				require.Equal(t, c >= 0, s.Sampled[i])
				if c >= 0 {
					seen[c] = append(seen[c], s.Tokens[i])
				}
			}
		}
		for i, c := range calls {
			require.Equal(t, c.Completion, seen[i])
		}
	})
}

func TestTermsHaveTheSamePoliciesIfTheirRulesAreEqual(t *testing.T) {
	t.Parallel()
	terms := func(change func(*record.PolicyRule)) record.Terms {
		r := record.PolicyRule{Policy: "writer", Match: []record.PolicyMatch{{Agent: "a"}, {Role: "system", Position: new(1), Prefix: "You"}}}
		change(&r)
		return record.Terms{Policy: "main", Version: 1, Policies: []record.PolicyRule{r, {Policy: "rest"}}}
	}
	same := func(*record.PolicyRule) {}
	one, later := terms(same), terms(same)
	later.Version, later.Policies[1].Match = 2, []record.PolicyMatch{}
	require.True(t, one.SamePolicies(later))
	require.True(t, record.Terms{Policies: []record.PolicyRule{}}.SamePolicies(record.Terms{}))
	for name, change := range map[string]func(*record.PolicyRule){
		"name":        func(r *record.PolicyRule) { r.Policy = "author" },
		"match":       func(r *record.PolicyRule) { r.Match[0].Agent = "b" },
		"match less":  func(r *record.PolicyRule) { r.Match = r.Match[:1] },
		"no match":    func(r *record.PolicyRule) { r.Match = nil },
		"position":    func(r *record.PolicyRule) { r.Match[1].Position = new(2) },
		"no position": func(r *record.PolicyRule) { r.Match[1].Position = nil },
		"version":     func(r *record.PolicyRule) { r.Version = new(1) },
	} {
		require.False(t, one.SamePolicies(terms(change)), name)
	}
	numbered, other := terms(func(r *record.PolicyRule) { r.Version = new(1) }), terms(func(r *record.PolicyRule) { r.Version = new(2) })
	require.False(t, numbered.SamePolicies(other))
	require.True(t, numbered.SamePolicies(terms(func(r *record.PolicyRule) { r.Version = new(1) })))
	other = terms(same)
	other.Policy = "other"
	require.False(t, one.SamePolicies(other))
	other = terms(same)
	other.Policies = other.Policies[:1]
	require.False(t, one.SamePolicies(other))
}

func TestTermsHaveOneVersionOfEachPolicy(t *testing.T) {
	t.Parallel()
	one := record.Terms{Policy: "main", Version: 4}
	require.Equal(t, 4, one.VersionOf("main"))
	require.Nil(t, one.Versions())
	one.Policies = []record.PolicyRule{{Policy: "checker", Version: new(0)}, {Policy: "writer"}}
	require.Equal(t, 0, one.VersionOf("checker"))
	require.Equal(t, map[string]int{"checker": 0, "writer": 4}, one.Versions())
}
