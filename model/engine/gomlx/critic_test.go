package gomlx_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/engine/gomlx"
)

// criticCheckpoint returns a critic whose weights are all random, those of the head too.
func criticCheckpoint(t *testing.T, a model.Architecture) model.Checkpoint {
	t.Helper()
	c, err := model.CriticOf(model.Checkpoint{Architecture: a, Weights: weights(a)})
	require.NoError(t, err)
	for _, head := range c.Weights[len(c.Weights)-2:] {
		model.GumbelNoise(4, 0, head.Data)
	}
	return c
}

func critic(t *testing.T, e *gomlx.Engine, c model.Checkpoint) model.Critic {
	t.Helper()
	made, err := e.NewCritic(c)
	require.NoError(t, err)
	t.Cleanup(made.Close)
	return made
}

func TestValuesDoNotDependOnTheBatchOrOnHowTokensWereChosen(t *testing.T) {
	t.Parallel()
	start := criticCheckpoint(t, small())
	together, alone := critic(t, engine(t, gomlx.Options{}), start), critic(t, engine(t, gomlx.Options{Tokens: 1}), start)
	values, err := together.Values(t.Context(), rows())
	require.NoError(t, err)
	for i, r := range rows() {
		require.Len(t, values[i], len(r.Tokens)-1)
		plain, err := alone.Values(t.Context(), []model.Row{{Tokens: r.Tokens}})
		require.NoError(t, err)
		require.InDeltaSlice(t, plain[0], values[i], 1e-5)
	}
}

// waveValues is an objective whose derivatives are fixed numbers of either sign.
func waveValues(row int, values, gradient []float32) {
	for i := range values {
		gradient[i] = float32(math.Sin(float64(3*row + i + 1)))
	}
}

func TestValueGradientMatchesFiniteDifferences(t *testing.T) {
	t.Parallel()
	e, start := engine(t, gomlx.Options{}), criticCheckpoint(t, small())
	loss := func(w model.Weights) float64 {
		c, err := e.NewCritic(model.Checkpoint{Architecture: start.Architecture, Weights: w})
		require.NoError(t, err)
		defer c.Close()
		values, err := c.Values(t.Context(), rows())
		require.NoError(t, err)
		total := 0.0
		for row, v := range values {
			gradient := make([]float32, len(v))
			waveValues(row, v, gradient)
			for i := range v {
				total += float64(gradient[i]) * float64(v[i])
			}
		}
		return total
	}
	c := critic(t, e, start)
	// With beta1 0 the first moment of a fresh optimizer is the gradient.
	norm, err := c.Update(t.Context(), rows(), waveValues, model.AdamW{LearningRate: 1e-3, Epsilon: 1e-8})
	require.NoError(t, err)
	squares := 0.0
	for i, g := range c.Checkpoint().Mean {
		length := 0.0
		for _, x := range g.Data {
			length += float64(x) * float64(x)
		}
		squares += length
		length = math.Sqrt(length)
		require.NotZero(t, length, g.Name)
		moved := func(by float64) float64 {
			w := append(model.Weights(nil), start.Weights...)
			w[i].Data = append([]float32(nil), w[i].Data...)
			for j, x := range g.Data {
				w[i].Data[j] += float32(by * float64(x) / length)
			}
			return loss(w)
		}
		central := func(h float64) float64 { return (moved(h) - moved(-h)) / (2 * h) }
		const h = 4e-3
		// Values add up to some tens, so a slope in float32 has that much uncertainty.
		require.InDelta(t, length, (4*central(h/2)-central(h))/3, 0.01*length+0.02, g.Name)
	}
	require.InEpsilon(t, math.Sqrt(squares), norm, 1e-3)
}

func TestAHeadOfTheOtherKindIsRefused(t *testing.T) {
	t.Parallel()
	e, c := engine(t, gomlx.Options{}), criticCheckpoint(t, small())
	_, err := e.NewTrainer(c)
	require.ErrorIs(t, err, model.ErrArchitecture)
	_, err = e.NewDecoder(model.Checkpoint{Architecture: c.Architecture, Weights: c.Weights})
	require.ErrorIs(t, err, model.ErrArchitecture)
	_, err = e.NewCritic(model.Checkpoint{Architecture: small(), Weights: weights(small())})
	require.ErrorIs(t, err, model.ErrArchitecture)
}
