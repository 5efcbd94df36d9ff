package native_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/engine/native"
)

// padded returns a model some of whose ids have no token, and whose weights would make it
// choose hardly anything else.
func padded() (model.Architecture, model.Weights) {
	a := model.Tiny(37)
	a.Tied, a.Unused = false, "0,17-19,33-36"
	w := a.Init(3)
	for _, t := range w {
		if t.Name == "lm_head.weight" {
			for id := range a.VocabSize {
				for i := range a.HiddenSize {
					if a.Unused.Has(int32(id)) {
						t.Data[id*a.HiddenSize+i] *= 80
					}
				}
			}
		}
	}
	return a, w
}

func TestIDsWithoutATokenAreNeverChosenAndNeverTrained(t *testing.T) {
	t.Parallel()
	a, w := padded()
	open := a
	open.Unused = ""
	used := model.NewTokenSet(a.VocabSize)
	for id := range int32(a.VocabSize) {
		if !a.Unused.Has(id) {
			used.Add(id)
		}
	}
	e := native.New(native.Options{})
	d, err := e.NewDecoder(model.Checkpoint{Architecture: a, Weights: w})
	require.NoError(t, err)
	defer d.Close()
	masked, err := e.NewTrainer(model.Checkpoint{Architecture: a, Weights: w})
	require.NoError(t, err)
	defer masked.Close()
	free, err := e.NewTrainer(model.Checkpoint{Architecture: open, Weights: w})
	require.NoError(t, err)
	defer free.Close()

	for i, temperature := range []float64{0, 1, 1, 2, 5} {
		r := model.DecodeRequest{Prompt: []int32{5, 6, 7}, MaxTokens: 40, Temperature: temperature, Seed: uint64(i)}
		if i == 2 {
			r.TopP = 0.999999
		}
		reply, err := d.Decode(t.Context(), r)
		require.NoError(t, err)
		row := model.Row{Tokens: append(append([]int32{}, r.Prompt...), reply.Tokens...), Temperature: temperature}
		same := row
		for range len(row.Tokens) - 1 {
			same.Allowed = append(same.Allowed, used)
		}
		for _, token := range reply.Tokens {
			require.False(t, a.Unused.Has(token), "temperature %v: %d", temperature, token)
		}
		logprobs, entropies, err := masked.Score(t.Context(), []model.Row{row})
		require.NoError(t, err)
		if r.TopP == 0 {
			require.Equal(t, reply.Logprobs, logprobs[0][2:], "decoder and trainer agree to the bit")
		}
		want, wantEntropies, err := free.Score(t.Context(), []model.Row{same})
		require.NoError(t, err)
		require.InDeltaSlice(t, want[0], logprobs[0], 1e-5)
		require.InDeltaSlice(t, wantEntropies[0], entropies[0], 1e-5)
	}

	row := model.Row{Tokens: []int32{1, 2, 3, 4, 5, 6, 7, 8, 9}}
	_, err = masked.Update(t.Context(), []model.Row{row}, func(_ int, _, _, gradient, entropies []float32) {
		for i := range gradient {
			gradient[i], entropies[i] = -1, 0.1
		}
	}, model.AdamW{LearningRate: 0.01, Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8})
	require.NoError(t, err)
	after := masked.Checkpoint().Weights
	before, err := w.Tensor("lm_head.weight")
	require.NoError(t, err)
	head, err := after.Tensor("lm_head.weight")
	require.NoError(t, err)
	for id := range a.VocabSize {
		changed := false
		for i := id * a.HiddenSize; i < (id+1)*a.HiddenSize; i++ {
			require.False(t, math.IsNaN(float64(head.Data[i])))
			changed = changed || head.Data[i] != before.Data[i]
		}
		require.Equal(t, !a.Unused.Has(int32(id)), changed, "row %d", id)
	}
}
