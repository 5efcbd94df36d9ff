package testsuite_test

import (
	"fmt"
	"math"
	"os"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/engine/gomlx"
	"github.com/fulgurite/fulgurite/model/engine/native"
	"github.com/fulgurite/fulgurite/model/engine/torch"
)

// The engines share only the definition of the architecture. One is written by hand, one
// uses graphs with automatic derivatives, and one is a model of transformers in PyTorch.
// If they agree, they are right. PyTorch takes part if FULGURITE_TORCH names a Python
// that has it.
//
// Tolerances: float32 has a relative precision of 1.2e-7, and the engines sum in
// different orders. The bounds are three to ten times the largest differences seen, on
// AVX-512: log-probabilities 4e-6, entropies 1.4e-6, gradients 1.8e-6; after ten updates
// weights 6e-5 and log-probabilities 1.3e-5. AdamW divides by the size of the gradient.
// Where the gradient is near zero, its rounding therefore decides a step. So weights are
// compared in units of the learning rate, by the mean over a tensor.
const (
	logprobTolerance  = 1e-5 // nats, absolute
	entropyTolerance  = 1e-5 // nats, absolute
	gradientTolerance = 1e-5 // of the length of each tensor's gradient
	weightTolerance   = 5e-4 // of the learning rate, after 1 and after 10 updates
	trainedTolerance  = 5e-5 // nats, of log-probabilities after 1 and after 10 updates
)

func architectures() map[string]model.Architecture {
	base := model.Architecture{
		VocabSize: 37, HiddenSize: 32, Layers: 2, Heads: 4, KVHeads: 4, HeadDim: 8, FeedForward: 48,
		MaxPositions: 64, RopeTheta: 10000, NormEpsilon: 1e-5,
	}
	llama, gqa, qwen2, qwen3 := base, base, base, base
	llama.Tied = true
	gqa.KVHeads = 1
	qwen2.QKVBias, qwen2.KVHeads, qwen2.RopeTheta, qwen2.NormEpsilon = true, 2, 1e6, 1e-6
	// A head size that is not hidden/heads, and sizes that are not multiples of a vector.
	qwen3.QKNorm, qwen3.KVHeads, qwen3.HeadDim, qwen3.Tied, qwen3.FeedForward, qwen3.HiddenSize = true, 2, 10, true, 45, 27
	return map[string]model.Architecture{
		"tied": llama, "one key head, untied": gqa, "qkv bias": qwen2, "qk norm, odd sizes": qwen3, "tiny": model.Tiny(40),
	}
}

// randomCheckpoint returns a model whose biases and norms are random too.
func randomCheckpoint(a model.Architecture) model.Checkpoint {
	w := a.Init(11)
	noise := make([]float32, a.Parameters())
	model.GumbelNoise(12, 0, noise)
	for _, t := range w {
		if len(t.Shape) == 1 {
			for i := range t.Data {
				t.Data[i] += 0.1 * noise[i]
			}
		}
		noise = noise[len(t.Data):]
	}
	return model.Checkpoint{Architecture: a, Weights: w}
}

// ragged returns rows with lengths from 2 up to a power of two plus one, at several
// temperatures. Some tokens were chosen from a few tokens only.
func ragged(a model.Architecture) []model.Row {
	rows := make([]model.Row, 0, 9)
	for i, n := range []int{17, 2, 33, 5, 64, 9, 3, 16, 31} {
		r := model.Row{Tokens: make([]int32, n), Temperature: []float64{0, 1, 0.7, 1.5}[i%4]}
		for j := range r.Tokens {
			r.Tokens[j] = int32((i*i + 7*j + j*j/3) % a.VocabSize)
		}
		if i%3 == 1 {
			r.Allowed = sets(a, r.Tokens, i)
		}
		rows = append(rows, r)
	}
	return rows
}

// sets restricts two of three positions, each to different tokens.
func sets(a model.Architecture, tokens []int32, seed int) []model.TokenSet {
	out := make([]model.TokenSet, len(tokens)-1)
	for i := range out {
		if i%3 == 2 {
			continue
		}
		out[i] = model.NewTokenSet(a.VocabSize)
		out[i].Add(tokens[i+1])
		for j := range (seed + i) % 8 {
			out[i].Add(int32((i*i + 11*j + seed) % a.VocabSize))
		}
	}
	return out
}

// some allows a few tokens at each position, different ones each time, and at every third
// position all tokens.
type some struct{ vocab, n int }

func (s *some) Allowed(set model.TokenSet) bool {
	for j := range 6 {
		set.Add(int32((s.n*s.n + 7*j) % s.vocab))
	}
	return s.n%3 < 2
}

func (s *some) Accept(int32) bool {
	s.n++
	return s.n == 15
}

// both runs f on a trainer of each engine.
func both(t *testing.T, engines []model.Engine, c model.Checkpoint, f func(engine string, tr model.Trainer)) {
	t.Helper()
	for _, e := range engines {
		tr, err := e.NewTrainer(c)
		require.NoError(t, err)
		f(e.Name(), tr)
		tr.Close()
	}
}

// eachPair calls f with the native engine and each of the other engines.
func eachPair(t *testing.T, f func(t *testing.T, engines []model.Engine)) {
	t.Helper()
	t.Run("gomlx", func(t *testing.T) {
		t.Parallel()
		f(t, engines(t))
	})
	t.Run("torch", func(t *testing.T) {
		t.Parallel()
		f(t, []model.Engine{native.New(native.Options{}), torchEngine(t)})
	})
}

// sharedTorch is the engine of all tests that have PyTorch compute: loading its libraries takes
// longer than most of them. TestMain closes it.
var sharedTorch struct {
	sync.Mutex
	*torch.Engine
}

// torchEngine returns engine torch on the CPU, or skips the test.
func torchEngine(t *testing.T) *torch.Engine {
	t.Helper()
	if os.Getenv(torch.EnvPython) == "" {
		t.Skip("FULGURITE_TORCH names no Python with PyTorch: make torch")
	}
	sharedTorch.Lock()
	defer sharedTorch.Unlock()
	if sharedTorch.Engine == nil {
		var err error
		sharedTorch.Engine, err = torch.New(torch.Options{Device: "cpu", Threads: 1})
		require.NoError(t, err)
	}
	return sharedTorch.Engine
}

func engines(t *testing.T) []model.Engine {
	t.Helper()
	g, err := gomlx.New(gomlx.Options{})
	require.NoError(t, err)
	return []model.Engine{native.New(native.Options{}), g}
}

func TestEnginesAgreeOnLogProbabilitiesAndEntropies(t *testing.T) {
	t.Parallel()
	skipShort(t, "arithmetic")
	eachPair(t, func(t *testing.T, engines []model.Engine) {
		for name, a := range architectures() {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				var logprobs, entropies [][][]float32
				both(t, engines, randomCheckpoint(a), func(_ string, tr model.Trainer) {
					lp, ent, err := tr.Score(t.Context(), ragged(a))
					require.NoError(t, err)
					logprobs, entropies = append(logprobs, lp), append(entropies, ent)
				})
				for i, r := range ragged(a) {
					require.Len(t, logprobs[0][i], len(r.Tokens)-1)
					require.InDeltaSlice(t, logprobs[0][i], logprobs[1][i], logprobTolerance, "row %d", i)
					require.InDeltaSlice(t, entropies[0][i], entropies[1][i], entropyTolerance, "row %d", i)
				}
			})
		}
	})
}

// objective is the policy gradient of made-up advantages with an entropy bonus, with some
// positions masked. It depends on the log-probabilities, as losses do.
func objective(row int, logprobs, entropies, gradient, entropyGradient []float32) {
	for i := range logprobs {
		if (row+i)%3 == 0 {
			continue
		}
		advantage := math.Sin(float64(5*row + 2*i))
		gradient[i] = float32(-advantage * math.Exp(float64(logprobs[i])/8) / 50)
		entropyGradient[i] = -0.01 * entropies[i] / 50
	}
}

// The first moment of a fresh optimizer is (1−beta1) times the gradient: with
// beta1 0, the gradient itself.
func TestEnginesAgreeOnGradients(t *testing.T) {
	t.Parallel()
	skipShort(t, "arithmetic")
	eachPair(t, func(t *testing.T, engines []model.Engine) {
		for name, a := range architectures() {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				var norms []float64
				var gradients []model.Weights
				both(t, engines, randomCheckpoint(a), func(_ string, tr model.Trainer) {
					norm, err := tr.Update(t.Context(), ragged(a), objective, model.AdamW{LearningRate: 1e-3, Epsilon: 1e-8})
					require.NoError(t, err)
					norms, gradients = append(norms, norm), append(gradients, tr.Checkpoint().Mean)
				})
				require.InEpsilon(t, norms[0], norms[1], gradientTolerance)
				for i, g := range gradients[0] {
					length, difference := distance(g.Data, nil), distance(g.Data, gradients[1][i].Data)
					require.Positive(t, length, g.Name)
					require.Less(t, difference, gradientTolerance*length, g.Name)
				}
			})
		}
	})
}

// distance returns the Euclidean distance, from zero if b is nil.
func distance(a, b []float32) float64 {
	sum := 0.0
	for i := range a {
		d := float64(a[i])
		if b != nil {
			d -= float64(b[i])
		}
		sum += d * d
	}
	return math.Sqrt(sum)
}

func TestEnginesAgreeAfterUpdates(t *testing.T) {
	t.Parallel()
	skipShort(t, "arithmetic")
	opt := model.AdamW{LearningRate: 1e-3, Beta1: 0.9, Beta2: 0.98, Epsilon: 1e-6, WeightDecay: 0.1, ClipNorm: 0.05}
	eachPair(t, func(t *testing.T, engines []model.Engine) {
		for name, a := range architectures() {
			for _, updates := range []int{1, 10} {
				t.Run(fmt.Sprint(name, " ", updates), func(t *testing.T) {
					t.Parallel()
					var after []model.Checkpoint
					var logprobs [][][]float32
					both(t, engines, randomCheckpoint(a), func(engine string, tr model.Trainer) {
						for range updates {
							norm, err := tr.Update(t.Context(), ragged(a), objective, opt)
							require.NoError(t, err)
							require.Greater(t, norm, opt.ClipNorm, "%s does not clip", engine)
						}
						lp, _, err := tr.Score(t.Context(), ragged(a))
						require.NoError(t, err)
						after, logprobs = append(after, tr.Checkpoint()), append(logprobs, lp)
					})
					require.Equal(t, updates, after[0].Updates)
					require.Equal(t, updates, after[1].Updates)
					bound := weightTolerance * opt.LearningRate
					for i, w := range after[0].Weights {
						other := after[1].Weights[i].Data
						mean := 0.0
						for j := range w.Data {
							mean += math.Abs(float64(w.Data[j])-float64(other[j])) / float64(len(other))
						}
						require.Less(t, mean, bound, w.Name)
					}
					for i := range logprobs[0] {
						require.InDeltaSlice(t, logprobs[0][i], logprobs[1][i], trainedTolerance, "row %d", i)
					}
				})
			}
		}
	})
}

// Greedy decoding takes the largest logit. Sampling takes the largest logit plus noise
// that all engines share. So the engines sample the same tokens, unless two sums are
// within rounding of each other, which does not happen with these seeds.
func TestEnginesDecodeTheSameTokens(t *testing.T) {
	t.Parallel()
	skipShort(t, "arithmetic")
	eachPair(t, func(t *testing.T, engines []model.Engine) {
		for name, a := range architectures() {
			t.Run(name, func(t *testing.T) { requireSameReplies(t, engines, a) })
		}
	})
}

func requireSameReplies(t *testing.T, engines []model.Engine, a model.Architecture) {
	t.Parallel()
	c := randomCheckpoint(a)
	var decoders []model.Decoder
	for _, e := range engines {
		d, err := e.NewDecoder(model.Checkpoint{Architecture: a, Weights: c.Weights})
		require.NoError(t, err)
		defer d.Close()
		decoders = append(decoders, d)
	}
	for i, r := range ragged(a)[:4] {
		for _, temperature := range []float64{0, 1, 0.6} {
			request := model.DecodeRequest{Prompt: r.Tokens, MaxTokens: 20, Temperature: temperature, Stop: []int32{1}, Seed: uint64(i)}
			requireSameTokens(t, decoders, func() model.DecodeRequest { return request })
			request.TopP = 0.7
			requireSameTokens(t, decoders, func() model.DecodeRequest {
				request.Constraint = &some{vocab: a.VocabSize}
				return request
			})
			request.Constraint = nil
			requireSameTokens(t, decoders, func() model.DecodeRequest { return request })
		}
	}
}

// requireSameTokens asks both decoders and compares the tokens. request makes a new
// request for each.
func requireSameTokens(t *testing.T, decoders []model.Decoder, request func() model.DecodeRequest) {
	t.Helper()
	want, err := decoders[0].Decode(t.Context(), request())
	require.NoError(t, err)
	got, err := decoders[1].Decode(t.Context(), request())
	require.NoError(t, err)
	require.Equal(t, want.Tokens, got.Tokens)
	require.Equal(t, want.Finish, got.Finish)
	require.Equal(t, want.Forced, got.Forced)
	require.InDeltaSlice(t, want.Logprobs, got.Logprobs, logprobTolerance)
}
