package native_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/model"
)

// coefficient returns arbitrary but fixed derivatives for each position; every fifth
// position is masked.
func coefficient(row, i int) (logprob, entropy float32) {
	if (row+i)%5 == 4 {
		return 0, 0
	}
	return float32(math.Sin(float64(3*row+i+1))) / 8, float32(math.Cos(float64(row+2*i))) / 8
}

func weighted(row int, logprobs, _, gradient, entropyGradient []float32) {
	for i := range logprobs {
		gradient[i], entropyGradient[i] = coefficient(row, i)
	}
}

// loss returns the value of the function whose gradient weighted writes.
func loss(t *testing.T, tr model.Trainer, batch []model.Row) float64 {
	logprobs, entropies := score(t, tr, batch)
	total := 0.0
	for r := range logprobs {
		for i := range logprobs[r] {
			c, e := coefficient(r, i)
			total += float64(c)*float64(logprobs[r][i]) + float64(e)*float64(entropies[r][i])
		}
	}
	return total
}

// gradients reads the gradient out of AdamW's first moment: after one update
// without clipping and with beta1 = 0.5 the mean is half of it.
func gradients(t *testing.T, a model.Architecture, w model.Weights, kernelName string, batch []model.Row) (model.Weights, float64) {
	tr := trainer(t, engine(kernelName, 2), a, w)
	norm, err := tr.Update(t.Context(), batch, weighted, model.AdamW{Beta1: 0.5, Beta2: 0.5, Epsilon: 1e-8})
	require.NoError(t, err)
	g := tr.Checkpoint().Mean
	for _, tensor := range g {
		for i := range tensor.Data {
			tensor.Data[i] *= 2
		}
	}
	return g, norm
}

// For each tensor the derivative along its own gradient must be the gradient's
// length. Sequences are ragged, temperatures mixed.
func TestGradientsMatchFiniteDifferences(t *testing.T) {
	arithmetic(t)
	t.Parallel()
	eachModel(t, func(t *testing.T, a model.Architecture, kernelName string) {
		requireGradients(t, a, kernelName, rows(a, 7, 36, 4))
	})
}

func TestGradientsUnderMasksMatchFiniteDifferences(t *testing.T) {
	arithmetic(t)
	t.Parallel()
	eachModel(t, func(t *testing.T, a model.Architecture, kernelName string) {
		requireGradients(t, a, kernelName, masked(a, rows(a, 7, 36, 4), 5))
	})
}

// A long sequence computes its attention again for the backward pass, in two
// pieces.
func TestGradientsOfALongSequenceMatchFiniteDifferences(t *testing.T) {
	arithmetic(t)
	t.Parallel()
	a := architectures()["everything"]
	a.MaxPositions = 600
	requireGradients(t, a, "", append(rows(a, 2, 40, 4), model.Row{Tokens: longRow(a, 540).Tokens, Temperature: 0.8}))
}

// masked restricts two positions in three to sets that contain the position's token.
func masked(a model.Architecture, batch []model.Row, seed uint64) []model.Row {
	random := rand.New(rand.NewPCG(seed, 6))
	for i, row := range batch {
		batch[i].Allowed = make([]model.TokenSet, len(row.Tokens)-1)
		for t := range batch[i].Allowed {
			if t%3 == 2 {
				continue
			}
			set := setOf(a, row.Tokens[t+1:t+2])
			for range random.IntN(20) {
				set.Add(int32(random.IntN(a.VocabSize)))
			}
			batch[i].Allowed[t] = set
		}
	}
	return batch
}

func requireGradients(t *testing.T, a model.Architecture, kernelName string, batch []model.Row) {
	t.Helper()
	w := weights(a, 3)
	g, norm := gradients(t, a, w, kernelName, batch)
	total := 0.0
	for i := range w {
		squares := 0.0
		for _, x := range g[i].Data {
			squares += float64(x) * float64(x)
		}
		total += squares
		length := math.Sqrt(squares)
		require.NotZero(t, length, w[i].Name)
		slope := slopeAlong(t, a, w, i, g[i].Data, length, kernelName, batch)
		require.InEpsilon(t, length, slope, 0.01, "%s: |gradient| %v, finite difference %v", w[i].Name, length, slope)
	}
	require.InEpsilon(t, math.Sqrt(total), norm, 1e-5)
}

// slopeAlong returns the central difference of the loss when tensor i moves along its
// gradient, extrapolated from two steps (Richardson).
func slopeAlong(t *testing.T, a model.Architecture, w model.Weights, i int, g []float32, length float64, kernelName string, batch []model.Row) float64 {
	at := func(step float64) float64 {
		moved := append(model.Weights{}, w...)
		moved[i].Data = append([]float32{}, w[i].Data...)
		for j := range g {
			moved[i].Data[j] += float32(step * float64(g[j]) / length)
		}
		tr, err := engine(kernelName, 1).NewTrainer(model.Checkpoint{Architecture: a, Weights: moved})
		require.NoError(t, err)
		defer tr.Close()
		return loss(t, tr, batch)
	}
	central := func(h float64) float64 { return (at(h) - at(-h)) / (2 * h) }
	const h = 0.02
	return (4*central(h/2) - central(h)) / 3
}

// Single weights are checked, not only whole tensors: a gradient could have the right
// length and a wrong direction.
func TestGradientOfSingleWeights(t *testing.T) {
	arithmetic(t)
	t.Parallel()
	a := architectures()["everything"]
	w, batch := weights(a, 3), rows(a, 7, 36, 4)
	g, _ := gradients(t, a, w, "", batch)
	for i := range w {
		for _, j := range []int{0, len(w[i].Data) / 2, len(w[i].Data) - 1} {
			one := make([]float32, len(w[i].Data))
			one[j] = 1
			slope := slopeAlong(t, a, w, i, one, 1, "", batch)
			require.InDelta(t, g[i].Data[j], slope, 1e-3+0.02*math.Abs(slope), "%s[%d]", w[i].Name, j)
		}
	}
}

func TestEntropyIsThatOfTheDistribution(t *testing.T) {
	t.Parallel()
	a := architectures()["tiny"]
	eachKernel(t, func(t *testing.T, kernelName string) {
		tr := trainer(t, engine(kernelName, 2), a, weights(a, 1))
		for _, temperature := range []float64{0, 0.5, 2} {
			prefix := []int32{3, 1, 4, 1, 5}
			var batch []model.Row
			for v := range a.VocabSize {
				batch = append(batch, model.Row{Tokens: append(append([]int32{}, prefix...), int32(v)), Temperature: temperature})
			}
			logprobs, entropies := score(t, tr, batch)
			sum, entropy := 0.0, 0.0
			for v := range batch {
				l := float64(logprobs[v][4])
				sum += math.Exp(l)
				entropy -= l * math.Exp(l)
			}
			require.InDelta(t, 1, sum, 1e-5)
			require.InDelta(t, entropy, entropies[0][4], 1e-5)
		}
	})
}
