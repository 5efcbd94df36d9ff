package native_test

import (
	"context"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/credit"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/engine/native"
)

// criticCheckpoint returns a critic whose weights are all random, those of the head too.
func criticCheckpoint(t *testing.T, a model.Architecture, seed uint64) model.Checkpoint {
	t.Helper()
	c, err := model.CriticOf(model.Checkpoint{Architecture: a, Weights: weights(a, seed)})
	require.NoError(t, err)
	r := rand.New(rand.NewPCG(seed, 8))
	for _, head := range c.Weights[len(c.Weights)-2:] {
		for i := range head.Data {
			head.Data[i] = float32(0.3 * r.NormFloat64())
		}
	}
	return c
}

func critic(t *testing.T, e *native.Engine, c model.Checkpoint) model.Critic {
	t.Helper()
	made, err := e.NewCritic(c)
	require.NoError(t, err)
	t.Cleanup(made.Close)
	return made
}

func values(t *testing.T, c model.Critic, rows []model.Row) [][]float32 {
	t.Helper()
	v, err := c.Values(t.Context(), rows)
	require.NoError(t, err)
	return v
}

// values returns the reference's values, one before each of tokens[1:].
func (r reference) values(tokens []int32) []float64 {
	var out []float64
	for _, x := range r.stream(tokens) {
		out = append(out, r.linear("score", r.norm("model.norm", x))[0])
	}
	return out
}

func TestValuesAreThoseOfTheReference(t *testing.T) {
	t.Parallel()
	eachModel(t, func(t *testing.T, a model.Architecture, kernelName string) {
		a.MaxPositions = 300
		c, batch := criticCheckpoint(t, a, 8), append(rows(a, 8, 70, 6), longRow(a, 280))
		got := values(t, critic(t, engine(kernelName, 2), c), batch)
		r := newReference(c.Architecture, c.Weights)
		for i, row := range batch {
			require.Len(t, got[i], len(row.Tokens)-1)
			for j, want := range r.values(row.Tokens) {
				require.InDelta(t, want, got[i][j], 1e-5*math.Max(1, math.Abs(want)), "row %d, position %d", i, j)
			}
		}
	})
}

func TestANewCriticKnowsNothing(t *testing.T) {
	t.Parallel()
	a := architectures()["everything"]
	c, err := model.CriticOf(model.Checkpoint{Architecture: a, Weights: weights(a, 1)})
	require.NoError(t, err)
	for _, row := range values(t, critic(t, engine("", 1), c), rows(a, 9, 40, 4)) {
		require.Equal(t, make([]float32, len(row)), append([]float32{}, row...))
	}
}

// weightedValues is an objective whose derivatives are fixed numbers.
func weightedValues(row int, values, gradient []float32) {
	for i := range values {
		gradient[i], _ = coefficient(row, i)
	}
}

func TestValueGradientsMatchFiniteDifferences(t *testing.T) {
	arithmetic(t)
	t.Parallel()
	eachModel(t, func(t *testing.T, a model.Architecture, kernelName string) {
		start, batch := criticCheckpoint(t, a, 3), rows(a, 7, 36, 4)
		loss := func(w model.Weights) float64 {
			made, err := engine(kernelName, 1).NewCritic(model.Checkpoint{Architecture: start.Architecture, Weights: w})
			require.NoError(t, err)
			defer made.Close()
			total := 0.0
			for r, row := range values(t, made, batch) {
				for i, v := range row {
					c, _ := coefficient(r, i)
					total += float64(c) * float64(v)
				}
			}
			return total
		}
		c := critic(t, engine(kernelName, 2), start)
		norm, err := c.Update(t.Context(), batch, weightedValues, model.AdamW{Beta1: 0.5, Beta2: 0.5, Epsilon: 1e-8})
		require.NoError(t, err)
		total := 0.0
		for i, g := range c.Checkpoint().Mean {
			length := 2 * lengthOf(g.Data) // the mean is half of the gradient
			require.NotZero(t, length, g.Name)
			total += length * length
			at := func(step float64) float64 {
				moved := append(model.Weights{}, start.Weights...)
				moved[i].Data = append([]float32{}, moved[i].Data...)
				for j := range g.Data {
					moved[i].Data[j] += float32(step * 2 * float64(g.Data[j]) / length)
				}
				return loss(moved)
			}
			central := func(h float64) float64 { return (at(h) - at(-h)) / (2 * h) }
			const h = 0.02
			require.InEpsilon(t, length, (4*central(h/2)-central(h))/3, 0.01, g.Name)
		}
		require.InEpsilon(t, math.Sqrt(total), norm, 1e-5)
	})
}

func lengthOf(xs []float32) float64 {
	squares := 0.0
	for _, x := range xs {
		squares += float64(x) * float64(x)
	}
	return math.Sqrt(squares)
}

func TestAValueIsTheSameInEveryBatch(t *testing.T) {
	t.Parallel()
	eachModel(t, func(t *testing.T, a model.Architecture, kernelName string) {
		start, batch := criticCheckpoint(t, a, 1), rows(a, 64, 30, 2)
		alone, crowded := critic(t, engine(kernelName, 1), start), critic(t, engine(kernelName, 3), start)
		var want [][]uint32
		for i, row := range batch {
			want = append(want, bits(values(t, alone, batch[i:i+1])[0]))
			half := row.Tokens[:(len(row.Tokens)+1)/2]
			require.Equal(t, want[i][:len(half)-1], bits(values(t, alone, []model.Row{{Tokens: half}})[0]), "what follows has no part in it")
		}
		for size := 1; size <= len(batch); size += 1 + size/8 {
			from := (size * 37) % (len(batch) - size + 1)
			for i, row := range values(t, crowded, batch[from:from+size]) {
				require.Equal(t, want[from+i], bits(row), "row %d among %d", from+i, size)
			}
		}
	})
}

// counts returns, for each position, how often token 1 is still to come. The tokens so
// far give only a hint of this return.
func counts(row model.Row) []float64 {
	out := make([]float64, len(row.Tokens)-1)
	for i := len(out) - 1; i >= 0; i-- {
		if i+1 < len(out) {
			out[i] = out[i+1]
		}
		if row.Tokens[i+1] == 1 {
			out[i]++
		}
	}
	return out
}

// regression returns the objective for half the mean squared difference from counts.
func regression(batch []model.Row) model.ValueObjective {
	n := 0
	for _, row := range batch {
		n += len(row.Tokens) - 1
	}
	return func(row int, values, gradient []float32) {
		for i, want := range counts(batch[row]) {
			_, derivative := credit.ValueLoss{}.Evaluate(float64(values[i]), 0, want)
			gradient[i] = float32(derivative / float64(n))
		}
	}
}

func TestUpdatesOfACriticAreTheSameForAnyThreadsAndAfterAResume(t *testing.T) {
	t.Parallel()
	eachModel(t, func(t *testing.T, a model.Architecture, kernelName string) {
		start, batch := criticCheckpoint(t, a, 1), rows(a, 50, 40, 2)
		var want model.Checkpoint
		for _, threads := range []int{1, 2, 5} {
			c := critic(t, engine(kernelName, threads), start)
			for u := range 4 {
				if u == threads { // another engine continues
					c = critic(t, engine(kernelName, 2), c.Checkpoint())
				}
				_, err := c.Update(t.Context(), batch, regression(batch), adamW())
				require.NoError(t, err)
			}
			have := c.Checkpoint()
			if threads == 1 {
				want = have
			}
			require.Equal(t, 4, have.Updates)
			require.Equal(t, weightBits(want.Weights), weightBits(have.Weights), "%d threads", threads)
			require.Equal(t, weightBits(want.Mean), weightBits(have.Mean), "%d threads", threads)
			require.Equal(t, weightBits(want.Variance), weightBits(have.Variance), "%d threads", threads)
		}
	})
}

// The critic fits the rows that it is trained on, and predicts the returns of others. The
// first token of a row says how likely the counted token is, so that there is something
// to predict.
func TestACriticLearnsReturns(t *testing.T) {
	t.Parallel()
	a := model.Tiny(12)
	r := rand.New(rand.NewPCG(1, 2))
	draw := func(n int) []model.Row {
		out := make([]model.Row, n)
		for i := range out {
			kind := r.IntN(4)
			out[i].Tokens = []int32{int32(8 + kind)}
			for range 12 {
				token := int32(1)
				if r.IntN(4) >= kind {
					token = 2 + r.Int32N(6)
				}
				out[i].Tokens = append(out[i].Tokens, token)
			}
		}
		return out
	}
	train, unseen := draw(96), draw(96)
	start, err := model.CriticOf(model.Checkpoint{Architecture: a, Weights: a.Init(1)})
	require.NoError(t, err)
	c := critic(t, engine("", 2), start)
	explained := func(batch []model.Row) float64 {
		var have, want []float64
		for i, row := range values(t, c, batch) {
			for _, v := range row {
				have = append(have, float64(v))
			}
			want = append(want, counts(batch[i])...)
		}
		return credit.ExplainedVariance(have, want)
	}
	require.Zero(t, explained(unseen))
	for range 60 {
		_, err := c.Update(t.Context(), train, regression(train), adamW())
		require.NoError(t, err)
	}
	require.Greater(t, explained(train), 0.8)
	require.Greater(t, explained(unseen), 0.7)
}

func TestAHeadOfTheOtherKindIsRefused(t *testing.T) {
	t.Parallel()
	a := architectures()["tiny"]
	e, c := engine("", 1), criticCheckpoint(t, a, 1)
	_, err := e.NewTrainer(c)
	require.ErrorIs(t, err, model.ErrArchitecture)
	_, err = e.NewDecoder(c)
	require.ErrorIs(t, err, model.ErrArchitecture)
	_, err = e.NewCritic(model.Checkpoint{Architecture: a, Weights: weights(a, 1)})
	require.ErrorIs(t, err, model.ErrArchitecture)
	c.Weights = c.Weights[1:]
	_, err = e.NewCritic(c)
	require.ErrorIs(t, err, model.ErrArchitecture)
}

func TestACriticThatDivergesOrIsCancelledChangesNothing(t *testing.T) {
	t.Parallel()
	a := architectures()["qwen2"]
	batch, c := rows(a, 9, 30, 4), critic(t, engine("", 2), criticCheckpoint(t, a, 3))
	before := c.Checkpoint()
	_, err := c.Update(t.Context(), batch, func(_ int, values, gradient []float32) {
		for i := range values {
			gradient[i] = float32(math.Inf(1))
		}
	}, adamW())
	require.ErrorIs(t, err, model.ErrDiverged)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = c.Update(ctx, batch, regression(batch), adamW())
	require.ErrorIs(t, err, context.Canceled)
	_, err = c.Values(ctx, batch)
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, before, c.Checkpoint())
}
