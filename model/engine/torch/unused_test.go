package torch_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/engine/native"
	"github.com/fulgurite/fulgurite/model/engine/torch"
)

func TestIDsWithoutATokenHaveProbabilityZero(t *testing.T) {
	t.Parallel()
	a := small()
	a.Unused = "0,5-7"
	c := start(a)
	e, reference := engine(t, torch.Options{}), native.New(native.Options{})
	trains, err := e.NewTrainer(c)
	require.NoError(t, err)
	t.Cleanup(trains.Close)
	like, err := reference.NewTrainer(c)
	require.NoError(t, err)
	t.Cleanup(like.Close)
	d := decoder(t, e, c)
	var rows []model.Row
	for seed := range uint64(4) {
		for _, topP := range []float64{0, 0.999} {
			reply, err := d.Decode(t.Context(), model.DecodeRequest{Prompt: []int32{1, 2}, MaxTokens: 20, Temperature: 3, TopP: topP, Seed: seed})
			require.NoError(t, err)
			for _, token := range reply.Tokens {
				require.False(t, a.Unused.Has(token), "top_p %v: %d", topP, token)
			}
			rows = append(rows, model.Row{Tokens: append([]int32{1, 2}, reply.Tokens...), Temperature: 3})
		}
	}
	want, wantEntropies, err := like.Score(t.Context(), rows)
	require.NoError(t, err)
	got, entropies, err := trains.Score(t.Context(), rows)
	require.NoError(t, err)
	for i := range rows {
		require.InDeltaSlice(t, want[i], got[i], tolerance)
		require.InDeltaSlice(t, wantEntropies[i], entropies[i], tolerance)
	}
	objective := func(_ int, _, _, gradient, entropies []float32) {
		for i := range gradient {
			gradient[i], entropies[i] = -1, 0.1
		}
	}
	opt := model.AdamW{LearningRate: 0.001, Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8}
	norm, err := trains.Update(t.Context(), rows, objective, opt)
	require.NoError(t, err)
	wanted, err := like.Update(t.Context(), rows, objective, opt)
	require.NoError(t, err)
	require.InEpsilon(t, wanted, norm, 1e-3)
}
