package testsuite_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/model"
)

// valueTolerance is of a value near 1, absolute; the largest difference seen is a
// tenth of it.
const valueTolerance = 1e-5

// randomCritic returns a critic whose head is random too.
func randomCritic(t *testing.T, a model.Architecture) model.Checkpoint {
	t.Helper()
	c, err := model.CriticOf(randomCheckpoint(a))
	require.NoError(t, err)
	for _, head := range c.Weights[len(c.Weights)-2:] {
		model.GumbelNoise(13, 0, head.Data)
		for i := range head.Data {
			head.Data[i] *= 0.1
		}
	}
	return c
}

// bothCritics runs f on a critic of each engine.
func bothCritics(t *testing.T, engines []model.Engine, c model.Checkpoint, f func(model.Critic)) {
	t.Helper()
	for _, e := range engines {
		critic, err := e.NewCritic(c)
		require.NoError(t, err)
		f(critic)
		critic.Close()
	}
}

// regression is half the squared difference between values and made-up returns, with some
// positions masked.
func regression(row int, values, gradient []float32) {
	for i, v := range values {
		if (row+i)%3 > 0 {
			gradient[i] = (v - float32(math.Sin(float64(5*row+2*i)))) / 50
		}
	}
}

func TestEnginesAgreeOnValuesAndTheirGradients(t *testing.T) {
	t.Parallel()
	skipShort(t, "arithmetic")
	eachPair(t, func(t *testing.T, engines []model.Engine) {
		for name, a := range architectures() {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				var values [][][]float32
				var norms []float64
				var gradients []model.Weights
				bothCritics(t, engines, randomCritic(t, a), func(critic model.Critic) {
					v, err := critic.Values(t.Context(), ragged(a))
					require.NoError(t, err)
					norm, err := critic.Update(t.Context(), ragged(a), regression, model.AdamW{LearningRate: 1e-3, Epsilon: 1e-8})
					require.NoError(t, err)
					values, norms, gradients = append(values, v), append(norms, norm), append(gradients, critic.Checkpoint().Mean)
				})
				for i, r := range ragged(a) {
					require.Len(t, values[0][i], len(r.Tokens)-1)
					require.InDeltaSlice(t, values[0][i], values[1][i], valueTolerance, "row %d", i)
				}
				require.InEpsilon(t, norms[0], norms[1], gradientTolerance)
				for i, g := range gradients[0] {
					length, difference := distance(g.Data, nil), distance(g.Data, gradients[1][i].Data)
					require.Positive(t, length, g.Name)
					require.Less(t, difference, gradientTolerance*length, g.Name)
				}
			})
		}
	})
}

func TestEnginesAgreeAfterUpdatesOfACritic(t *testing.T) {
	t.Parallel()
	skipShort(t, "arithmetic")
	opt := model.AdamW{LearningRate: 1e-3, Beta1: 0.9, Beta2: 0.98, Epsilon: 1e-6, WeightDecay: 0.1, ClipNorm: 0.05}
	eachPair(t, func(t *testing.T, engines []model.Engine) {
		for name, a := range architectures() {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				var after []model.Checkpoint
				bothCritics(t, engines, randomCritic(t, a), func(critic model.Critic) {
					for range 10 {
						_, err := critic.Update(t.Context(), ragged(a), regression, opt)
						require.NoError(t, err)
					}
					after = append(after, critic.Checkpoint())
				})
				for i, w := range after[0].Weights {
					other, mean := after[1].Weights[i].Data, 0.0
					for j := range w.Data {
						mean += math.Abs(float64(w.Data[j])-float64(other[j])) / float64(len(other))
					}
					require.Less(t, mean, weightTolerance*opt.LearningRate, w.Name)
				}
			})
		}
	})
}
