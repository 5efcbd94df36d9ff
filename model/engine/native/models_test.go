package native_test

import (
	"crypto/sha256"
	"encoding/hex"
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/engine/native"
	"github.com/fulgurite/fulgurite/model/engine/native/kernel"
)

// architectures returns models that cover each option and sizes that need padding.
func architectures() map[string]model.Architecture {
	tiny := model.Tiny(32)
	tiny.MaxPositions = 128
	llama := model.Architecture{
		VocabSize: 37, HiddenSize: 36, Layers: 2, Heads: 4, KVHeads: 1, HeadDim: 10, FeedForward: 50,
		MaxPositions: 128, RopeTheta: 500, NormEpsilon: 1e-5,
	}
	qwen2 := model.Architecture{
		VocabSize: 48, HiddenSize: 32, Layers: 1, Heads: 2, KVHeads: 2, HeadDim: 16, FeedForward: 48,
		MaxPositions: 128, RopeTheta: 10000, NormEpsilon: 1e-6, Tied: true, QKVBias: true,
	}
	qwen3 := model.Architecture{
		VocabSize: 50, HiddenSize: 40, Layers: 2, Heads: 6, KVHeads: 2, HeadDim: 12, FeedForward: 32,
		MaxPositions: 128, RopeTheta: 1000, NormEpsilon: 1e-6, QKNorm: true,
	}
	everything := qwen3
	everything.QKVBias, everything.HeadDim = true, 6
	return map[string]model.Architecture{"tiny": tiny, "llama": llama, "qwen2": qwen2, "qwen3": qwen3, "everything": everything}
}

// weights returns weights that are random also where Init is constant, so that no
// gradient is zero for a wrong reason.
func weights(a model.Architecture, seed uint64) model.Weights {
	w := a.Init(seed)
	r := rand.New(rand.NewPCG(seed, 5))
	for _, t := range w {
		for i := range t.Data {
			switch {
			case len(t.Shape) == 1:
				t.Data[i] += float32(0.2 * r.NormFloat64())
			case t.Name == "model.embed_tokens.weight":
				t.Data[i] *= 10 // else the first norm curves the loss too much for finite differences
			default:
				t.Data[i] *= 1.5
			}
		}
	}
	return w
}

// rows returns count sequences of 1 to longest tokens, some at other temperatures.
func rows(a model.Architecture, count, longest int, seed uint64) []model.Row {
	r := rand.New(rand.NewPCG(seed, 9))
	out := make([]model.Row, count)
	for i := range out {
		out[i].Tokens = make([]int32, 1+r.IntN(longest))
		for t := range out[i].Tokens {
			out[i].Tokens[t] = int32(r.IntN(a.VocabSize))
		}
		out[i].Temperature = []float64{0, 1, 0.7, 1.5}[i%4]
	}
	return out
}

// kernels returns the sets to test. Short tests look only for races, which do not depend
// on the set.
func kernels() []*kernel.Set {
	if testing.Short() {
		return kernel.Sets()[:1]
	}
	return kernel.Sets()
}

// arithmetic skips a test in short mode: it takes long and tests nothing about
// goroutines.
func arithmetic(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("arithmetic")
	}
}

// eachKernel runs f once for each kernel set of this processor.
func eachKernel(t *testing.T, f func(t *testing.T, kernelName string)) {
	for _, set := range kernels() {
		t.Run(set.Name(), func(t *testing.T) {
			t.Parallel()
			f(t, set.Name())
		})
	}
}

// eachModel runs f for all architectures on the fastest kernel set, and on the
// others for the one that has every option.
func eachModel(t *testing.T, f func(t *testing.T, a model.Architecture, kernelName string)) {
	for name, a := range architectures() {
		for i, set := range kernels() {
			if i > 0 && name != "everything" {
				continue
			}
			t.Run(name+"/"+set.Name(), func(t *testing.T) {
				t.Parallel()
				f(t, a, set.Name())
			})
		}
	}
}

func engine(kernelName string, threads int) *native.Engine {
	return native.New(native.Options{Threads: threads, Kernel: kernelName})
}

func trainer(t *testing.T, e *native.Engine, a model.Architecture, w model.Weights) model.Trainer {
	t.Helper()
	tr, err := e.NewTrainer(model.Checkpoint{Architecture: a, Weights: w})
	require.NoError(t, err)
	t.Cleanup(tr.Close)
	return tr
}

func decoder(t *testing.T, e *native.Engine, a model.Architecture, w model.Weights) model.Decoder {
	t.Helper()
	d, err := e.NewDecoder(model.Checkpoint{Architecture: a, Weights: w})
	require.NoError(t, err)
	t.Cleanup(d.Close)
	return d
}

func score(t testing.TB, tr model.Trainer, rows []model.Row) (logprobs, entropies [][]float32) {
	logprobs, entropies, err := tr.Score(t.Context(), rows)
	require.NoError(t, err)
	return logprobs, entropies
}

// bits returns the bits of xs, which can be compared also where numbers are NaN or signed
// zeros.
func bits(xs []float32) []uint32 {
	out := make([]uint32, len(xs))
	for i, x := range xs {
		out[i] = math.Float32bits(x)
	}
	return out
}

// digest returns a digest of the bits of many numbers. A wide model has millions, and
// comparing them one by one is slow under the race detector.
func digest(xs []float32) string {
	sum := sha256.Sum256(unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(xs))), 4*len(xs)))
	return hex.EncodeToString(sum[:])
}

// weightBits returns the digests of the tensors, with their names.
func weightBits(w model.Weights) []string {
	var out []string
	for _, t := range w {
		out = append(out, t.Name+" "+digest(t.Data))
	}
	return out
}

// adamW returns ordinary settings of AdamW.
func adamW() model.AdamW {
	return model.AdamW{LearningRate: 3e-3, Beta1: 0.9, Beta2: 0.98, Epsilon: 1e-8, WeightDecay: 0.01, ClipNorm: 1}
}

// likelihood returns the objective of ordinary training on n tokens, with an entropy
// bonus so that both gradients matter.
func likelihood(n int) model.Objective {
	return func(_ int, logprobs, _, gradient, entropyGradient []float32) {
		for i := range logprobs {
			gradient[i] = -1 / float32(n)
			entropyGradient[i] = -0.01 / float32(n)
		}
	}
}
