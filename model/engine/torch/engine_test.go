package torch_test

import (
	"context"
	"math"
	"os"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/engine/native"
	"github.com/fulgurite/fulgurite/model/engine/torch"
)

// python returns the Python with PyTorch that the environment names.
func python(t *testing.T) string {
	t.Helper()
	named := os.Getenv(torch.EnvPython)
	if named == "" {
		t.Skip("FULGURITE_TORCH names no Python with PyTorch: make torch")
	}
	return named
}

// engine returns an engine with the real program on the CPU. No other test uses it, so
// the test may kill the program.
func engine(t *testing.T, o torch.Options) *torch.Engine {
	t.Helper()
	python(t)
	o.Device, o.Threads = "cpu", 1
	e, err := torch.New(o)
	require.NoError(t, err)
	t.Cleanup(e.Close)
	return e
}

// common is the engine of all tests that do their engine no harm: loading the libraries
// takes longer than any of them. TestMain closes it.
var common struct {
	sync.Mutex
	*torch.Engine
}

// shared returns the engine on the CPU that other tests use at the same time.
func shared(t *testing.T) *torch.Engine {
	t.Helper()
	python(t)
	common.Lock()
	defer common.Unlock()
	if common.Engine == nil {
		var err error
		common.Engine, err = torch.New(torch.Options{Device: "cpu", Threads: 1})
		require.NoError(t, err)
	}
	return common.Engine
}

func small() model.Architecture {
	return model.Architecture{
		VocabSize: 13, HiddenSize: 12, Layers: 2, Heads: 4, KVHeads: 2, HeadDim: 6, FeedForward: 20,
		MaxPositions: 40, RopeTheta: 10000, NormEpsilon: 1e-6, QKNorm: true,
	}
}

// start returns a checkpoint with random numbers everywhere, biases and norms included.
func start(a model.Architecture) model.Checkpoint {
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
	return model.Checkpoint{Architecture: a, Weights: w}
}

// adapter returns an adapter of base, with random numbers in both of its matrices and in
// the rows of its tokens.
func adapter(base model.Checkpoint, l model.LoRA, seed uint64) model.Checkpoint {
	digest := "sha256:base"
	if base.Architecture.Tied {
		digest = "sha256:tied"
	}
	c := model.Checkpoint{Architecture: base.Architecture, Adapter: &model.Adapter{LoRA: l, Base: &model.Base{
		Digest: digest, Size: 1, Architecture: base.Architecture, Each: func(use func(model.Tensor) error) error {
			for _, w := range base.Weights {
				if err := use(w); err != nil {
					return err
				}
			}
			return nil
		},
	}}}
	c.Weights = base.Architecture.AdapterTensors(l)
	for i := range c.Weights {
		w := &c.Weights[i]
		w.Data = make([]float32, w.Size())
		model.GumbelNoise(seed, i, w.Data)
		for j := range w.Data {
			w.Data[j] *= 0.1
		}
	}
	return c
}

func trainer(t *testing.T, e model.Engine, c model.Checkpoint) model.Trainer {
	t.Helper()
	tr, err := e.NewTrainer(c)
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

// slopes is an objective whose derivatives are fixed numbers of either sign.
func slopes(row int, logprobs, _ []float32, gradient, entropyGradient []float32) {
	for i := range logprobs {
		gradient[i] = float32(math.Sin(float64(3*row + i + 1)))
		entropyGradient[i] = 0.3 * float32(math.Cos(float64(row-2*i)))
	}
}

func adamW() model.AdamW {
	return model.AdamW{LearningRate: 1e-3, Beta1: 0.9, Beta2: 0.98, Epsilon: 1e-6, WeightDecay: 0.1, ClipNorm: 0.5}
}

// closeTo requires that a and b, tensors of equal names, differ by at most the given part
// of the length of each tensor of a.
func closeTo(t *testing.T, a, b model.Weights, part float64) {
	t.Helper()
	require.Len(t, b, len(a))
	for i, w := range a {
		require.Equal(t, w.Name, b[i].Name)
		length, difference := 0.0, 0.0
		for j, x := range w.Data {
			d := float64(x) - float64(b[i].Data[j])
			length, difference = length+float64(x)*float64(x), difference+d*d
		}
		require.Positive(t, length, w.Name)
		require.LessOrEqual(t, math.Sqrt(difference), part*math.Sqrt(length), w.Name)
	}
}

// tokens returns the numbers of an adapter that also trains rows of tokens.
func tokens() model.LoRA {
	return model.LoRA{Rank: 3, Alpha: 6, Targets: model.LoRATargets(), Tokens: []int32{9, 2, 5}}
}

// Adapters of different shapes are trained by turns over one base, together with a whole
// model.
func TestAdaptersOverOneBaseAgreeWithTheEngineNative(t *testing.T) {
	t.Parallel()
	e, other := shared(t), native.New(native.Options{Threads: 1})
	base, tied := start(small()), small()
	tied.Tied = true
	all := []model.Checkpoint{
		adapter(base, model.LoRA{Rank: 3, Alpha: 6, Targets: model.LoRATargets()}, 3),
		adapter(base, model.LoRA{Rank: 2, Alpha: 2, Targets: []string{"v_proj", "up_proj"}}, 4),
		base, adapter(base, tokens(), 5), adapter(start(tied), tokens(), 6),
	}
	trainers, others := make([]model.Trainer, len(all)), make([]model.Trainer, len(all))
	for i, c := range all {
		trainers[i], others[i] = trainer(t, e, c), trainer(t, other, c)
	}
	for range 3 {
		for i := range all {
			got, gotEntropies, err := trainers[i].Score(t.Context(), rows())
			require.NoError(t, err)
			want, wantEntropies, err := others[i].Score(t.Context(), rows())
			require.NoError(t, err)
			for row := range rows() {
				require.InDeltaSlice(t, want[row], got[row], 2e-5, "model %d row %d", i, row)
				require.InDeltaSlice(t, wantEntropies[row], gotEntropies[row], 2e-5, "model %d row %d", i, row)
			}
			norm, err := trainers[i].Update(t.Context(), rows(), slopes, adamW())
			require.NoError(t, err)
			otherNorm, err := others[i].Update(t.Context(), rows(), slopes, adamW())
			require.NoError(t, err)
			require.InEpsilon(t, otherNorm, norm, 1e-4)
		}
	}
	for i := range all {
		want, got := others[i].Checkpoint(), trainers[i].Checkpoint()
		require.Equal(t, want.Updates, got.Updates)
		closeTo(t, want.Mean, got.Mean, 1e-3)
		closeTo(t, want.Weights, got.Weights, 1e-3)
	}
}

func TestACriticWithAnAdapterAgreesWithTheEngineNative(t *testing.T) {
	t.Parallel()
	c, err := model.CriticOf(adapter(start(small()), tokens(), 3))
	require.NoError(t, err)
	for _, head := range c.Weights[len(c.Weights)-2:] {
		model.GumbelNoise(4, 0, head.Data)
		for i := range head.Data {
			head.Data[i] *= 0.1
		}
	}
	var values [][][]float32
	var gradients []model.Weights
	for _, e := range []model.Engine{native.New(native.Options{Threads: 1}), shared(t)} {
		critic, err := e.NewCritic(c)
		require.NoError(t, err)
		defer critic.Close()
		v, err := critic.Values(t.Context(), rows())
		require.NoError(t, err)
		_, err = critic.Update(t.Context(), rows(), func(row int, values, gradient []float32) {
			slopes(row, values, nil, gradient, make([]float32, len(values)))
		}, model.AdamW{LearningRate: 1e-3, Epsilon: 1e-8})
		require.NoError(t, err)
		values, gradients = append(values, v), append(gradients, critic.Checkpoint().Mean)
	}
	for row := range rows() {
		require.InDeltaSlice(t, values[0][row], values[1][row], 1e-5)
	}
	closeTo(t, gradients[0], gradients[1], 1e-4)
}

func TestAnUpdateIsTheSameHoweverItsBatchIsCut(t *testing.T) {
	t.Parallel()
	var after []model.Checkpoint
	for _, tokens := range []int{1, 20, 8192} {
		tr := trainer(t, shared(t), start(small()))
		torch.SetTokens(tr, tokens)
		_, err := tr.Update(t.Context(), rows(), slopes, adamW())
		require.NoError(t, err)
		after = append(after, tr.Checkpoint())
	}
	closeTo(t, after[0].Mean, after[1].Mean, 1e-5)
	closeTo(t, after[0].Mean, after[2].Mean, 1e-5)
}

func TestTrainingGoesOnFromACheckpoint(t *testing.T) {
	t.Parallel()
	e := shared(t)
	for _, c := range []model.Checkpoint{start(small()), adapter(start(small()), tokens(), 3)} {
		straight := trainer(t, e, c)
		for range 3 {
			_, err := straight.Update(t.Context(), rows(), slopes, adamW())
			require.NoError(t, err)
			resumed := trainer(t, e, c)
			_, err = resumed.Update(t.Context(), rows(), slopes, adamW())
			require.NoError(t, err)
			c = resumed.Checkpoint()
		}
		require.Empty(t, cmp.Diff(straight.Checkpoint().Weights, c.Weights))
		require.Empty(t, cmp.Diff(straight.Checkpoint().Variance, c.Variance))
		require.Equal(t, 3, c.Updates)
	}
}

func TestAnUpdateThatDivergesOrIsCancelledChangesNothing(t *testing.T) {
	t.Parallel()
	tr := trainer(t, engine(t, torch.Options{Tokens: 1}), start(small()))
	before := tr.Checkpoint()
	_, err := tr.Update(t.Context(), rows(), func(_ int, logprobs, _, gradient, _ []float32) {
		if len(logprobs) > 0 {
			gradient[0] = float32(math.NaN())
		}
	}, adamW())
	require.ErrorIs(t, err, model.ErrDiverged)
	ctx, cancel := context.WithCancel(t.Context())
	_, err = tr.Update(ctx, rows(), func(int, []float32, []float32, []float32, []float32) { cancel() }, adamW())
	require.ErrorIs(t, err, context.Canceled)
	require.Empty(t, cmp.Diff(before, tr.Checkpoint()))
	_, err = tr.Update(t.Context(), rows(), slopes, adamW())
	require.NoError(t, err, "the trainer goes on")
}

func TestLogitsThatOverflowAreAnError(t *testing.T) {
	t.Parallel()
	c := start(small())
	for i := range c.Weights {
		if c.Weights[i].Name == "lm_head.weight" {
			for j := range c.Weights[i].Data {
				c.Weights[i].Data[j] = 3e38
			}
		}
	}
	tr := trainer(t, shared(t), c)
	_, _, err := tr.Score(t.Context(), rows())
	require.ErrorIs(t, err, model.ErrNotFinite)
	require.ErrorContains(t, err, "choice 0 comes out as NaN")
	_, err = tr.Update(t.Context(), rows(), slopes, adamW())
	require.ErrorIs(t, err, model.ErrDiverged)
}

func TestWhatCannotBeIsRefused(t *testing.T) {
	t.Parallel()
	e := shared(t)
	c := start(small())
	tr := trainer(t, e, c)
	for _, r := range []model.Row{
		{}, {Tokens: []int32{13}}, {Tokens: []int32{-1}}, {Tokens: make([]int32, 41)}, {Tokens: []int32{1, 2}, Temperature: -1},
		{Tokens: []int32{1, 2}, Temperature: math.NaN()}, {Tokens: []int32{1, 2}, Allowed: []model.TokenSet{{1}}}, {Tokens: []int32{1, 2}, Allowed: []model.TokenSet{}},
	} {
		_, _, err := tr.Score(t.Context(), []model.Row{r})
		require.ErrorIs(t, err, model.ErrRow)
	}
	_, err := tr.Update(t.Context(), rows(), slopes, model.AdamW{})
	require.ErrorContains(t, err, "epsilon")
	_, err = tr.Update(t.Context(), nil, slopes, adamW())
	require.ErrorContains(t, err, "no rows")
	_, err = e.NewCritic(c)
	require.ErrorIs(t, err, model.ErrArchitecture)
	c.Weights[0].Data[0] = float32(math.Inf(1))
	_, err = e.NewTrainer(c)
	require.ErrorIs(t, err, model.ErrNotFinite)
}
