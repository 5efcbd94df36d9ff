package record_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/fulgurite/fulgurite/record"
)

// spans splits a sequence into pieces of one call or of the context.
func spans(s record.Sequence) (out []span) {
	for i, token := range s.Tokens {
		if n := len(out); n == 0 || out[n-1].call != s.Call[i] {
			out = append(out, span{call: s.Call[i]})
		}
		last := &out[len(out)-1]
		last.tokens = append(last.tokens, token)
	}
	return out
}

type span struct {
	call   int // -1 is context
	tokens []int32
}

func long(n int) []int32 {
	out := make([]int32, n)
	for i := range out {
		out[i] = int32(100 + i)
	}
	return out
}

// Code that cuts the prompts of merged calls to a limit must know which tokens are a
// prompt. Here they are context however long they are. If they left the model no room,
// nothing of the call is trained.
func TestALaterPromptIsContextHoweverLong(t *testing.T) {
	t.Parallel()
	first := call([]int32{1, 2}, []int32{3})
	prompt := append([]int32{1, 2, 3}, long(5000)...)
	got := record.Merge([]record.Call{first, call(prompt, []int32{4, 5})})
	require.Len(t, got, 1)
	require.Equal(t, []span{{-1, []int32{1, 2}}, {0, []int32{3}}, {-1, long(5000)}, {1, []int32{4, 5}}}, spans(got[0]))
	require.Equal(t, 3, got[0].Trained())

	got = record.Merge([]record.Call{first, call(prompt, nil)})
	require.Len(t, got, 1)
	require.Equal(t, []span{{-1, []int32{1, 2}}, {0, []int32{3}}, {-1, long(5000)}}, spans(got[0]))
	require.Equal(t, 1, got[0].Trained())
}

func TestAPromptThatAddsNothingGoesOn(t *testing.T) {
	t.Parallel()
	got := record.Merge([]record.Call{call([]int32{1}, []int32{2, 3}), call([]int32{1, 2, 3}, []int32{4}), call([]int32{1, 2, 3, 4}, []int32{5, 6})})
	require.Len(t, got, 1)
	require.Equal(t, []span{{-1, []int32{1}}, {0, []int32{2, 3}}, {1, []int32{4}}, {2, []int32{5, 6}}}, spans(got[0]))
}

// A prompt that goes back to within a sequence, to sample its tail again, does not extend
// it, even if the new tokens are the old ones.
func TestAShorterPromptThatIsSampledAgainDoesNotMerge(t *testing.T) {
	t.Parallel()
	whole := call([]int32{1, 2}, []int32{3, 4, 5})
	for _, prompt := range [][]int32{{1, 2}, {1, 2, 3}, {1}} {
		again := call(prompt, []int32{3, 4, 5})
		again.Seed = 1
		got := record.Merge([]record.Call{whole, again})
		require.Len(t, got, 2)
		trained := 0
		for _, s := range got {
			require.Len(t, spans(s), 2, "one prompt and one completion each")
			trained += s.Trained()
		}
		require.Equal(t, 6, trained)
	}
}

// An agent that rewrites its history late begins another sequence, and what follows
// the break is trained there.
func TestALateBreakKeepsItsTail(t *testing.T) {
	t.Parallel()
	calls := []record.Call{
		call([]int32{1}, []int32{2}),
		call([]int32{1, 2, 3}, []int32{4}),
		call([]int32{1, 2, 3, 4, 5}, []int32{6}),
		call([]int32{1, 2, 9, 4, 5, 6, 7}, []int32{8}), // a 3 became a 9
		call([]int32{1, 2, 9, 4, 5, 6, 7, 8, 10}, []int32{11, 12}),
	}
	got := record.Merge(calls)
	require.Len(t, got, 2)
	require.Equal(t, []span{{-1, []int32{1}}, {0, []int32{2}}, {-1, []int32{3}}, {1, []int32{4}}, {-1, []int32{5}}, {2, []int32{6}}}, spans(got[0]))
	require.Equal(t, []span{{-1, []int32{1, 2, 9, 4, 5, 6, 7}}, {3, []int32{8}}, {-1, []int32{10}}, {4, []int32{11, 12}}}, spans(got[1]))
}

// So if all calls keep a limit, all sequences keep it, too.
func TestASequenceIsNoLongerThanItsLongestCall(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		calls := someCalls(t)
		merged, apart := 0, 0
		for _, c := range calls {
			apart += len(c.Prompt) + len(c.Completion)
		}
		for _, s := range record.Merge(calls) {
			merged += len(s.Tokens)
			last := calls[s.Call[len(s.Call)-1]]
			require.Equal(t, append(append([]int32{}, last.Prompt...), last.Completion...), s.Tokens)
		}
		require.LessOrEqual(t, merged, apart)
	})
}

// What one policy said can be the exact beginning of another policy's prompt, as text. The
// other policy did not sample it.
func TestCallsOfTwoPoliciesNeverShareASequence(t *testing.T) {
	t.Parallel()
	of := func(policy string, c record.Call) record.Call {
		c.Policy = policy
		return c
	}
	got := record.Merge([]record.Call{
		of("writer", call([]int32{1}, []int32{2})),
		of("checker", call([]int32{1, 2, 3}, []int32{4})),
		of("writer", call([]int32{1, 2, 3, 4, 5}, []int32{6})),
		of("checker", call([]int32{1, 2, 3, 4, 5, 6, 7}, []int32{8})),
	})
	require.Len(t, got, 2)
	require.Equal(t, []string{"writer", "checker"}, []string{got[0].Policy, got[1].Policy})
	require.Equal(t, []span{{-1, []int32{1}}, {0, []int32{2}}, {-1, []int32{3, 4, 5}}, {2, []int32{6}}}, spans(got[0]))
	require.Equal(t, []span{{-1, []int32{1, 2, 3}}, {1, []int32{4}}, {-1, []int32{5, 6, 7}}, {3, []int32{8}}}, spans(got[1]))
}
