package native_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/engine/native"
)

// wideModel returns a model just large enough that threads share its products.
func wideModel() model.Architecture {
	return model.Architecture{
		VocabSize: 20011, HiddenSize: 272, Layers: 2, Heads: 4, KVHeads: 2, HeadDim: 34, FeedForward: 530,
		MaxPositions: 400, RopeTheta: 10000, NormEpsilon: 1e-6, QKVBias: true, QKNorm: true,
	}
}

// architecturesAndWide returns architectures, and wideModel as "wide".
func architecturesAndWide() map[string]model.Architecture {
	all := architectures()
	all["wide"] = wideModel()
	return all
}

// Shared products are the same for any number of threads, and agree with the reference.
func TestThreadsShareTheProductsOfAWideModel(t *testing.T) {
	t.Parallel()
	a := wideModel()
	w := a.Init(1)
	batch := append(masked(a, rows(a, 5, 40, 3), 4), longRow(a, 290))
	var want []string
	var scored [][]float32
	for _, threads := range []int{1, 2, 5} {
		tr := trainer(t, engine("", threads), a, w)
		scored, _ = score(t, tr, batch)
		_, err := tr.Update(t.Context(), batch, likelihood(500), adamW())
		require.NoError(t, err)
		c := tr.Checkpoint()
		have := append(weightBits(c.Weights), weightBits(c.Mean)...)
		for _, logprobs := range scored {
			have = append(have, digest(logprobs))
		}
		if want == nil {
			want = have
		}
		require.Equal(t, want, have, "%d threads", threads)
	}
	short := batch[0]
	short.Allowed = nil
	logprobs, _ := score(t, trainer(t, engine("", 2), a, w), []model.Row{short})
	for j, want := range newReference(a, w).logprobs(short.Tokens, 1) {
		require.InDelta(t, want, logprobs[0][j], 1e-4, "position %d", j)
	}
}

func TestAWideModelDecodesWhatItScores(t *testing.T) {
	t.Parallel()
	a := wideModel()
	w := a.Init(1)
	tr, all := trainer(t, engine("", 2), a, w), requests(a, 12, 7)
	d, alone := decoder(t, engine("", 3), a, w), decoder(t, engine("", 1), a, w)
	completions := make([]model.Completion, len(all))
	t.Run("together", func(t *testing.T) {
		for i, r := range all {
			t.Run("", func(t *testing.T) {
				t.Parallel()
				c, err := d.Decode(t.Context(), r)
				require.NoError(t, err)
				completions[i] = c
			})
		}
	})
	for i, r := range all {
		c := completions[i]
		whole := model.Row{Tokens: append(append([]int32{}, r.Prompt...), c.Tokens...), Temperature: r.Temperature}
		logprobs, _ := score(t, tr, []model.Row{whole})
		require.Equal(t, bits(logprobs[0][len(r.Prompt)-1:]), bits(c.Logprobs))
		if i%4 == 1 {
			again, err := alone.Decode(t.Context(), r)
			require.NoError(t, err)
			require.Equal(t, c, again)
		}
	}
}

// Saving memory changes no bit: neither computing activations again, nor computing logits
// some positions at a time.
func TestWhatIsComputedAgainIsTheSame(t *testing.T) {
	t.Parallel()
	for name, a := range architecturesAndWide() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a.MaxPositions = 700
			batch := append(masked(a, rows(a, 9, 60, 3), 4), rows(a, 9, 60, 5)...)
			if name != "wide" {
				batch = append(batch, longRow(a, 300))
			}
			var want []string
			w := weights(a, 1)
			for _, saves := range []bool{false, true} {
				tr := trainer(t, engine("", 2), a, w)
				if saves {
					native.KeepActivations(tr, 0)
					native.LimitLogits(tr, 50*a.VocabSize)
				}
				_, err := tr.Update(t.Context(), batch, likelihood(1000), adamW())
				require.NoError(t, err)
				logprobs, _ := score(t, tr, batch)
				have := weightBits(tr.Checkpoint().Weights)
				for _, l := range logprobs {
					have = append(have, digest(l))
				}
				if !saves {
					want = have
				}
				require.Equal(t, want, have)
			}
		})
	}
}

// Threads also share an adapter's products.
func TestThreadsShareTheAdapterOfAWideModel(t *testing.T) {
	t.Parallel()
	c := adapted(wideModel(), lora(), 1)
	batch := append([]model.Row{longRow(c.Architecture, 30)}, rows(c.Architecture, 5, 40, 3)...)
	logprobs, _ := score(t, trainerOf(t, engine("", 1), c), batch)
	d, err := engine("", 3).NewDecoder(c)
	require.NoError(t, err)
	defer d.Close()
	scored, err := d.(model.Scorer).Score(t.Context(), batch[0].Tokens[:1], batch[0].Tokens[1:])
	require.NoError(t, err)
	require.Equal(t, bits(logprobs[0]), bits(scored))
	var want []string
	for _, threads := range []int{1, 2, 5} {
		tr := trainerOf(t, engine("", threads), c)
		_, err := tr.Update(t.Context(), batch, likelihood(100), adamW())
		require.NoError(t, err)
		have := tr.Checkpoint()
		all := append(weightBits(have.Weights), weightBits(have.Mean)...)
		if want == nil {
			want = all
		}
		require.Equal(t, want, all, "%d threads", threads)
	}
}

func TestGradientsOfAWideAdapterMatchFiniteDifferences(t *testing.T) {
	arithmetic(t)
	t.Parallel()
	c := adapted(wideModel(), model.LoRA{Rank: 3, Alpha: 5, Targets: []string{"k_proj", "down_proj"}}, 1)
	requireAdapterGradients(t, c, "", rows(c.Architecture, 2, 20, 4))
}
