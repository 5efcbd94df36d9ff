package gomlx_test

import (
	"context"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/engine/gomlx"
)

// small returns an architecture with every part that the default one leaves out.
func small() model.Architecture {
	return model.Architecture{
		VocabSize: 13, HiddenSize: 12, Layers: 2, Heads: 4, KVHeads: 2, HeadDim: 6, FeedForward: 20,
		MaxPositions: 40, RopeTheta: 10000, NormEpsilon: 1e-6, QKVBias: true, QKNorm: true,
	}
}

func engine(t *testing.T, o gomlx.Options) *gomlx.Engine {
	t.Helper()
	e, err := gomlx.New(o)
	require.NoError(t, err)
	return e
}

// weights returns weights that are random everywhere, biases and norms included.
func weights(a model.Architecture) model.Weights {
	w := a.Init(5)
	noise := make([]float32, a.Parameters())
	model.GumbelNoise(9, 0, noise)
	for _, t := range w {
		if len(t.Shape) == 1 {
			for i := range t.Data {
				t.Data[i] += 0.1 * noise[i]
			}
		}
		noise = noise[len(t.Data):]
	}
	return w
}

func trainer(t *testing.T, e *gomlx.Engine, a model.Architecture) model.Trainer {
	t.Helper()
	tr, err := e.NewTrainer(model.Checkpoint{Architecture: a, Weights: weights(a)})
	require.NoError(t, err)
	t.Cleanup(tr.Close)
	return tr
}

func rows() []model.Row {
	return []model.Row{
		{Tokens: []int32{1, 5, 2, 9, 12, 0, 3}},
		{Tokens: []int32{4}},
		{Tokens: []int32{7, 7, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0, 1, 2, 3}, Temperature: 0.7},
		{Tokens: []int32{3, 8}, Temperature: 2},
		{Tokens: []int32{2, 2, 2}},
		{Tokens: []int32{2, 9, 1, 4, 4}, Allowed: []model.TokenSet{nil, {1<<1 | 1<<5 | 1<<12}, {1 << 4}, {1<<4 | 1<<3}}},
	}
}

// wave is an objective whose derivatives are fixed numbers of either sign.
func wave(row int, logprobs, _ []float32, gradient, entropyGradient []float32) {
	for i := range logprobs {
		gradient[i] = float32(math.Sin(float64(3*row + i + 1)))
		entropyGradient[i] = 0.3 * float32(math.Cos(float64(row-2*i)))
	}
}

// waveLoss returns the loss whose derivatives wave writes.
func waveLoss(logprobs, entropies [][]float32) float64 {
	loss := 0.0
	for row := range logprobs {
		n := len(logprobs[row])
		gradient, entropyGradient := make([]float32, n), make([]float32, n)
		wave(row, logprobs[row], nil, gradient, entropyGradient)
		for i := range n {
			loss += float64(gradient[i])*float64(logprobs[row][i]) + float64(entropyGradient[i])*float64(entropies[row][i])
		}
	}
	return loss
}

func TestScoresAreLogProbabilitiesWhateverTheBatch(t *testing.T) {
	t.Parallel()
	a := small()
	together, alone := trainer(t, engine(t, gomlx.Options{}), a), trainer(t, engine(t, gomlx.Options{Tokens: 1}), a)
	logprobs, entropies, err := together.Score(t.Context(), rows())
	require.NoError(t, err)
	for i, r := range rows() {
		lp, ent, err := alone.Score(t.Context(), []model.Row{r})
		require.NoError(t, err)
		require.Len(t, logprobs[i], len(r.Tokens)-1)
		require.Len(t, entropies[i], len(r.Tokens)-1)
		require.InDeltaSlice(t, lp[0], logprobs[i], 1e-5, "row %d", i)
		require.InDeltaSlice(t, ent[0], entropies[i], 1e-5, "row %d", i)
	}
	// The probabilities of all continuations of a context sum to 1, and the entropy is
	// that of these probabilities.
	sum, entropy := 0.0, 0.0
	for v := range a.VocabSize {
		lp, ent, err := together.Score(t.Context(), []model.Row{{Tokens: []int32{1, 5, int32(v)}, Temperature: 0.7}})
		require.NoError(t, err)
		p := math.Exp(float64(lp[0][1]))
		sum, entropy = sum+p, entropy-p*float64(lp[0][1])
		if v == a.VocabSize-1 {
			require.InDelta(t, entropy, ent[0][1], 1e-5)
		}
	}
	require.InDelta(t, 1, sum, 1e-5)
}

func TestTemperatureDividesLogits(t *testing.T) {
	t.Parallel()
	a := small()
	tr := trainer(t, engine(t, gomlx.Options{}), a)
	var candidates []model.Row
	for _, temperature := range []float64{0, 1, 0.5} {
		for v := range a.VocabSize {
			candidates = append(candidates, model.Row{Tokens: []int32{1, int32(v)}, Temperature: temperature})
		}
	}
	logprobs, _, err := tr.Score(t.Context(), candidates)
	require.NoError(t, err)
	for v := range a.VocabSize {
		// Differences of log-probabilities are differences of logits.
		at := func(k int) float64 { return float64(logprobs[k*a.VocabSize+v][0] - logprobs[k*a.VocabSize][0]) }
		require.InDelta(t, at(1), at(0), 1e-5) // 0 means 1
		require.InDelta(t, at(1)/0.5, at(2), 1e-5)
	}
}

func TestGradientMatchesFiniteDifferences(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*model.Architecture){
		"biases, norms, untied": func(*model.Architecture) {},
		"tied, plain":           func(a *model.Architecture) { a.Tied, a.QKVBias, a.QKNorm = true, false, false },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := small()
			change(&a)
			e := engine(t, gomlx.Options{})
			tr := trainer(t, e, a)
			start := tr.Checkpoint()
			// With beta1 0 the first moment of a fresh optimizer is the gradient.
			norm, err := tr.Update(t.Context(), rows(), wave, model.AdamW{LearningRate: 1e-3, Epsilon: 1e-8})
			require.NoError(t, err)
			gradient := tr.Checkpoint().Mean
			squares := 0.0
			for i, w := range start.Weights {
				// Differences are taken along the gradient of each tensor, where they are
				// largest.
				direction, length := make([]float64, len(w.Data)), 0.0
				for j := range w.Data {
					direction[j] = float64(gradient[i].Data[j])
					length += direction[j] * direction[j]
				}
				squares += length
				length = math.Sqrt(length)
				require.NotZero(t, length, w.Name)
				const h = 4e-3
				up, down := shifted(t, e, start, i, direction, h/length), shifted(t, e, start, i, direction, -h/length)
				require.InEpsilon(t, length, (up-down)/(2*h), 0.01, w.Name)
			}
			require.InEpsilon(t, norm, math.Sqrt(squares), 1e-3)
		})
	}
}

// shifted returns the loss with one tensor moved along direction.
func shifted(t *testing.T, e *gomlx.Engine, c model.Checkpoint, tensor int, direction []float64, by float64) float64 {
	t.Helper()
	w := append(model.Weights(nil), c.Weights...)
	w[tensor].Data = append([]float32(nil), w[tensor].Data...)
	for j := range direction {
		w[tensor].Data[j] += float32(by * direction[j])
	}
	tr, err := e.NewTrainer(model.Checkpoint{Architecture: c.Architecture, Weights: w})
	require.NoError(t, err)
	defer tr.Close()
	logprobs, entropies, err := tr.Score(t.Context(), rows())
	require.NoError(t, err)
	return waveLoss(logprobs, entropies)
}

func TestUpdateIsTheSameHoweverTheBatchIsCut(t *testing.T) {
	t.Parallel()
	a := small()
	opt := model.AdamW{LearningRate: 1e-2, Beta1: 0.9, Beta2: 0.98, Epsilon: 1e-6, WeightDecay: 0.1, ClipNorm: 1}
	whole, pieces := trainer(t, engine(t, gomlx.Options{}), a), trainer(t, engine(t, gomlx.Options{Tokens: 1}), a)
	for range 3 {
		n1, err := whole.Update(t.Context(), rows(), wave, opt)
		require.NoError(t, err)
		n2, err := pieces.Update(t.Context(), rows(), wave, opt)
		require.NoError(t, err)
		require.InEpsilon(t, n1, n2, 1e-4)
	}
	c1, c2 := whole.Checkpoint(), pieces.Checkpoint()
	for i := range c1.Weights {
		require.InDeltaSlice(t, c1.Weights[i].Data, c2.Weights[i].Data, 1e-4, c1.Weights[i].Name)
	}
}

// The update is compared with the formula of AdamW in float64, from the moments that the
// engine reports.
func TestUpdateIsAdamW(t *testing.T) {
	t.Parallel()
	a := small()
	e := engine(t, gomlx.Options{})
	opt := model.AdamW{LearningRate: 1e-2, Beta1: 0.9, Beta2: 0.99, Epsilon: 1e-3, WeightDecay: 0.5}
	first, err := trainer(t, e, a).Update(t.Context(), rows(), wave, opt)
	require.NoError(t, err)
	tr := trainer(t, e, a)
	for i, clip := range []float64{0.9 * first, 100 * first, 0.1 * first} {
		update := i + 1
		opt.ClipNorm = clip
		before := tr.Checkpoint()
		norm, err := tr.Update(t.Context(), rows(), wave, opt)
		require.NoError(t, err)
		if update == 1 {
			require.InEpsilon(t, first, norm, 1e-6)
		}
		after := tr.Checkpoint()
		require.Equal(t, update, after.Updates)
		squares := 0.0
		for i := range before.Weights {
			for j := range before.Weights[i].Data {
				m, v := float64(after.Mean[i].Data[j]), float64(after.Variance[i].Data[j])
				g := (m - opt.Beta1*float64(before.Mean[i].Data[j])) / (1 - opt.Beta1)
				squares += g * g
				require.InDelta(t, opt.Beta2*float64(before.Variance[i].Data[j])+(1-opt.Beta2)*g*g, v, 1e-6*(1+v))
				w := float64(before.Weights[i].Data[j])
				step := m / (1 - math.Pow(opt.Beta1, float64(update))) / (math.Sqrt(v/(1-math.Pow(opt.Beta2, float64(update)))) + opt.Epsilon)
				if len(before.Weights[i].Shape) > 1 {
					step += opt.WeightDecay * w
				}
				require.InDelta(t, w-opt.LearningRate*step, after.Weights[i].Data[j], 1e-6, before.Weights[i].Name)
			}
		}
		require.InEpsilon(t, min(norm, clip), math.Sqrt(squares), 1e-3)
	}
}

func TestDivergedUpdateChangesNothing(t *testing.T) {
	t.Parallel()
	tr := trainer(t, engine(t, gomlx.Options{}), small())
	opt := model.AdamW{LearningRate: 1e-2, Beta1: 0.9, Beta2: 0.98, Epsilon: 1e-6}
	_, err := tr.Update(t.Context(), rows(), wave, opt)
	require.NoError(t, err)
	before := tr.Checkpoint()
	_, err = tr.Update(t.Context(), rows(), func(row int, logprobs, entropies, gradient, entropyGradient []float32) {
		wave(row, logprobs, entropies, gradient, entropyGradient)
		if row == 2 {
			gradient[3] = float32(math.NaN())
		}
	}, opt)
	require.ErrorIs(t, err, model.ErrDiverged)
	require.Empty(t, cmp.Diff(before, tr.Checkpoint()))

	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = tr.Update(cancelled, rows(), wave, opt)
	require.ErrorIs(t, err, context.Canceled)
	require.Empty(t, cmp.Diff(before, tr.Checkpoint()))
}

func TestTrainingGoesOnFromACheckpoint(t *testing.T) {
	t.Parallel()
	e := engine(t, gomlx.Options{})
	opt := model.AdamW{LearningRate: 1e-2, Beta1: 0.9, Beta2: 0.98, Epsilon: 1e-6, ClipNorm: 1}
	first := trainer(t, e, small())
	_, err := first.Update(t.Context(), rows(), wave, opt)
	require.NoError(t, err)
	second, err := e.NewTrainer(first.Checkpoint())
	require.NoError(t, err)
	defer second.Close()
	for _, tr := range []model.Trainer{first, second} {
		_, err := tr.Update(t.Context(), rows(), wave, opt)
		require.NoError(t, err)
	}
	require.Empty(t, cmp.Diff(first.Checkpoint(), second.Checkpoint()))
}

func TestABatchCanBeLearned(t *testing.T) {
	t.Parallel()
	tr := trainer(t, engine(t, gomlx.Options{}), small())
	batch := []model.Row{{Tokens: []int32{1, 2, 3, 4, 5, 6}}, {Tokens: []int32{6, 1, 1, 9}}}
	opt := model.AdamW{LearningRate: 2e-2, Beta1: 0.9, Beta2: 0.98, Epsilon: 1e-8, ClipNorm: 1}
	for range 60 {
		_, err := tr.Update(t.Context(), batch, func(_ int, logprobs, _, gradient, _ []float32) {
			for i := range logprobs {
				gradient[i] = -1.0 / 8 // cross-entropy, the mean over the 8 targets
			}
		}, opt)
		require.NoError(t, err)
	}
	logprobs, _, err := tr.Score(t.Context(), batch)
	require.NoError(t, err)
	for _, row := range logprobs {
		for _, lp := range row {
			require.Greater(t, lp, float32(-0.1))
		}
	}
}

func TestInputsThatCannotBeAreRefused(t *testing.T) {
	t.Parallel()
	e, a := engine(t, gomlx.Options{}), small()
	tr := trainer(t, e, a)
	for want, r := range map[string]model.Row{
		"outside the vocabulary": {Tokens: []int32{1, int32(a.VocabSize)}},
		"no tokens":              {},
		"41 tokens":              {Tokens: make([]int32, 41)},
		"temperature":            {Tokens: []int32{1, 2}, Temperature: math.NaN()},
	} {
		_, _, err := tr.Score(t.Context(), []model.Row{{Tokens: []int32{1, 2}}, r})
		require.ErrorContains(t, err, "row 1")
		require.ErrorContains(t, err, want)
		_, err = tr.Update(t.Context(), []model.Row{r}, wave, model.AdamW{Epsilon: 1e-8})
		require.ErrorContains(t, err, want)
	}
	for want, opt := range map[string]model.AdamW{
		"epsilon is 0":         {LearningRate: 1},
		"beta1 is 1":           {Beta1: 1, Epsilon: 1e-8},
		"learning_rate is NaN": {LearningRate: math.NaN(), Epsilon: 1e-8},
		"weight_decay is -1":   {WeightDecay: -1, Epsilon: 1e-8},
	} {
		_, err := tr.Update(t.Context(), rows(), wave, opt)
		require.ErrorContains(t, err, want)
	}
	_, err := e.NewTrainer(model.Checkpoint{Architecture: a, Weights: weights(a)[1:]})
	require.ErrorIs(t, err, model.ErrArchitecture)
	_, err = e.NewTrainer(model.Checkpoint{Architecture: a, Weights: weights(a), Updates: 1})
	require.ErrorContains(t, err, "mean")
	_, err = e.NewDecoder(model.Checkpoint{Architecture: model.Architecture{}, Weights: nil})
	require.ErrorIs(t, err, model.ErrArchitecture)
	_, err = gomlx.New(gomlx.Options{Tokens: -1})
	require.Error(t, err)
	require.False(t, e.Deterministic())
	require.Equal(t, "gomlx", e.Name())
	require.Contains(t, e.Fingerprint(), "gomlx")

	tr.Close()
	_, _, err = tr.Score(t.Context(), rows())
	require.ErrorContains(t, err, "closed")
	_, err = tr.Update(t.Context(), rows(), wave, model.AdamW{})
	require.ErrorContains(t, err, "closed")
	require.Panics(t, func() { tr.Checkpoint() })
}
