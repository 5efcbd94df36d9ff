package native_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/engine/native"
)

// branches returns rows with common prefixes: some are a prefix of another, some are
// equal, some branch off within others, and some have their own temperature or masks.
func branches(a model.Architecture, count, longest int, seed uint64) []model.Row {
	r := rand.New(rand.NewPCG(seed, 11))
	out := masked(a, rows(a, 3, longest, seed), seed)
	for len(out) < count {
		from := out[r.IntN(len(out))]
		keep := 1 + r.IntN(len(from.Tokens))
		row := model.Row{Tokens: slices.Clone(from.Tokens[:keep]), Temperature: from.Temperature}
		for range r.IntN(max(1, longest-keep)) {
			row.Tokens = append(row.Tokens, int32(r.IntN(a.VocabSize)))
		}
		switch r.IntN(4) {
		case 0:
			row.Tokens = slices.Clone(from.Tokens)
		case 1:
			row.Temperature = 0.5 + r.Float64()
		case 2:
			row = masked(a, []model.Row{row}, seed+uint64(len(out)))[0]
		}
		out = append(out, row)
	}
	r.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

// gradientOf returns the gradient of weighted, read out of AdamW's first moment.
func gradientOf(t *testing.T, tr model.Trainer, batch []model.Row) model.Weights {
	t.Helper()
	_, err := tr.Update(t.Context(), batch, weighted, model.AdamW{Beta1: 0.5, Beta2: 0.5, Epsilon: 1e-8})
	require.NoError(t, err)
	return tr.Checkpoint().Mean
}

// requireClose compares tensors by the length of their difference.
func requireClose(t *testing.T, want, got model.Weights) {
	t.Helper()
	for i := range want {
		difference := make([]float32, len(want[i].Data))
		for j, x := range want[i].Data {
			difference[j] = x - got[i].Data[j]
		}
		length := lengthOf(want[i].Data)
		require.NotZero(t, length, want[i].Name)
		require.LessOrEqual(t, lengthOf(difference), 1e-5*length, want[i].Name)
	}
}

func TestSharedBeginningsChangeNoGradient(t *testing.T) {
	t.Parallel()
	eachModel(t, func(t *testing.T, a model.Architecture, kernelName string) {
		for seed := range uint64(4) {
			batch, c := branches(a, 30, 50, seed), adapted(a, lora(), 3)
			alone, shared := trainerOf(t, engine(kernelName, 2), c), trainerOf(t, engine(kernelName, 2), c)
			native.ShareNothing(alone)
			require.Less(t, native.PositionsOf(shared, batch), native.PositionsOf(alone, batch)*3/4)
			requireClose(t, gradientOf(t, alone, batch), gradientOf(t, shared, batch))
		}
	})
}

func TestSharedBeginningsChangeNoGradientOfAWideModel(t *testing.T) {
	t.Parallel()
	c := adapted(wideModel(), lora(), 3)
	batch := branches(c.Architecture, 14, 60, 2)
	var want []string
	alone := trainerOf(t, engine("", 2), c)
	native.ShareNothing(alone)
	without := gradientOf(t, alone, batch)
	for _, threads := range []int{1, 2, 5} {
		g := gradientOf(t, trainerOf(t, engine("", threads), c), batch)
		requireClose(t, without, g)
		if want == nil {
			want = weightBits(g)
		}
		require.Equal(t, want, weightBits(g), "%d threads", threads)
	}
}

// Long sequences compute their attention again, piece by piece, also for the positions
// that they share with others.
func TestSharedBeginningsOfLongRowsChangeNoGradient(t *testing.T) {
	t.Parallel()
	a := architectures()["everything"]
	a.MaxPositions = 1400
	c, long := adapted(a, lora(), 3), longRow(a, 700).Tokens
	var batch []model.Row
	for i, length := range []int{700, 300, 690, 41, 300} {
		row := model.Row{Tokens: slices.Clone(long[:length]), Temperature: 1}
		for j := range 600 - 500*(i%2) {
			row.Tokens = append(row.Tokens, int32((i*31+j*j)%a.VocabSize))
		}
		batch = append(batch, row)
	}
	alone, shared, again := trainerOf(t, engine("", 2), c), trainerOf(t, engine("", 2), c), trainerOf(t, engine("", 2), c)
	native.ShareNothing(alone)
	native.KeepActivations(again, 0)
	native.LimitLogits(again, 50*a.VocabSize)
	require.Less(t, native.PositionsOf(shared, batch), native.PositionsOf(alone, batch))
	got := gradientOf(t, shared, batch)
	requireClose(t, gradientOf(t, alone, batch), got)
	require.Equal(t, weightBits(got), weightBits(gradientOf(t, again, batch)))
}

func TestGradientsOfSharedBeginningsMatchFiniteDifferences(t *testing.T) {
	t.Parallel()
	a := architectures()["everything"]
	requireAdapterGradients(t, adapted(a, lora(), 3), "", branches(a, 9, 36, 5))
}

func TestScoresOfRowsThatBeginAlikeAreThoseOfEachAlone(t *testing.T) {
	t.Parallel()
	for name, a := range architecturesAndWide() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			batch := branches(a, 20, 50, 8)
			tr, adapter := trainer(t, engine("", 2), a, weights(a, 1)), trainerOf(t, engine("", 2), adapted(a, lora(), 1))
			for _, tr := range []model.Trainer{tr, adapter} {
				logprobs, entropies := score(t, tr, batch)
				var inUpdate [20][]uint32
				_, err := tr.Update(t.Context(), batch, func(row int, logprobs, _, _, _ []float32) {
					inUpdate[row] = bits(logprobs)
				}, model.AdamW{Beta1: 0.5, Beta2: 0.5, Epsilon: 1e-8})
				require.NoError(t, err)
				for i, row := range batch {
					alone, entropy := score(t, tr, []model.Row{row})
					require.Equal(t, bits(alone[0]), bits(logprobs[i]))
					require.Equal(t, bits(entropy[0]), bits(entropies[i]))
					require.Equal(t, bits(alone[0]), inUpdate[i])
				}
			}
		})
	}
}

func TestSharedBeginningsChangeNoGradientOfACritic(t *testing.T) {
	t.Parallel()
	a := architectures()["everything"]
	start, err := model.CriticOf(adapted(a, lora(), 4))
	require.NoError(t, err)
	r := rand.New(rand.NewPCG(1, 2))
	for _, tensor := range start.Weights[len(start.Weights)-2:] {
		for i := range tensor.Data {
			tensor.Data[i] = float32(r.NormFloat64())
		}
	}
	batch := branches(a, 20, 40, 4)
	for i := range batch {
		batch[i].Allowed, batch[i].Temperature = nil, 0
	}
	gradient := func(c model.Critic) model.Weights {
		_, err := c.Update(t.Context(), batch, weightedValues, model.AdamW{Beta1: 0.5, Beta2: 0.5, Epsilon: 1e-8})
		require.NoError(t, err)
		return c.Checkpoint().Mean
	}
	alone, shared := critic(t, engine("", 2), start), critic(t, engine("", 2), start)
	native.ShareNothingOfCritic(alone)
	for i, row := range values(t, shared, batch) {
		require.Equal(t, bits(values(t, alone, batch[i:i+1])[0]), bits(row))
	}
	requireClose(t, gradient(alone), gradient(shared))
}
