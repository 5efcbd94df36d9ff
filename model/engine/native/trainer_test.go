package native_test

import (
	"context"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/model"
)

func TestTrainingOverfitsOneBatch(t *testing.T) {
	t.Parallel()
	a := model.Tiny(32)
	batch := rows(a, 4, 20, 3)
	n := 0
	for i := range batch {
		batch[i].Temperature = 1
		batch[i].Tokens[0] = int32(i) // makes the rows differ
		n += len(batch[i].Tokens) - 1
	}
	eachKernel(t, func(t *testing.T, kernelName string) {
		tr := trainer(t, engine(kernelName, 2), a, a.Init(1))
		mean := func() float64 {
			total := 0.0
			logprobs, _ := score(t, tr, batch)
			for _, row := range logprobs {
				for _, l := range row {
					total += float64(l)
				}
			}
			return total / float64(n)
		}
		require.InDelta(t, -math.Log(32), mean(), 0.5)
		objective := func(_ int, logprobs, _, gradient, _ []float32) {
			for i := range logprobs {
				gradient[i] = -1 / float32(n)
			}
		}
		for range 150 {
			_, err := tr.Update(t.Context(), batch, objective, adamW())
			require.NoError(t, err)
		}
		require.Greater(t, mean(), -0.02)
	})
}

// One update is compared with the formula in double precision, from the gradient that
// gradients measured.
func TestUpdateIsClippedAdamW(t *testing.T) {
	t.Parallel()
	a := architectures()["everything"]
	w, batch := weights(a, 3), rows(a, 9, 40, 4)
	g, norm := gradients(t, a, w, "", batch)
	for _, clip := range []float64{0, norm / 3, norm * 2} {
		o := model.AdamW{LearningRate: 0.01, Beta1: 0.9, Beta2: 0.98, Epsilon: 1e-6, WeightDecay: 0.3, ClipNorm: clip}
		tr := trainer(t, engine("", 2), a, w)
		have, err := tr.Update(t.Context(), batch, weighted, o)
		require.NoError(t, err)
		require.InEpsilon(t, norm, have, 1e-9, "the norm is that before clipping")
		scale := 1.0
		if clip > 0 && clip < norm {
			scale = clip / norm
		}
		c := tr.Checkpoint()
		require.Equal(t, 1, c.Updates)
		for i := range w {
			decay := o.WeightDecay
			if len(w[i].Shape) == 1 {
				decay = 0
			}
			for j, x := range w[i].Data {
				d := scale * float64(g[i].Data[j])
				require.InDelta(t, 0.1*d, c.Mean[i].Data[j], 1e-6+1e-5*math.Abs(d))
				require.InDelta(t, 0.02*d*d, c.Variance[i].Data[j], 1e-6+1e-5*d*d)
				want := float64(x) - o.LearningRate*(d/(math.Abs(d)+o.Epsilon)+decay*float64(x))
				require.InDelta(t, want, c.Weights[i].Data[j], 2e-6, "%s[%d]", w[i].Name, j)
			}
		}
	}
}

func TestDivergedUpdateChangesNothing(t *testing.T) {
	t.Parallel()
	a := architectures()["qwen2"]
	batch := rows(a, 9, 30, 4)
	eachKernel(t, func(t *testing.T, kernelName string) {
		tr, twin := trainer(t, engine(kernelName, 2), a, weights(a, 3)), trainer(t, engine(kernelName, 2), a, weights(a, 3))
		for _, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
			before := tr.Checkpoint()
			_, err := tr.Update(t.Context(), batch, func(row int, logprobs, _, gradient, entropyGradient []float32) {
				if row == 5 && len(gradient) > 0 {
					gradient[len(gradient)-1] = float32(bad)
				}
			}, adamW())
			require.ErrorIs(t, err, model.ErrDiverged)
			require.Equal(t, before, tr.Checkpoint())
			// Nor does it leave anything behind that a later update reads.
			for _, each := range []model.Trainer{tr, twin} {
				_, err := each.Update(t.Context(), batch, likelihood(100), adamW())
				require.NoError(t, err)
			}
			require.Equal(t, weightBits(twin.Checkpoint().Weights), weightBits(tr.Checkpoint().Weights))
		}
	})
}

func TestCancelledUpdateChangesNothing(t *testing.T) {
	t.Parallel()
	a := architectures()["tiny"]
	batch := rows(a, 64, 60, 4)
	tr := trainer(t, engine("", 2), a, weights(a, 3))
	before := tr.Checkpoint()
	ctx, cancel := context.WithCancel(t.Context())
	_, err := tr.Update(ctx, batch, func(int, []float32, []float32, []float32, []float32) { cancel() }, adamW())
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, before, tr.Checkpoint())
	_, _, err = tr.Score(ctx, batch)
	require.ErrorIs(t, err, context.Canceled)
}

// A masked token has no influence on the gradient, whichever token it is.
func TestMaskedTokensDoNotTrain(t *testing.T) {
	t.Parallel()
	a := architectures()["qwen3"]
	after := func(last int32) []string {
		tr := trainer(t, engine("", 1), a, weights(a, 3))
		batch := []model.Row{{Tokens: []int32{1, 2, 3, 4, last}}, {Tokens: []int32{5, 6, 7}}}
		_, err := tr.Update(t.Context(), batch, func(row int, logprobs, _, gradient, _ []float32) {
			for i := range logprobs {
				if i < 3 {
					gradient[i] = -1
				}
			}
		}, adamW())
		require.NoError(t, err)
		return weightBits(tr.Checkpoint().Weights)
	}
	require.Equal(t, after(9), after(30))
}

func TestObjectiveSeesEachRowOnceAsScored(t *testing.T) {
	t.Parallel()
	a := architectures()["llama"]
	batch := rows(a, 50, 40, 4)
	tr := trainer(t, engine("", 3), a, weights(a, 3))
	logprobs, entropies := score(t, tr, batch)
	calls, wrong := make([]int, len(batch)), make([]bool, len(batch))
	_, err := tr.Update(t.Context(), batch, func(row int, l, e, gradient, entropyGradient []float32) {
		calls[row]++
		for i := range l {
			wrong[row] = wrong[row] || l[i] != logprobs[row][i] || e[i] != entropies[row][i] || gradient[i] != 0 || entropyGradient[i] != 0
		}
		wrong[row] = wrong[row] || len(l) != len(batch[row].Tokens)-1 || len(gradient) != len(l) || len(entropyGradient) != len(l)
	}, adamW())
	require.NoError(t, err)
	for i := range batch {
		require.Equal(t, 1, calls[i])
		require.False(t, wrong[i], "row %d", i)
	}
}

func TestBadInputIsRefused(t *testing.T) {
	t.Parallel()
	a := architectures()["tiny"]
	w := a.Init(1)
	tr := trainer(t, engine("", 1), a, w)
	before := tr.Checkpoint()
	for name, bad := range map[string]model.Row{
		"empty row":            {},
		"token of no word":     {Tokens: []int32{1, int32(a.VocabSize)}},
		"negative token":       {Tokens: []int32{1, -1}},
		"too long":             {Tokens: make([]int32, a.MaxPositions+1)},
		"negative temperature": {Tokens: []int32{1, 2}, Temperature: -1},
		"temperature NaN":      {Tokens: []int32{1, 2}, Temperature: math.NaN()},
		"infinite temperature": {Tokens: []int32{1, 2}, Temperature: math.Inf(1)},
	} {
		batch := []model.Row{{Tokens: []int32{1, 2, 3}}, bad}
		_, _, err := tr.Score(t.Context(), batch)
		require.ErrorContains(t, err, "row 1", name)
		_, err = tr.Update(t.Context(), batch, likelihood(1), adamW())
		require.ErrorContains(t, err, "row 1", name)
	}
	good := []model.Row{{Tokens: []int32{1, 2, 3}}}
	for _, change := range []func(*model.AdamW){
		func(o *model.AdamW) { o.LearningRate = math.NaN() },
		func(o *model.AdamW) { o.Beta1 = 1 },
		func(o *model.AdamW) { o.Beta2 = -0.1 },
		func(o *model.AdamW) { o.Epsilon = 0 },
		func(o *model.AdamW) { o.ClipNorm = -1 },
	} {
		o := adamW()
		change(&o)
		_, err := tr.Update(t.Context(), good, likelihood(1), o)
		require.ErrorContains(t, err, "adamw")
	}
	_, err := tr.Update(t.Context(), nil, likelihood(1), adamW())
	require.ErrorContains(t, err, "no rows")
	require.Equal(t, before, tr.Checkpoint())
}

func TestBadCheckpointIsRefused(t *testing.T) {
	t.Parallel()
	a := architectures()["tiny"]
	bad := a.Init(1)
	bad[3].Data[7] = float32(math.NaN())
	for name, c := range map[string]model.Checkpoint{
		"architecture":        {Weights: a.Init(1)},
		"no weights":          {Architecture: a},
		"not a number":        {Architecture: a, Weights: bad},
		"moments missing":     {Architecture: a, Weights: a.Init(1), Updates: 3},
		"moments of another":  {Architecture: a, Weights: a.Init(1), Updates: 3, Mean: a.Zeros()[1:], Variance: a.Zeros()},
		"negative updates":    {Architecture: a, Weights: a.Init(1), Updates: -1},
		"moments not numbers": {Architecture: a, Weights: a.Init(1), Mean: bad, Variance: a.Zeros()},
	} {
		_, err := engine("", 1).NewTrainer(c)
		require.Error(t, err, name)
	}
	_, err := engine("", 1).NewDecoder(model.Checkpoint{Architecture: a, Weights: bad})
	require.ErrorContains(t, err, bad[3].Name)
	_, err = engine("sse", 1).NewTrainer(model.Checkpoint{Architecture: a, Weights: a.Init(1)})
	require.ErrorContains(t, err, "sse")
}

// A checkpoint is a copy in both directions.
func TestCheckpointSharesNoMemory(t *testing.T) {
	t.Parallel()
	a := architectures()["llama"]
	w := weights(a, 1)
	tr := trainer(t, engine("", 1), a, w)
	want := tr.Checkpoint()
	require.Equal(t, weightBits(w), weightBits(want.Weights))
	w[0].Data[0]++
	tr.Checkpoint().Weights[0].Data[0]++
	require.Equal(t, want, tr.Checkpoint())
}
