package native_test

import (
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/engine/native"
)

// What is not needed changes no bit of what is read, and none of an update. The rows share
// beginnings, and every third has no gradient, as where all attempts of a group got the
// same reward.
func TestWhatIsNotNeededChangesNothing(t *testing.T) {
	t.Parallel()
	for name, a := range architecturesAndWide() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, c := range []model.Checkpoint{{Architecture: a, Weights: weights(a, 1)}, adapted(a, lora(), 3)} {
				all := branches(a, 20, 50, 5)
				some, needs := make([]model.Row, len(all)), make([][]bool, len(all))
				for i, row := range all {
					needs[i] = make([]bool, len(row.Tokens)-1)
					for t := range needs[i] {
						needs[i][t] = t > len(needs[i])/2+i%5 && t%7 != 0
					}
					some[i] = row
					some[i].Needed = needs[i]
				}
				var zeros atomic.Int64 // among what is not needed: not computed, or certain
				objective := func(read [][]float32) model.Objective {
					return func(row int, logprobs, entropies, gradient, entropyGradient []float32) {
						for t, needed := range needs[row] {
							if !needed {
								if logprobs[t] == 0 {
									zeros.Add(1)
								}
								continue
							}
							read[row] = append(read[row], logprobs[t], entropies[t])
							if row%3 > 0 {
								gradient[t], entropyGradient[t] = -0.02*float32(1+t%3), 0.001
							}
						}
					}
				}
				for _, chunks := range []bool{false, true} {
					var read [2][][]float32
					var have [2][]string
					var norms [2]float64
					var left [2]int64
					for k, batch := range [][]model.Row{all, some} {
						tr := trainerOf(t, engine("", 2), c)
						if chunks {
							native.LimitLogits(tr, 1)
						}
						read[k] = make([][]float32, len(all))
						norm, err := tr.Update(t.Context(), batch, objective(read[k]), adamW())
						require.NoError(t, err)
						left[k] = zeros.Swap(0)
						norms[k], have[k] = norm, weightBits(tr.Checkpoint().Weights)
					}
					require.Greater(t, left[1], left[0])
					require.Positive(t, norms[0])
					require.Equal(t, read[0], read[1])
					require.Equal(t, have[0], have[1])
				}
			}
		})
	}
}

// The rows beside one without a gradient learn the same as without it.
func TestRowsWithoutAGradientTeachNothing(t *testing.T) {
	t.Parallel()
	a := wideModel()
	c := adapted(a, lora(), 3)
	learns, flat := rows(a, 4, 60, 3), rows(a, 9, 60, 4)
	first := func(row int, logprobs, entropies, gradient, entropyGradient []float32) {
		if row < len(learns) {
			weighted(row, logprobs, entropies, gradient, entropyGradient)
		}
	}
	gradient := func(batch []model.Row) (model.Weights, float64) {
		tr := trainerOf(t, engine("", 2), c)
		norm, err := tr.Update(t.Context(), batch, first, model.AdamW{Beta1: 0.5, Beta2: 0.5, Epsilon: 1e-8})
		require.NoError(t, err)
		return tr.Checkpoint().Mean, norm
	}
	alone, norm := gradient(learns)
	both, same := gradient(append(learns[:len(learns):len(learns)], flat...))
	requireClose(t, alone, both)
	require.InEpsilon(t, norm, same, 1e-5)

	tr := trainerOf(t, engine("", 2), c)
	before := weightBits(tr.Checkpoint().Weights)
	norm, err := tr.Update(t.Context(), flat, func(int, []float32, []float32, []float32, []float32) {}, model.AdamW{LearningRate: 1, Beta1: 0.9, Beta2: 0.9, Epsilon: 1e-8})
	require.NoError(t, err)
	require.Zero(t, norm)
	require.Equal(t, before, weightBits(tr.Checkpoint().Weights))
}

func TestNeededHasAValueForEachToken(t *testing.T) {
	t.Parallel()
	a := model.Tiny(32)
	tr := trainer(t, engine("", 1), a, weights(a, 1))
	batch := []model.Row{{Tokens: []int32{1, 2, 3}}, {Tokens: []int32{1, 2, 3}, Needed: []bool{true}}}
	_, err := tr.Update(t.Context(), batch, likelihood(4), adamW())
	require.ErrorIs(t, err, model.ErrRow)
	require.ErrorContains(t, err, "row 1: ")
	require.ErrorContains(t, err, "needed has 1 values for 3 tokens, want 2")
}
