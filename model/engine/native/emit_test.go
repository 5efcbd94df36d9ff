package native_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/engine/native"
)

func TestEachTokenIsEmittedInOrder(t *testing.T) {
	t.Parallel()
	a := architectures()["tiny"]
	d := decoder(t, engine("", 2), a, weights(a, 1))
	for _, r := range restrictedRequests(a, 30, 6) {
		var tokens []int32
		var logprobs []float32
		r.Emit = func(token int32, logprob float32) {
			tokens, logprobs = append(tokens, token), append(logprobs, logprob)
		}
		c, err := d.Decode(t.Context(), r)
		require.NoError(t, err)
		require.Equal(t, c.Tokens, tokens)
		require.Equal(t, bits(c.Logprobs), bits(logprobs))
	}
}

// A token is emitted when it is sampled, not when the completion is finished: here the
// first token makes the caller cancel the request.
func TestTokensAreEmittedAsTheyAreSampled(t *testing.T) {
	t.Parallel()
	a := architectures()["tiny"]
	a.MaxPositions = 1 << 20
	d := decoder(t, engine("", 1), a, weights(a, 1))
	ctx, cancel := context.WithCancel(t.Context())
	var returned atomic.Bool
	emitted := 0
	_, err := d.Decode(ctx, model.DecodeRequest{
		Prompt: []int32{1}, MaxTokens: 1 << 19, Temperature: 1, // would run for hours
		Emit: func(int32, float32) {
			emitted++
			if returned.Load() {
				panic("a token was emitted after Decode had returned")
			}
			cancel()
		},
	})
	returned.Store(true)
	require.ErrorIs(t, err, context.Canceled)
	require.Positive(t, emitted)
	// The decoder continues. By the end of this request it has made the steps that could
	// still have emitted a token.
	_, err = d.Decode(t.Context(), model.DecodeRequest{Prompt: []int32{1}, MaxTokens: 9})
	require.NoError(t, err)
}

func TestAListenerThatBlocksHoldsUpNobodyElse(t *testing.T) {
	t.Parallel()
	a := architectures()["tiny"]
	d := decoder(t, native.New(native.Options{Threads: 1, MaxBatch: 2}), a, weights(a, 1))
	begun, release, done := make(chan struct{}, 100), make(chan struct{}), make(chan error, 1)
	go func() {
		_, err := d.Decode(t.Context(), model.DecodeRequest{Prompt: []int32{1}, MaxTokens: 50, Temperature: 1, Emit: func(int32, float32) {
			begun <- struct{}{}
			<-release
		}})
		done <- err
	}()
	<-begun
	for range 3 {
		_, err := d.Decode(t.Context(), model.DecodeRequest{Prompt: []int32{2}, MaxTokens: 60, Temperature: 1})
		require.NoError(t, err)
	}
	close(release)
	require.NoError(t, <-done)
	require.Len(t, begun, 49, "it hears of every token in the end")
}

func TestAListenerThatPanicsLeavesTheBatch(t *testing.T) {
	t.Parallel()
	a := architectures()["tiny"]
	a.MaxPositions = 1 << 20
	d := decoder(t, native.New(native.Options{MaxBatch: 1}), a, weights(a, 1))
	require.Panics(t, func() {
		_, _ = d.Decode(t.Context(), model.DecodeRequest{Prompt: []int32{1}, MaxTokens: 1 << 19, Temperature: 1, Emit: func(int32, float32) { panic("gone") }})
	})
	_, err := d.Decode(t.Context(), model.DecodeRequest{Prompt: []int32{1}, MaxTokens: 4})
	require.NoError(t, err)
}
