package gomlx_test

import (
	"context"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/engine/gomlx"
)

func decoder(t *testing.T, o gomlx.Options, a model.Architecture) model.Decoder {
	t.Helper()
	d, err := engine(t, o).NewDecoder(model.Checkpoint{Architecture: a, Weights: weights(a)})
	require.NoError(t, err)
	t.Cleanup(d.Close)
	return d
}

// The test samples again from scores: the token is the one with the largest
// log-probability plus noise, and its log-probability is that of a forward pass over the
// whole row.
func TestDecodingAgreesWithScoring(t *testing.T) {
	t.Parallel()
	a := small()
	d, tr := decoder(t, gomlx.Options{}, a), trainer(t, engine(t, gomlx.Options{}), a)
	prompts := [][]int32{{3}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0, 1, 2, 3, 4, 5, 6, 7, 8}, {5, 5, 5}}
	for _, temperature := range []float64{0, 1, 0.6} {
		for k, prompt := range prompts {
			c, err := d.Decode(t.Context(), model.DecodeRequest{Prompt: prompt, MaxTokens: 12, Temperature: temperature, Seed: uint64(k)})
			require.NoError(t, err)
			require.Len(t, c.Tokens, 12)
			require.Equal(t, "length", c.Finish)
			all := append(append([]int32(nil), prompt...), c.Tokens...)
			logprobs, _, err := tr.Score(t.Context(), []model.Row{{Tokens: all, Temperature: temperature}})
			require.NoError(t, err)
			require.InDeltaSlice(t, logprobs[0][len(prompt)-1:], c.Logprobs, 1e-5)
			for i, token := range c.Tokens {
				require.Equal(t, token, choose(t, tr, all[:len(prompt)+i], temperature, uint64(k), i), "token %d at temperature %v", i, temperature)
			}
		}
	}
}

func choose(t *testing.T, tr model.Trainer, context []int32, temperature float64, seed uint64, index int) int32 {
	t.Helper()
	noise := make([]float32, small().VocabSize)
	if temperature > 0 {
		model.GumbelNoise(seed, index, noise)
	}
	candidates := make([]model.Row, len(noise))
	for v := range candidates {
		candidates[v] = model.Row{Tokens: append(append([]int32(nil), context...), int32(v)), Temperature: temperature}
	}
	logprobs, _, err := tr.Score(t.Context(), candidates)
	require.NoError(t, err)
	best, most := int32(0), float32(math.Inf(-1))
	for v, lp := range logprobs {
		if x := lp[len(lp)-1] + noise[v]; x > most {
			best, most = int32(v), x
		}
	}
	return best
}

func TestRequestsInFlightDoNotDisturbEachOther(t *testing.T) {
	t.Parallel()
	a := small()
	alone := decoder(t, gomlx.Options{Capacity: 1}, a)
	together := decoder(t, gomlx.Options{Capacity: 6}, a) // fewer than there are requests
	request := func(i int) model.DecodeRequest {
		prompt := make([]int32, 1+(7*i)%19)
		for j := range prompt {
			prompt[j] = int32((i + j*j) % a.VocabSize)
		}
		return model.DecodeRequest{Prompt: prompt, MaxTokens: 1 + (5*i)%17, Temperature: float64(i%3) / 2, Stop: []int32{int32(i % 5)}, Seed: uint64(i)}
	}
	var group errgroup.Group
	completions := make([]model.Completion, 40)
	for i := range completions {
		group.Go(func() (err error) {
			completions[i], err = together.Decode(t.Context(), request(i))
			return err
		})
	}
	require.NoError(t, group.Wait())
	stopped := 0
	for i, c := range completions {
		want, err := alone.Decode(t.Context(), request(i))
		require.NoError(t, err)
		require.Equal(t, want.Tokens, c.Tokens, "request %d", i)
		require.Equal(t, want.Finish, c.Finish)
		require.InDeltaSlice(t, want.Logprobs, c.Logprobs, 1e-5)
		if c.Finish == "stop" {
			stopped++
			require.Contains(t, request(i).Stop, c.Tokens[len(c.Tokens)-1])
			require.NotContains(t, c.Tokens[:len(c.Tokens)-1], request(i).Stop[0])
		} else {
			require.Len(t, c.Tokens, request(i).MaxTokens)
		}
	}
	require.Positive(t, stopped)
	require.Less(t, stopped, len(completions))
}

func TestPositionsEndACompletion(t *testing.T) {
	t.Parallel()
	a := small()
	d := decoder(t, gomlx.Options{}, a)
	c, err := d.Decode(t.Context(), model.DecodeRequest{Prompt: make([]int32, a.MaxPositions-2), MaxTokens: 10})
	require.NoError(t, err)
	require.Len(t, c.Tokens, 2)
	require.Equal(t, "length", c.Finish)
	_, err = d.Decode(t.Context(), model.DecodeRequest{Prompt: make([]int32, a.MaxPositions), MaxTokens: 10})
	require.ErrorIs(t, err, model.ErrPromptTooLong)
}

func TestRequestsThatCannotBeAreRefused(t *testing.T) {
	t.Parallel()
	d := decoder(t, gomlx.Options{}, small())
	for _, r := range []model.DecodeRequest{
		{MaxTokens: 1}, {Prompt: []int32{1}}, {Prompt: []int32{-1}, MaxTokens: 1}, {Prompt: []int32{99}, MaxTokens: 1},
		{Prompt: []int32{1}, MaxTokens: 1, Temperature: -1}, {Prompt: []int32{1}, MaxTokens: 1, Temperature: math.Inf(1)},
	} {
		_, err := d.Decode(t.Context(), r)
		require.ErrorContains(t, err, "decode")
	}
}

func TestLeavingAndClosingEndRequests(t *testing.T) {
	t.Parallel()
	d := decoder(t, gomlx.Options{Capacity: 1}, small())
	gone, leave := context.WithCancel(t.Context())
	leave()
	_, err := d.Decode(gone, model.DecodeRequest{Prompt: []int32{1}, MaxTokens: 30})
	require.ErrorIs(t, err, context.Canceled)
	_, err = d.Decode(t.Context(), model.DecodeRequest{Prompt: []int32{1}, MaxTokens: 3})
	require.NoError(t, err)
	d.Close()
	d.Close()
	_, err = d.Decode(t.Context(), model.DecodeRequest{Prompt: []int32{1}, MaxTokens: 3})
	require.ErrorContains(t, err, "closed")
}

// The batch grows to the number of requests that arrive at once, also directly to a size
// that has a graph but no cache yet.
func TestBatchesGrowToAnySize(t *testing.T) {
	t.Parallel()
	d := decoder(t, gomlx.Options{}, small())
	for range 10 {
		for _, n := range []int{1, 2, 8, 32, 5} {
			var g errgroup.Group
			for i := range n {
				g.Go(func() error {
					_, err := d.Decode(t.Context(), model.DecodeRequest{Prompt: []int32{1, 2, 3}, MaxTokens: 3 + i%5, Temperature: 1, Seed: uint64(i)})
					return err
				})
			}
			require.NoError(t, g.Wait())
		}
	}
}
