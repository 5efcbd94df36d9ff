package native_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/engine/native"
)

// groups returns requests whose prompts have common prefixes: some are equal, some branch
// off, some continue where another ends.
func groups(a model.Architecture, seed uint64, lengths ...int) []model.DecodeRequest {
	r := rand.New(rand.NewPCG(seed, 13))
	random := func(n int) []int32 {
		tokens := make([]int32, n)
		for i := range tokens {
			tokens[i] = int32(r.IntN(a.VocabSize))
		}
		return tokens
	}
	var out []model.DecodeRequest
	for _, n := range lengths {
		prompt := random(n)
		for i := range 6 {
			q := model.DecodeRequest{Prompt: prompt, MaxTokens: 1 + r.IntN(16), Seed: r.Uint64(), Temperature: []float64{1, 0, 0.7}[i%3]}
			switch i {
			case 3:
				q.Prompt, q.TopP = append(slices.Clone(prompt[:n*2/3]), random(12)...), 0.8
			case 4:
				q.Prompt = append(slices.Clone(prompt), random(5)...)
			case 5:
				q.Stop = random(2)
			}
			out = append(out, q)
		}
	}
	return out
}

// nextTurns returns requests that continue the replies.
func nextTurns(a model.Architecture, all []model.DecodeRequest, replies []model.Completion) []model.DecodeRequest {
	var out []model.DecodeRequest
	for i, r := range all {
		r.Prompt = slices.Concat(r.Prompt, replies[i].Tokens, []int32{int32(i % a.VocabSize), 1, 2})
		r.Seed++
		if len(r.Prompt) < a.MaxPositions {
			out = append(out, r)
		}
	}
	return out
}

// together sends all requests at once. It sends each prompt once more for a caller that
// leaves when it gets the first token.
func together(t *testing.T, d model.Decoder, all []model.DecodeRequest) []model.Completion {
	t.Helper()
	var done sync.WaitGroup
	replies, errs := make([]model.Completion, len(all)), make([]error, len(all))
	for i, r := range all {
		done.Go(func() {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			left := r
			left.MaxTokens, left.Emit = 1000, func(int32, float32) { cancel() }
			_, _ = d.Decode(ctx, left)
		})
		done.Go(func() { replies[i], errs[i] = d.Decode(t.Context(), r) })
	}
	done.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
	return replies
}

func requireReplies(t *testing.T, want, got []model.Completion) {
	t.Helper()
	for i := range want {
		require.Equal(t, want[i].Tokens, got[i].Tokens)
		require.Equal(t, want[i].Finish, got[i].Finish)
		require.Equal(t, want[i].Forced, got[i].Forced)
		require.Equal(t, bits(want[i].Logprobs), bits(got[i].Logprobs))
	}
}

// It compares several versions over one base, in dialogs of two turns.
func requireSharingChangesNothing(t *testing.T, e *native.Engine, a model.Architecture, versions uint64, lengths ...int) {
	t.Helper()
	for version := range versions {
		c := adapted(a, lora(), 3)
		for i := range c.Weights[0].Data {
			c.Weights[0].Data[i] += float32(version)
		}
		opened := func(d model.Decoder, err error) model.Decoder {
			require.NoError(t, err)
			t.Cleanup(d.Close)
			return d
		}
		alone := opened(native.NewDecoderWithoutSharing(e, c))
		roomy, narrow := opened(e.NewDecoder(c)), opened(native.NewDecoderWithRoom(e, c, 3))
		first := groups(a, 5+version, lengths...)
		var want [2][]model.Completion
		turns := [2][]model.DecodeRequest{first}
		for turn := range turns {
			for _, r := range turns[turn] {
				reply, err := alone.Decode(t.Context(), r)
				require.NoError(t, err)
				want[turn] = append(want[turn], reply)
			}
			if turn == 0 {
				turns[1] = nextTurns(a, first, want[0])
			}
		}
		require.NotEmpty(t, turns[1])
		for _, d := range []model.Decoder{roomy, narrow} {
			for turn, all := range turns {
				requireReplies(t, want[turn], together(t, d, all))
			}
			for i, r := range turns[1] {
				if r.Temperature == 0 {
					logprobs, err := d.(model.Scorer).Score(t.Context(), r.Prompt, want[1][i].Tokens)
					require.NoError(t, err)
					require.Equal(t, bits(want[1][i].Logprobs), bits(logprobs))
				}
			}
		}
	}
}

func TestSharedPromptsChangeNoReply(t *testing.T) {
	t.Parallel()
	eachModel(t, func(t *testing.T, a model.Architecture, kernelName string) {
		requireSharingChangesNothing(t, engine(kernelName, 2), a, 2, 9, 32, 45, 80)
	})
}

func TestSharedPromptsChangeNoReplyOfAWideModel(t *testing.T) {
	t.Parallel()
	requireSharingChangesNothing(t, engine("", 2), wideModel(), 1, 40, 150)
}

// The trainer scores what was sampled after a shared prompt to the same bits.
func TestLogprobsBehindSharedPromptsAreScoredLogprobs(t *testing.T) {
	t.Parallel()
	c := adapted(architectures()["everything"], lora(), 3)
	e := engine("", 2)
	d, err := e.NewDecoder(c)
	require.NoError(t, err)
	t.Cleanup(d.Close)
	all := groups(c.Architecture, 3, 33, 70)
	var batch []model.Row
	replies := together(t, d, all)
	for i, r := range all {
		row := model.Row{Tokens: slices.Concat(r.Prompt, replies[i].Tokens), Temperature: r.Temperature}
		if r.TopP == 0 {
			batch = append(batch, row)
		}
	}
	logprobs, _ := score(t, trainerOf(t, e, c), batch)
	at := 0
	for i, r := range all {
		if r.TopP == 0 {
			require.Equal(t, bits(replies[i].Logprobs), bits(logprobs[at][len(r.Prompt)-1:]))
			at++
		}
	}
}

// Turns run one after the other, so the number of computed positions is exact.
func TestADialogComputesEachTurnOnce(t *testing.T) {
	t.Parallel()
	a := architectures()["tiny"]
	d := decoder(t, engine("", 2), a, weights(a, 1))
	r := model.DecodeRequest{Prompt: groups(a, 1, 40)[0].Prompt, MaxTokens: 10, Temperature: 1}
	for range 3 {
		before := native.Computed(d)
		c, err := d.Decode(t.Context(), r)
		require.NoError(t, err)
		if before == 0 {
			require.Equal(t, 40+9, native.Computed(d), "the last token of a reply is fed by nobody")
		} else {
			require.Equal(t, before+1+5+9, native.Computed(d), "a reply's last token, five new ones, and the reply")
		}
		r.Prompt = slices.Concat(r.Prompt, c.Tokens, []int32{1, 2, 3, 4, 5})
	}
}
