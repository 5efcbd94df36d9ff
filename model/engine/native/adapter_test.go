package native_test

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/engine/native"
)

// lora returns the numbers of an adapter of all linear layers, whose rank needs padding.
func lora() model.LoRA {
	return model.LoRA{Rank: 3, Alpha: 5, Targets: model.LoRATargets()}
}

// base returns a frozen policy. Its digest names its architecture and its seed. Its
// weights are drawn once, for all engines.
func base(a model.Architecture, seed uint64) *model.Base {
	a.ValueHead = false
	drawn := sync.OnceValue(func() model.Weights { return weights(a, seed) })
	return &model.Base{
		Digest: fmt.Sprintf("%+v %d", a, seed), Architecture: a,
		Each: model.EachOf(func() (model.Weights, error) { return drawn(), nil }),
	}
}

// adapted returns a checkpoint with an adapter whose B is not zero either.
func adapted(a model.Architecture, l model.LoRA, seed uint64) model.Checkpoint {
	c := model.Checkpoint{Architecture: a, Adapter: &model.Adapter{LoRA: l, Base: base(a, seed)}}
	var err error
	if c.Weights, err = c.Adapter.Init(a, seed); err != nil {
		panic(err) // the base is in memory
	}
	r := rand.New(rand.NewPCG(seed, 7))
	for _, t := range c.Weights {
		for i := range t.Data {
			t.Data[i] += float32(0.1 * r.NormFloat64())
		}
	}
	return c
}

func trainerOf(t *testing.T, e *native.Engine, c model.Checkpoint) model.Trainer {
	t.Helper()
	tr, err := e.NewTrainer(c)
	require.NoError(t, err)
	t.Cleanup(tr.Close)
	return tr
}

func TestANewAdapterChangesNothing(t *testing.T) {
	t.Parallel()
	eachModel(t, func(t *testing.T, a model.Architecture, kernelName string) {
		batch, e := rows(a, 9, 40, 2), engine(kernelName, 2)
		c := adapted(a, lora(), 1)
		c.Weights = a.InitAdapter(lora(), 1)
		got, _ := score(t, trainerOf(t, e, c), batch)
		want, _ := score(t, trainer(t, e, a, weights(a, 1)), batch)
		for i := range want {
			require.Equal(t, bits(want[i]), bits(got[i]))
		}
	})
}

// The reference does not support adapters, so it computes with the merged weights.
func TestLogprobsWithAnAdapterAreThoseOfTheMergedWeights(t *testing.T) {
	t.Parallel()
	eachModel(t, func(t *testing.T, a model.Architecture, kernelName string) {
		c := adapted(a, lora(), 1)
		merged, err := c.Merged()
		require.NoError(t, err)
		ref := newReference(a, merged)
		tr := trainerOf(t, engine(kernelName, 2), c)
		for _, row := range rows(a, 6, 40, 2) {
			got, _ := score(t, tr, []model.Row{row})
			want := ref.logprobs(row.Tokens, cmp.Or(row.Temperature, 1))
			for i := range want {
				require.InDelta(t, want[i], got[0][i], 2e-4)
			}
		}
		without := newReference(a, weights(a, 1)).logprobs([]int32{1, 2, 3}, 1)
		require.NotEqual(t, without, ref.logprobs([]int32{1, 2, 3}, 1), "the adapter does something")
	})
}

func TestGradientsOfAnAdapterMatchFiniteDifferences(t *testing.T) {
	arithmetic(t)
	t.Parallel()
	eachModel(t, func(t *testing.T, a model.Architecture, kernelName string) {
		requireAdapterGradients(t, adapted(a, lora(), 3), kernelName, rows(a, 7, 36, 4))
	})
}

func TestGradientsOfSomeTargetsMatchFiniteDifferences(t *testing.T) {
	t.Parallel()
	a := architectures()["everything"]
	for _, l := range []model.LoRA{
		{Rank: 1, Alpha: 2, Targets: []string{"v_proj", "up_proj"}},
		{Rank: 40, Alpha: 10, Targets: []string{"down_proj", "o_proj", "k_proj"}},
	} {
		requireAdapterGradients(t, adapted(a, l, 3), "", masked(a, rows(a, 7, 36, 4), 5))
	}
}

// requireAdapterGradients compares the derivative of the loss along each tensor's
// gradient with the gradient's length.
func requireAdapterGradients(t *testing.T, c model.Checkpoint, kernelName string, batch []model.Row) {
	t.Helper()
	e := engine(kernelName, 2)
	tr := trainerOf(t, e, c)
	norm, err := tr.Update(t.Context(), batch, weighted, model.AdamW{Beta1: 0.5, Beta2: 0.5, Epsilon: 1e-8})
	require.NoError(t, err)
	g, total := tr.Checkpoint().Mean, 0.0
	for i := range g {
		for j := range g[i].Data {
			g[i].Data[j] *= 2
		}
		length := lengthOf(g[i].Data)
		total += length * length
		require.NotZero(t, length, g[i].Name)
		at := func(step float64) float64 {
			moved := c
			moved.Weights = slices.Clone(c.Weights)
			moved.Weights[i].Data = slices.Clone(c.Weights[i].Data)
			for j, x := range g[i].Data {
				moved.Weights[i].Data[j] += float32(step * float64(x) / length)
			}
			one, err := e.NewTrainer(moved)
			require.NoError(t, err)
			defer one.Close()
			return loss(t, one, batch)
		}
		central := func(h float64) float64 { return (at(h) - at(-h)) / (2 * h) }
		const h = 0.02
		slope := (4*central(h/2) - central(h)) / 3
		require.InEpsilon(t, length, slope, 0.01, "%s: |gradient| %v, finite difference %v", g[i].Name, length, slope)
	}
	require.InEpsilon(t, math.Sqrt(total), norm, 1e-5)
}

func TestDecodedLogprobsWithAnAdapterAreScoredLogprobs(t *testing.T) {
	t.Parallel()
	eachModel(t, func(t *testing.T, a model.Architecture, kernelName string) {
		c := adapted(a, lora(), 6)
		tr := trainerOf(t, engine(kernelName, 2), c)
		_, err := tr.Update(t.Context(), rows(a, 4, 20, 3), likelihood(40), adamW())
		require.NoError(t, err)
		// Another engine has its own copy of the base.
		d, err := engine(kernelName, 3).NewDecoder(tr.Checkpoint())
		require.NoError(t, err)
		t.Cleanup(d.Close)
		var wg sync.WaitGroup
		for _, r := range requests(a, 12, 8) {
			wg.Go(func() {
				got, err := d.Decode(t.Context(), r)
				if err != nil || len(got.Tokens) == 0 {
					t.Errorf("%v: %v", got, err)
					return
				}
				row := model.Row{Tokens: append(slices.Clone(r.Prompt), got.Tokens...), Temperature: r.Temperature}
				one, err := engine(kernelName, 1).NewTrainer(tr.Checkpoint())
				if err != nil {
					t.Error(err)
					return
				}
				defer one.Close()
				want, _, err := one.Score(t.Context(), []model.Row{row})
				if err != nil || !slices.Equal(bits(want[0][len(r.Prompt)-1:]), bits(got.Logprobs)) {
					t.Errorf("prompt %v: %v, scored %v: %v", r.Prompt, got.Logprobs, want, err)
				}
			})
		}
		wg.Wait()
	})
}

func TestUpdatesOfAnAdapterAreTheSameForAnyThreadsAndAfterAResume(t *testing.T) {
	t.Parallel()
	a := architectures()["everything"]
	batch := rows(a, 60, 40, 2)
	run := func(threads int, resume bool) model.Checkpoint {
		c := adapted(a, lora(), 4)
		for range 3 {
			tr := trainerOf(t, engine("", threads), c)
			updates := 3
			if resume {
				updates = 1
			}
			for range updates {
				_, err := tr.Update(t.Context(), batch, likelihood(400), adamW())
				require.NoError(t, err)
			}
			c = tr.Checkpoint()
			if !resume {
				return c
			}
		}
		return c
	}
	want := run(1, false)
	require.Equal(t, 3, want.Updates)
	require.NotEqual(t, weightBits(adapted(a, lora(), 4).Weights), weightBits(want.Weights))
	for threads := 1; threads <= 3; threads++ {
		for _, resume := range []bool{false, true} {
			got := run(threads, resume)
			require.Equal(t, weightBits(want.Weights), weightBits(got.Weights))
			require.Equal(t, weightBits(want.Variance), weightBits(got.Variance))
		}
	}
}

func TestABaseIsReadOnceForAllThatShareIt(t *testing.T) {
	t.Parallel()
	a, e := architectures()["llama"], engine("", 2)
	policy := adapted(a, lora(), 4)
	reads, each := 0, policy.Adapter.Base.Each
	policy.Adapter.Base.Each = func(use func(model.Tensor) error) error { reads++; return each(use) }
	for range 3 {
		d, err := e.NewDecoder(policy)
		require.NoError(t, err)
		t.Cleanup(d.Close)
		trainerOf(t, e, policy)
		c, err := model.CriticOf(policy)
		require.NoError(t, err)
		critic(t, e, c)
	}
	require.Equal(t, 1, reads)
}

// All weights of the critic's head are trained, in addition to the adapter.
func TestACriticWithAnAdapterLearnsReturns(t *testing.T) {
	t.Parallel()
	a := architectures()["everything"]
	start, err := model.CriticOf(adapted(a, lora(), 4))
	require.NoError(t, err)
	c := critic(t, engine("", 2), start)
	batch := rows(a, 12, 20, 7)
	for _, row := range values(t, c, batch) {
		for _, v := range row {
			require.Zero(t, v)
		}
	}
	miss := func() (sum float64) {
		for i, row := range values(t, c, batch) {
			for j, want := range counts(batch[i]) {
				sum += (float64(row[j]) - want) * (float64(row[j]) - want)
			}
		}
		return sum
	}
	before := miss()
	for range 60 {
		_, err := c.Update(t.Context(), batch, regression(batch), model.AdamW{LearningRate: 1e-2, Beta1: 0.9, Beta2: 0.99, Epsilon: 1e-8})
		require.NoError(t, err)
	}
	require.Less(t, miss(), before/4)
	moved := 0
	for i, t := range c.Checkpoint().Weights {
		if !slices.Equal(t.Data, start.Weights[i].Data) {
			moved++
		}
	}
	require.Equal(t, len(start.Weights), moved)
}

func TestGradientsOfACriticWithAnAdapterMatchFiniteDifferences(t *testing.T) {
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
	batch, e := rows(a, 5, 20, 4), engine("", 2)
	c := critic(t, e, start)
	_, err = c.Update(t.Context(), batch, weightedValues, model.AdamW{Beta1: 0.5, Beta2: 0.5, Epsilon: 1e-8})
	require.NoError(t, err)
	for i, g := range c.Checkpoint().Mean {
		length := 2 * lengthOf(g.Data)
		at := func(step float64) (total float64) {
			moved := start
			moved.Weights = slices.Clone(start.Weights)
			moved.Weights[i].Data = slices.Clone(start.Weights[i].Data)
			for j, x := range g.Data {
				moved.Weights[i].Data[j] += float32(step * 2 * float64(x) / length)
			}
			for row, vs := range values(t, critic(t, e, moved), batch) {
				gradient := make([]float32, len(vs))
				weightedValues(row, vs, gradient)
				for j, v := range vs {
					total += float64(gradient[j]) * float64(v)
				}
			}
			return total
		}
		slope := (at(0.01) - at(-0.01)) / 0.02
		require.InEpsilon(t, length, slope, 0.02, g.Name)
	}
}

func TestBadAdaptersAreRefused(t *testing.T) {
	t.Parallel()
	a := architectures()["tiny"]
	for want, spoil := range map[string]func(*model.Checkpoint){
		"rank is 0":                            func(c *model.Checkpoint) { c.Adapter.Rank = 0 },
		"alpha is -1":                          func(c *model.Checkpoint) { c.Adapter.Alpha = -1 },
		`target "lm_head"`:                     func(c *model.Checkpoint) { c.Adapter.Targets = []string{"lm_head"} },
		"tensors, want":                        func(c *model.Checkpoint) { c.Weights = c.Weights[1:] },
		"no base":                              func(c *model.Checkpoint) { c.Adapter.Base = nil },
		"its architecture is not that of base": func(c *model.Checkpoint) { c.Adapter.Base.Architecture.RopeTheta++ },
		"lora_A":                               func(c *model.Checkpoint) { c.Weights[0].Data[1] = float32(math.NaN()) },
		"embed_tokens": func(c *model.Checkpoint) {
			c.Adapter.Base.Each = model.EachOf(func() (model.Weights, error) {
				w := weights(a, 1)
				w[0].Data[0] = float32(math.Inf(1))
				return w, nil
			})
		},
		"unreadable": func(c *model.Checkpoint) {
			c.Adapter.Base.Each = func(func(model.Tensor) error) error { return fmt.Errorf("unreadable") }
		},
	} {
		c := adapted(a, lora(), 1)
		spoil(&c)
		_, err := engine("", 1).NewTrainer(c)
		require.ErrorContains(t, err, want)
		_, err = engine("", 1).NewDecoder(c)
		require.ErrorContains(t, err, want)
	}
	require.True(t, strings.HasSuffix(a.AdapterTensors(lora())[0].Name, "q_proj.lora_A.weight"))
}

// The threads of a wide model share each product, also the products with A and B.
func TestAdaptersOfAWideModelAreTheSameForAnyThreads(t *testing.T) {
	t.Parallel()
	a := model.Architecture{
		VocabSize: 24000, HiddenSize: 480, Layers: 1, Heads: 6, KVHeads: 3, HeadDim: 80, FeedForward: 704,
		MaxPositions: 64, RopeTheta: 10000, NormEpsilon: 1e-6, Tied: true,
	}
	w := a.Init(3)
	start := adapted(a, lora(), 4)
	start.Adapter.Base.Each = model.EachOf(func() (model.Weights, error) { return w, nil })
	batch := rows(a, 6, 40, 2)
	var want []string
	for threads := 1; threads <= 3; threads++ {
		e := engine("", threads)
		tr := trainerOf(t, e, start)
		for range 2 {
			_, err := tr.Update(t.Context(), batch, likelihood(100), adamW())
			require.NoError(t, err)
		}
		c := tr.Checkpoint()
		if want == nil {
			want = weightBits(c.Weights)
		}
		require.Equal(t, want, weightBits(c.Weights))
		d, err := e.NewDecoder(c)
		require.NoError(t, err)
		t.Cleanup(d.Close)
		got, err := d.Decode(t.Context(), model.DecodeRequest{Prompt: []int32{5, 7, 11}, MaxTokens: 6, Temperature: 1, Seed: 3})
		require.NoError(t, err)
		scored, _ := score(t, tr, []model.Row{{Tokens: append([]int32{5, 7, 11}, got.Tokens...)}})
		require.Equal(t, bits(scored[0][2:]), bits(got.Logprobs))
	}
}
