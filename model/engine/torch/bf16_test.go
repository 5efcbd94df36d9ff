package torch_test

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/engine/native"
	"github.com/fulgurite/fulgurite/model/engine/torch"
)

// These are the accuracies that small models keep with 8 bits of fraction. Differences
// are in nats. The difference between a sampler and the trainer of its version is the
// mismatch of a run without lag.
const (
	halfMean     = 0.02
	halfMost     = 0.5
	halfMismatch = 0.02
	halfCosine   = 0.995
)

// inHalf returns an engine whose products are in BF16, as they are on a GPU.
func inHalf(t *testing.T) *torch.Engine {
	t.Helper()
	e := engine(t, torch.Options{}.InBF16())
	require.Contains(t, e.Fingerprint(), " bfloat16 ")
	require.InDelta(t, 0.5, e.CanaryTolerance(), 0)
	return e
}

func deeper() model.Architecture {
	return model.Architecture{
		VocabSize: 300, HiddenSize: 64, Layers: 3, Heads: 4, KVHeads: 2, HeadDim: 16, FeedForward: 128,
		MaxPositions: 128, RopeTheta: 1e6, NormEpsilon: 1e-6, QKVBias: true, Tied: true,
	}
}

// longer returns rows of 10 to 80 tokens, at several temperatures.
func longer() []model.Row {
	all := make([]model.Row, 8)
	for i := range all {
		all[i] = model.Row{Tokens: make([]int32, 10+10*i), Temperature: []float64{1, 0.7, 1.5}[i%3]}
		for j := range all[i].Tokens {
			all[i].Tokens[j] = int32((i*i*31 + j*j*7 + 13*j) % 300)
		}
	}
	return all
}

// apart returns the mean and the largest of the differences.
func apart(a, b [][]float32) (mean, most float64) {
	n := 0.0
	for i := range a {
		for j, x := range a[i] {
			d := math.Abs(float64(x) - float64(b[i][j]))
			mean, most, n = mean+d, max(most, d), n+1
		}
	}
	return mean / n, most
}

func cosine(a, b []float32) float64 {
	var ab, aa, bb float64
	for i, x := range a {
		y := float64(b[i])
		ab, aa, bb = ab+float64(x)*y, aa+float64(x)*float64(x), bb+y*y
	}
	return ab / math.Sqrt(aa*bb)
}

// replies samples replies, and scores them with a trainer of the same version.
func replies(t *testing.T, d model.Decoder, tr model.Trainer, prompts []model.Row) (sampled, scored [][]float32) {
	t.Helper()
	for i, r := range prompts {
		got, err := d.Decode(t.Context(), model.DecodeRequest{Prompt: r.Tokens, MaxTokens: 24, Temperature: 1, Seed: uint64(i)})
		require.NoError(t, err)
		own, _, err := tr.Score(t.Context(), []model.Row{{Tokens: slices.Concat(r.Tokens, got.Tokens), Temperature: 1}})
		require.NoError(t, err)
		sampled, scored = append(sampled, got.Logprobs), append(scored, own[0][len(r.Tokens)-1:])
	}
	return sampled, scored
}

// rounded reports whether all numbers have only the 8 bits of fraction of BF16.
func rounded(w model.Weights) bool {
	for _, t := range w {
		for _, x := range t.Data {
			if math.Float32bits(x)&0xffff != 0 {
				return false
			}
		}
	}
	return true
}

func TestProductsInBF16(t *testing.T) {
	t.Parallel()
	e := inHalf(t)
	t.Run("stay close to the engine native", func(t *testing.T) { closeInHalf(t, e) })
	t.Run("reproduce a canary, which finds damage", func(t *testing.T) { canaryInHalf(t, e) })
	t.Run("train and sample any causal model", func(t *testing.T) { anyInHalf(t, e) })
}

func closeInHalf(t *testing.T, e *torch.Engine) {
	t.Helper()
	other := native.New(native.Options{Threads: 1})
	// The models do not have the random norms and biases of start, and have a smaller
	// adapter: those make some hidden states so small that float32 itself is off by
	// hundreds of its units.
	begun := func(a model.Architecture) model.Checkpoint {
		return model.Checkpoint{Architecture: a, Weights: a.Init(5)}
	}
	whole, untied := begun(deeper()), deeper()
	untied.Tied = false
	adapted := adapter(whole, model.LoRA{Rank: 4, Alpha: 8, Targets: model.LoRATargets()}, 3)
	for _, w := range adapted.Weights {
		for i := range w.Data {
			w.Data[i] *= 0.3
		}
	}
	for name, c := range map[string]model.Checkpoint{"whole": whole, "untied": begun(untied), "adapter": adapted} {
		a, b := trainer(t, e, c), trainer(t, other, c)
		got, _, err := a.Score(t.Context(), longer())
		require.NoError(t, err)
		want, _, err := b.Score(t.Context(), longer())
		require.NoError(t, err)
		mean, most := apart(want, got)
		t.Logf("%s: mean %.2g and max %.2g of scores", name, mean, most)
		require.LessOrEqual(t, mean, halfMean, name)
		require.LessOrEqual(t, most, halfMost, name)
		require.Greater(t, mean, 1e-4, "%s: float32 would be closer", name)

		sampled, scored := replies(t, decoder(t, e, c), a, longer()[:4])
		mismatch, worst := apart(sampled, scored)
		t.Logf("%s: mean %.2g and max %.2g of replies", name, mismatch, worst)
		require.LessOrEqual(t, mismatch, halfMismatch, name)
		require.LessOrEqual(t, worst, halfMost, name)

		opt := model.AdamW{LearningRate: 1e-6, Epsilon: 1e-8} // the first moment is then the gradient
		norms := make([]float64, 2)
		for i, tr := range []model.Trainer{a, b} {
			norms[i], err = tr.Update(t.Context(), longer(), slopes, opt)
			require.NoError(t, err)
		}
		require.InEpsilon(t, norms[1], norms[0], 0.05, name)
		x, y := a.Checkpoint(), b.Checkpoint()
		least := 1.0
		for i := range x.Mean {
			least = min(least, cosine(x.Mean[i].Data, y.Mean[i].Data))
		}
		t.Logf("%s: norms %.4g and %.4g, cosine of gradients %.6f", name, norms[0], norms[1], least)
		require.GreaterOrEqual(t, least, halfCosine, name)
		require.False(t, rounded(x.Weights) || rounded(x.Mean), "%s: what is trained is F32", name)
		for i := range x.Weights { // steps of 1e-6, which are far below what BF16 could tell apart
			_, most := apart([][]float32{x.Weights[i].Data}, [][]float32{y.Weights[i].Data})
			require.LessOrEqual(t, most, 3e-6, "%s: %s", name, x.Weights[i].Name)
		}
		require.NotEqual(t, c.Weights, x.Weights, name)
	}
}

func canaryInHalf(t *testing.T, e *torch.Engine) {
	t.Helper()
	c := start(deeper())
	canary, err := model.NewCanary(t.Context(), e, c.Architecture, trainer(t, e, c))
	require.NoError(t, err)
	require.InDelta(t, 0.5, canary.Tolerance, 0)
	require.NoError(t, canary.Verify(t.Context(), e, decoder(t, e, c)))
	damaged := start(deeper())
	for i := range damaged.Weights {
		if len(damaged.Weights[i].Shape) == 2 {
			slices.Reverse(damaged.Weights[i].Data)
		}
	}
	require.ErrorIs(t, canary.Verify(t.Context(), e, decoder(t, e, damaged)), model.ErrWrongWeights)
}

func anyInHalf(t *testing.T, e *torch.Engine) {
	t.Helper()
	store := blobs(t)
	for _, kind := range []string{"gemma2", "phi3"} {
		dir := directory(t, kind)
		row, want := expected(t, dir)
		for name, l := range map[string]*model.LoRA{"whole": nil, "adapter": usual()} {
			c := policyOf(t, store, dir, l)
			tr := trainer(t, e, c)
			got, _, err := tr.Score(t.Context(), []model.Row{row})
			require.NoError(t, err)
			mean, most := apart([][]float32{want}, got)
			require.LessOrEqual(t, mean, halfMean, "%s %s", kind, name)
			require.LessOrEqual(t, most, halfMost, "%s %s", kind, name)
			sampled, scored := replies(t, decoder(t, e, c), tr, []model.Row{{Tokens: row.Tokens[:5]}, {Tokens: row.Tokens[:11]}})
			mismatch, _ := apart(sampled, scored)
			require.LessOrEqual(t, mismatch, halfMismatch, "%s %s", kind, name)
			_, err = tr.Update(t.Context(), []model.Row{row}, lessLikely, model.AdamW{LearningRate: 1e-2, Beta1: 0.9, Beta2: 0.99, Epsilon: 1e-8})
			require.NoError(t, err)
			now, _, err := tr.Score(t.Context(), []model.Row{row})
			require.NoError(t, err)
			require.Less(t, sum(now[0]), sum(want), "%s %s: the update went its way", kind, name)
			t.Logf("%s %s: mean %.2g and max %.2g of scores, %.2g of replies", kind, name, mean, most, mismatch)
		}
	}
}
