package gomlx_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/engine/gomlx"
	"github.com/fulgurite/fulgurite/model/engine/native"
)

func TestIDsWithoutATokenHaveProbabilityZero(t *testing.T) {
	t.Parallel()
	a := small()
	a.Unused = model.TokenRanges("0,3-6")
	w := a.Init(1)
	e := engine(t, gomlx.Options{})
	d, err := e.NewDecoder(model.Checkpoint{Architecture: a, Weights: w})
	require.NoError(t, err)
	t.Cleanup(d.Close)
	trains, err := e.NewTrainer(model.Checkpoint{Architecture: a, Weights: w})
	require.NoError(t, err)
	t.Cleanup(trains.Close)
	reference, err := native.New(native.Options{}).NewTrainer(model.Checkpoint{Architecture: a, Weights: w})
	require.NoError(t, err)
	t.Cleanup(reference.Close)
	var rows []model.Row
	for i, topP := range []float64{0, 0.9999} {
		for seed := range uint64(4) {
			reply, err := d.Decode(t.Context(), model.DecodeRequest{Prompt: []int32{1, 2}, MaxTokens: 20, Temperature: 3, TopP: topP, Seed: seed})
			require.NoError(t, err)
			for _, token := range reply.Tokens {
				require.False(t, a.Unused.Has(token), "top_p %v: %d", topP, token)
			}
			if i == 0 {
				rows = append(rows, model.Row{Tokens: append([]int32{1, 2}, reply.Tokens...), Temperature: 3})
			}
		}
	}
	want, wantEntropies, err := reference.Score(t.Context(), rows)
	require.NoError(t, err)
	got, entropies, err := trains.Score(t.Context(), rows)
	require.NoError(t, err)
	for i := range rows {
		require.InDeltaSlice(t, want[i], got[i], 1e-4)
		require.InDeltaSlice(t, wantEntropies[i], entropies[i], 1e-4)
	}
}
