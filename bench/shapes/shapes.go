// Package shapes has models of the shapes of published ones, with random weights.
package shapes

import (
	"hash/fnv"
	"math"
	"math/rand/v2"

	"github.com/fulgurite/fulgurite/model"
)

// Names returns the names of all shapes.
func Names() []string { return []string{"small", "smollm2-135m", "qwen2.5-0.5b"} }

// Of returns the architecture of that name.
func Of(name string) (a model.Architecture, ok bool) {
	switch name {
	case "small": // no published model, but with SmolLM2's vocabulary: shows what a run takes besides its model
		return model.Architecture{
			VocabSize: 49152, HiddenSize: 64, Layers: 2, Heads: 4, KVHeads: 2, HeadDim: 16, FeedForward: 128,
			MaxPositions: 2048, RopeTheta: 100000, NormEpsilon: 1e-5, Tied: true,
		}, true
	case "smollm2-135m":
		return model.Architecture{
			VocabSize: 49152, HiddenSize: 576, Layers: 30, Heads: 9, KVHeads: 3, HeadDim: 64, FeedForward: 1536,
			MaxPositions: 8192, RopeTheta: 100000, NormEpsilon: 1e-5, Tied: true,
		}, true
	case "qwen2.5-0.5b":
		return model.Architecture{
			VocabSize: 151936, HiddenSize: 896, Layers: 24, Heads: 14, KVHeads: 2, HeadDim: 64, FeedForward: 4864,
			MaxPositions: 32768, RopeTheta: 1e6, NormEpsilon: 1e-6, Tied: true, QKVBias: true,
		}, true
	}
	return a, false
}

// Random returns a function that draws each tensor from its name alone. Norms are ones,
// and so are biases.
func Random(a model.Architecture) func(name string) (model.Tensor, error) {
	return func(name string) (model.Tensor, error) {
		t, err := a.Tensors().Tensor(name)
		if err != nil {
			return t, err
		}
		h := fnv.New64a()
		_, _ = h.Write([]byte(name)) // a hash takes everything
		r := rand.New(rand.NewPCG(h.Sum64(), 1))
		t.Data = make([]float32, t.Size())
		deviation := 0.5 / math.Sqrt(float64(t.Shape[len(t.Shape)-1]))
		for i := range t.Data {
			if t.Data[i] = 1; len(t.Shape) > 1 {
				t.Data[i] = float32(deviation * r.NormFloat64())
			}
		}
		return t, nil
	}
}
