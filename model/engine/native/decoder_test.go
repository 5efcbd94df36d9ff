package native_test

import (
	"context"
	"math"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/engine/decode"
	"github.com/fulgurite/fulgurite/model/engine/native"
)

// requests returns n requests that differ in prompt, length, temperature, stop tokens and
// seed.
func requests(a model.Architecture, n int, seed uint64) []model.DecodeRequest {
	r := rand.New(rand.NewPCG(seed, 3))
	out := make([]model.DecodeRequest, n)
	for i := range out {
		out[i] = model.DecodeRequest{
			Prompt: make([]int32, 1+r.IntN([]int{70, 10, 33}[i%3])), MaxTokens: 1 + r.IntN(36), Seed: r.Uint64(),
			Temperature: []float64{0, 1, 0.7, 1.5}[i%4],
		}
		for t := range out[i].Prompt {
			out[i].Prompt[t] = int32(r.IntN(a.VocabSize))
		}
		if i%3 == 0 {
			out[i].Stop = []int32{int32(r.IntN(a.VocabSize)), int32(r.IntN(a.VocabSize))}
		}
	}
	return out
}

func TestCompletionIsTheSameInAnyCompany(t *testing.T) {
	t.Parallel()
	eachModel(t, func(t *testing.T, a model.Architecture, kernelName string) {
		w, all := weights(a, 1), requests(a, 128, 2)
		solo := decoder(t, engine(kernelName, 1), a, w)
		want := make([]model.Completion, len(all))
		for i, r := range all {
			c, err := solo.Decode(t.Context(), r)
			require.NoError(t, err)
			want[i] = c
		}
		for _, o := range []native.Options{{Threads: 2}, {Threads: 3, MaxBatch: 5}, {Threads: 8, MaxBatch: 17}} {
			o.Kernel = kernelName
			busy := decoder(t, native.New(o), a, w)
			var done sync.WaitGroup
			have, errs := make([]model.Completion, len(all)), make([]error, len(all))
			for i, r := range all {
				done.Go(func() { have[i], errs[i] = busy.Decode(t.Context(), r) })
			}
			done.Wait()
			for i := range all {
				require.NoError(t, errs[i])
				require.Equal(t, want[i].Tokens, have[i].Tokens)
				require.Equal(t, want[i].Finish, have[i].Finish)
				require.Equal(t, bits(want[i].Logprobs), bits(have[i].Logprobs))
			}
		}
	})
}

func TestCompletionEndsAtStopTokenOrLength(t *testing.T) {
	t.Parallel()
	a := architectures()["tiny"]
	d := decoder(t, engine("", 2), a, weights(a, 1))
	r := model.DecodeRequest{Prompt: []int32{1, 2, 3}, MaxTokens: 1000, Temperature: 1, Seed: 7}
	whole, err := d.Decode(t.Context(), r)
	require.NoError(t, err)
	require.Equal(t, "length", whole.Finish)
	require.Len(t, whole.Tokens, a.MaxPositions-len(r.Prompt))

	r.Stop = []int32{whole.Tokens[9]}
	first := 0
	for whole.Tokens[first] != r.Stop[0] {
		first++
	}
	stopped, err := d.Decode(t.Context(), r)
	require.NoError(t, err)
	require.Equal(t, "stop", stopped.Finish)
	require.Equal(t, whole.Tokens[:first+1], stopped.Tokens)
	require.Equal(t, whole.Logprobs[:first+1], stopped.Logprobs)

	r.Stop, r.MaxTokens = nil, 5
	short, err := d.Decode(t.Context(), r)
	require.NoError(t, err)
	require.Equal(t, model.Completion{Tokens: whole.Tokens[:5], Logprobs: whole.Logprobs[:5], Finish: "length"}, short)
}

func TestBadRequestIsRefused(t *testing.T) {
	t.Parallel()
	a := architectures()["tiny"]
	d := decoder(t, engine("", 1), a, weights(a, 1))
	_, err := d.Decode(t.Context(), model.DecodeRequest{Prompt: make([]int32, a.MaxPositions), MaxTokens: 1})
	require.ErrorIs(t, err, model.ErrPromptTooLong)
	last, err := d.Decode(t.Context(), model.DecodeRequest{Prompt: make([]int32, a.MaxPositions-1), MaxTokens: 9})
	require.NoError(t, err)
	require.Len(t, last.Tokens, 1)
	for name, r := range map[string]model.DecodeRequest{
		"no prompt":     {MaxTokens: 1},
		"no tokens":     {Prompt: []int32{1}},
		"unknown token": {Prompt: []int32{int32(a.VocabSize)}, MaxTokens: 1},
		"temperature":   {Prompt: []int32{1}, MaxTokens: 1, Temperature: math.Inf(1)},
	} {
		_, err := d.Decode(t.Context(), r)
		require.ErrorIs(t, err, model.ErrRow, name)
	}
}

// With equal rows in the output layer all logits are equal.
func TestGreedyTakesTheLowestOfEqualTokens(t *testing.T) {
	t.Parallel()
	a := architectures()["llama"]
	w := weights(a, 1)
	head := w[len(w)-1].Data
	for v := range a.VocabSize {
		copy(head[v*a.HiddenSize:(v+1)*a.HiddenSize], head[:a.HiddenSize])
	}
	d := decoder(t, engine("", 1), a, w)
	c, err := d.Decode(t.Context(), model.DecodeRequest{Prompt: []int32{5}, MaxTokens: 3})
	require.NoError(t, err)
	require.Equal(t, []int32{0, 0, 0}, c.Tokens)
	require.InDelta(t, -math.Log(float64(a.VocabSize)), c.Logprobs[0], 1e-5)
}

func TestSamplesFollowTheDistribution(t *testing.T) {
	t.Parallel()
	a := model.Tiny(8)
	w := weights(a, 1)
	tr, d := trainer(t, engine("", 2), a, w), decoder(t, engine("", 2), a, w)
	const draws = 4000
	counts := make([]float64, a.VocabSize)
	for seed := range uint64(draws) {
		c, err := d.Decode(t.Context(), model.DecodeRequest{Prompt: []int32{1, 2}, MaxTokens: 1, Temperature: 2, Seed: seed})
		require.NoError(t, err)
		counts[c.Tokens[0]]++
	}
	for v := range a.VocabSize {
		logprobs, _ := score(t, tr, []model.Row{{Tokens: []int32{1, 2, int32(v)}, Temperature: 2}})
		p := math.Exp(float64(logprobs[0][1]))
		require.InDelta(t, p, counts[v]/draws, 4*math.Sqrt(p*(1-p)/draws)+1e-3, "token %d", v)
	}
}

func TestCancelledRequestGivesUpItsPlace(t *testing.T) {
	t.Parallel()
	a := architectures()["tiny"]
	a.MaxPositions = 1 << 20
	d := decoder(t, native.New(native.Options{MaxBatch: 1}), a, weights(a, 1))
	for range 5 {
		ctx, cancel := context.WithCancel(t.Context())
		left := make(chan error, 1)
		go func() { // would run for hours
			_, err := d.Decode(ctx, model.DecodeRequest{Prompt: []int32{1}, MaxTokens: 1 << 19, Temperature: 1})
			left <- err
		}()
		after := make(chan error, 1)
		go func() {
			_, err := d.Decode(t.Context(), model.DecodeRequest{Prompt: []int32{1}, MaxTokens: 4})
			after <- err
		}()
		cancel()
		require.ErrorIs(t, <-left, context.Canceled)
		require.NoError(t, <-after)
	}
}

// The requests that wait are more than a batch has room for, and those in the batch end at
// the same step.
func TestRequestsBeyondTheBatchAreServed(t *testing.T) {
	t.Parallel()
	a := architectures()["tiny"]
	d := decoder(t, native.New(native.Options{MaxBatch: 2}), a, weights(a, 1))
	errs := make(chan error, 64)
	for range cap(errs) {
		go func() {
			_, err := d.Decode(t.Context(), model.DecodeRequest{Prompt: []int32{1}, MaxTokens: 1})
			errs <- err
		}()
	}
	for range cap(errs) {
		require.NoError(t, <-errs)
	}
}

func TestCloseEndsRequests(t *testing.T) {
	t.Parallel()
	a := architectures()["tiny"]
	a.MaxPositions = 1 << 20
	d, err := native.New(native.Options{MaxBatch: 2}).NewDecoder(model.Checkpoint{Architecture: a, Weights: weights(a, 1)})
	require.NoError(t, err)
	errs := make(chan error, 5)
	for range cap(errs) {
		go func() {
			_, err := d.Decode(t.Context(), model.DecodeRequest{Prompt: []int32{1}, MaxTokens: 1 << 19, Temperature: 1})
			errs <- err
		}()
	}
	d.Close()
	for range cap(errs) {
		require.ErrorIs(t, <-errs, decode.ErrClosed)
	}
	_, err = d.Decode(t.Context(), model.DecodeRequest{Prompt: []int32{1}, MaxTokens: 1})
	require.ErrorIs(t, err, decode.ErrClosed)
	d.Close() // a second Close does no harm
}

// Finite weights can still produce logits that are not finite.
func TestInfiniteLogitsAreAnError(t *testing.T) {
	t.Parallel()
	a := architectures()["llama"]
	w := weights(a, 1)
	for i := range w[len(w)-1].Data {
		w[len(w)-1].Data[i] = 3e38
	}
	eachKernel(t, func(t *testing.T, kernelName string) {
		d := decoder(t, engine(kernelName, 1), a, w)
		for _, temperature := range []float64{0, 1} {
			_, err := d.Decode(t.Context(), model.DecodeRequest{Prompt: []int32{1}, MaxTokens: 3, Temperature: temperature})
			require.ErrorIs(t, err, model.ErrNotFinite)
		}
	})
}

// Not parallel: it counts the allocations of the whole process.
func TestDecodingStepsDoNotAllocate(t *testing.T) {
	a := architectures()["llama"]
	d := decoder(t, engine("", 2), a, weights(a, 1))
	allocations := func(tokens int) float64 {
		return testing.AllocsPerRun(20, func() {
			_, err := d.Decode(t.Context(), model.DecodeRequest{Prompt: []int32{1, 2}, MaxTokens: tokens, Temperature: 1})
			require.NoError(t, err)
		})
	}
	long := allocations(120) // first, so that memory has grown
	require.InDelta(t, allocations(4), long, 2, "a completion's allocations grow with its length")
}

// The second request finds what the first one has computed.
func TestARequestSaysHowLongItsPartsTook(t *testing.T) {
	t.Parallel()
	a := architectures()["tiny"]
	d := decoder(t, native.New(native.Options{Threads: 1}), a, weights(a, 1))
	prompt := make([]int32, 20)
	for _, shared := range []int{0, len(prompt) - 1} {
		var timing model.Timing
		_, err := d.Decode(t.Context(), model.DecodeRequest{Prompt: prompt, MaxTokens: 3, Timing: &timing})
		require.NoError(t, err)
		require.Positive(t, timing.Queued)
		require.Positive(t, timing.Prefill)
		require.Positive(t, timing.Decode)
		require.Equal(t, shared, timing.Shared)
	}
}
