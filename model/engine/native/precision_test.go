package native_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/engine/native"
	"github.com/fulgurite/fulgurite/model/half"
)

// blocked returns architectures whose matrices consist of whole blocks of Q8_0.
func blocked() map[string]model.Architecture {
	tied := model.Architecture{
		VocabSize: 50, HiddenSize: 64, Layers: 2, Heads: 4, KVHeads: 1, HeadDim: 16, FeedForward: 96,
		MaxPositions: 128, RopeTheta: 500, NormEpsilon: 1e-5, Tied: true, QKVBias: true,
	}
	untied := model.Architecture{
		VocabSize: 37, HiddenSize: 32, Layers: 1, Heads: 2, KVHeads: 2, HeadDim: 32, FeedForward: 32,
		MaxPositions: 128, RopeTheta: 1000, NormEpsilon: 1e-6, QKNorm: true,
	}
	wide := model.Architecture{
		VocabSize: 24000, HiddenSize: 480, Layers: 1, Heads: 6, KVHeads: 3, HeadDim: 80, FeedForward: 704,
		MaxPositions: 64, RopeTheta: 10000, NormEpsilon: 1e-6, Tied: true,
	}
	return map[string]model.Architecture{"tied": tied, "untied": untied, "wide": wide}
}

// rounded returns the values that the matrices of w have once they are held in precision
// p.
func rounded(w model.Weights, p model.Precision) model.Weights {
	for _, t := range w {
		if len(t.Shape) < 2 {
			continue
		}
		for i, x := range t.Data {
			if p == model.BF16 {
				t.Data[i] = half.FromBF16(half.ToBF16(x))
			}
		}
		for i := 0; p == model.Q8_0 && i < len(t.Data); i += half.QuantBlock {
			var block [half.QuantBlock]int8
			factor := half.Quantize(&block, t.Data[i:i+half.QuantBlock])
			for j, q := range block {
				t.Data[i+j] = float32(q) * factor
			}
		}
	}
	return w
}

// inPrecision returns two checkpoints of one policy: one over a base that is held in
// precision p, and one over the same rounded numbers in float32.
func inPrecision(a model.Architecture, p model.Precision) (narrow, wide model.Checkpoint) {
	narrow, wide = adapted(a, lora(), 1), adapted(a, lora(), 1)
	narrow.Adapter.BasePrecision = p
	a.ValueHead = false
	wide.Adapter.Base.Digest += string(p)
	wide.Adapter.Base.Each = model.EachOf(func() (model.Weights, error) { return rounded(weights(a, 1), p), nil })
	return narrow, wide
}

// The precision of a base only decides how its matrices are rounded: scores, updates and
// completions equal, to the bit, those over the rounded numbers in float32.
func TestABaseOfFewerBitsComputesWithTheNumbersItStandsFor(t *testing.T) {
	t.Parallel()
	for name, a := range blocked() {
		for _, set := range kernels() {
			kernelName := set.Name()
			if name == "wide" && kernelName == "go" {
				continue // seconds each, of the same code
			}
			for _, p := range []model.Precision{model.BF16, model.Q8_0} {
				t.Run(name+"/"+kernelName+"/"+string(p), func(t *testing.T) {
					t.Parallel()
					requireSameBits(t, a, kernelName, p)
				})
			}
		}
	}
	for name, a := range architectures() { // with all paddings
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			requireSameBits(t, a, "", model.BF16)
		})
	}
}

func requireSameBits(t *testing.T, a model.Architecture, kernelName string, p model.Precision) {
	t.Helper()
	narrow, wide := inPrecision(a, p)
	e := engine(kernelName, 2)
	one, other := trainerOf(t, e, narrow), trainerOf(t, e, wide)
	batch := rows(a, 5, 40, 2)
	for range 2 {
		for _, tr := range []model.Trainer{one, other} {
			_, err := tr.Update(t.Context(), batch, likelihood(100), adamW())
			require.NoError(t, err)
		}
	}
	require.Equal(t, weightBits(other.Checkpoint().Weights), weightBits(one.Checkpoint().Weights))
	got, _ := score(t, one, batch)
	want, _ := score(t, other, batch)
	for i := range want {
		require.Equal(t, bits(want[i]), bits(got[i]))
	}
	plain, _ := score(t, trainerOf(t, e, adapted(a, lora(), 1)), batch)
	before, _ := score(t, trainerOf(t, e, narrow), batch)
	require.NotEqual(t, bits(plain[0]), bits(before[0]), "nothing was rounded")

	d, err := e.NewDecoder(one.Checkpoint())
	require.NoError(t, err)
	t.Cleanup(d.Close)
	completion, err := d.Decode(t.Context(), model.DecodeRequest{Prompt: []int32{5, 7, 11}, MaxTokens: 6, Temperature: 1, Seed: 3})
	require.NoError(t, err)
	scored, _ := score(t, one, []model.Row{{Tokens: append([]int32{5, 7, 11}, completion.Tokens...)}})
	require.Equal(t, bits(scored[0][2:]), bits(completion.Logprobs))
}

func TestGradientsOverABaseOfFewerBitsMatchFiniteDifferences(t *testing.T) {
	t.Parallel()
	a := blocked()["tied"]
	for _, p := range []model.Precision{model.BF16, model.Q8_0} {
		c, _ := inPrecision(a, p)
		requireAdapterGradients(t, c, "", rows(a, 3, 12, 2))
	}
}

func TestACriticReadsTheBaseAsItIsHeld(t *testing.T) {
	t.Parallel()
	a := blocked()["untied"]
	for _, p := range []model.Precision{model.BF16, model.Q8_0} {
		narrow, wide := inPrecision(a, p)
		e := engine("", 2)
		var got [2][][]float32
		for i, policy := range []model.Checkpoint{narrow, wide} {
			c, err := model.CriticOf(policy)
			require.NoError(t, err)
			c.Weights[len(c.Weights)-2].Data[3] = 1
			values, err := critic(t, e, c).Values(t.Context(), rows(a, 4, 20, 2))
			require.NoError(t, err)
			got[i] = values
		}
		for i := range got[0] {
			require.Equal(t, bits(got[1][i]), bits(got[0][i]))
		}
	}
}

func TestABaseThatCannotBeHeldSoIsRefused(t *testing.T) {
	t.Parallel()
	for want, spoil := range map[string]func(a *model.Architecture, p *model.Precision){
		`precision of the base is "q4_0"`:                       func(_ *model.Architecture, p *model.Precision) { *p = "q4_0" },
		"wants hidden_size to be a multiple of 32, it is 48":    func(a *model.Architecture, _ *model.Precision) { a.HiddenSize = 48 },
		"intermediate_size to be a multiple of 32, it is 40":    func(a *model.Architecture, _ *model.Precision) { a.FeedForward = 40 },
		"head_dim to be a multiple of 16, it is 8: take bf16":   func(a *model.Architecture, _ *model.Precision) { a.HeadDim = 8 },
		"all heads to be a multiple of 32, it is 48: take bf16": func(a *model.Architecture, _ *model.Precision) { a.Heads, a.KVHeads = 3, 1 },
	} {
		a, p := blocked()["tied"], model.Q8_0
		spoil(&a, &p)
		c := adapted(a, lora(), 1)
		c.Adapter.BasePrecision = p
		_, err := engine("", 1).NewTrainer(c)
		require.ErrorContains(t, err, want)
		require.ErrorIs(t, err, model.ErrAdapter)
	}
}

func TestABaseOfFewerBitsTakesLessMemory(t *testing.T) {
	t.Parallel()
	a := blocked()["wide"]
	for p, most := range map[model.Precision]float64{model.F32: 4.01, model.BF16: 2.01, model.Q8_0: 1.135} {
		c, _ := inPrecision(a, p)
		held := native.BaseBytes(trainerOf(t, engine("", 1), c))
		require.Less(t, float64(held), most*float64(a.Parameters()), p)
		require.Greater(t, float64(held), (most-0.02)*float64(a.Parameters()), p)
	}
}
