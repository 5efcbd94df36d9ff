package native_test

import (
	"cmp"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/model"
)

// tokenLoRA returns the numbers of an adapter that also trains rows of tokens, whose order
// is not that of their ids.
func tokenLoRA() model.LoRA {
	l := lora()
	l.Tokens = []int32{7, 3, 12, 5}
	return l
}

// withTokens returns rows in which some trained tokens are read and chosen.
func withTokens(batch []model.Row) []model.Row {
	out := slices.Clone(batch)
	for i, row := range out {
		row.Tokens = slices.Clone(row.Tokens)
		for j := range row.Tokens {
			if (i+j)%5 == 0 {
				row.Tokens[j] = tokenLoRA().Tokens[(i+j)/5%4]
			}
		}
		out[i] = row
	}
	return out
}

func TestNewRowsOfTokensChangeNothing(t *testing.T) {
	t.Parallel()
	eachModel(t, func(t *testing.T, a model.Architecture, kernelName string) {
		batch, e := withTokens(rows(a, 9, 40, 2)), engine(kernelName, 2)
		c := adapted(a, tokenLoRA(), 1)
		var err error
		c.Weights, err = c.Adapter.Init(a, 1)
		require.NoError(t, err)
		got, _ := score(t, trainerOf(t, e, c), batch)
		want, _ := score(t, trainer(t, e, a, weights(a, 1)), batch)
		for i := range want {
			require.Equal(t, bits(want[i]), bits(got[i]))
		}
	})
}

func TestLogprobsWithTrainedTokensAreThoseOfTheMergedWeights(t *testing.T) {
	t.Parallel()
	eachModel(t, func(t *testing.T, a model.Architecture, kernelName string) {
		c := adapted(a, tokenLoRA(), 1)
		merged, err := c.Merged()
		require.NoError(t, err)
		ref := newReference(a, merged)
		tr := trainerOf(t, engine(kernelName, 2), c)
		for _, row := range withTokens(rows(a, 6, 40, 2)) {
			got, _ := score(t, tr, []model.Row{row})
			want := ref.logprobs(row.Tokens, cmp.Or(row.Temperature, 1))
			for i := range want {
				require.InDelta(t, want[i], got[0][i], 2e-4)
			}
		}
	})
}

func TestGradientsOfTrainedTokensMatchFiniteDifferences(t *testing.T) {
	arithmetic(t)
	t.Parallel()
	eachModel(t, func(t *testing.T, a model.Architecture, kernelName string) {
		requireAdapterGradients(t, adapted(a, tokenLoRA(), 3), kernelName, withTokens(rows(a, 7, 36, 4)))
	})
}

func TestGradientsOfTrainedTokensLeaveOutMaskedPositions(t *testing.T) {
	t.Parallel()
	a := architectures()["everything"]
	requireAdapterGradients(t, adapted(a, tokenLoRA(), 3), "", masked(a, withTokens(rows(a, 7, 36, 4)), 5))
}

func TestDecodedLogprobsOfTrainedTokensAreScoredLogprobs(t *testing.T) {
	t.Parallel()
	eachModel(t, func(t *testing.T, a model.Architecture, kernelName string) {
		tr := trainerOf(t, engine(kernelName, 2), adapted(a, tokenLoRA(), 6))
		_, err := tr.Update(t.Context(), withTokens(rows(a, 4, 20, 3)), likelihood(40), adamW())
		require.NoError(t, err)
		d, err := engine(kernelName, 3).NewDecoder(tr.Checkpoint())
		require.NoError(t, err)
		t.Cleanup(d.Close)
		for _, r := range requests(a, 6, 8) {
			r.Prompt = append(slices.Clone(r.Prompt), tokenLoRA().Tokens...)
			got, err := d.Decode(t.Context(), r)
			require.NoError(t, err)
			row := model.Row{Tokens: append(slices.Clone(r.Prompt), got.Tokens...), Temperature: r.Temperature}
			want, _ := score(t, tr, []model.Row{row})
			require.Equal(t, bits(want[0][len(r.Prompt)-1:]), bits(got.Logprobs))
		}
	})
}

// The threads of a wide model share each product. In a smaller one each thread takes its
// own shards.
func TestUpdatesOfTrainedTokensAreTheSameForAnyThreadsAndAfterAResume(t *testing.T) {
	t.Parallel()
	wide := model.Architecture{
		VocabSize: 24000, HiddenSize: 480, Layers: 1, Heads: 6, KVHeads: 3, HeadDim: 80, FeedForward: 704,
		MaxPositions: 64, RopeTheta: 10000, NormEpsilon: 1e-6, Tied: true,
	}
	for name, a := range map[string]model.Architecture{"small": architectures()["everything"], "wide": wide} {
		start := adapted(a, tokenLoRA(), 4)
		batch := withTokens(rows(a, 20, 40, 2))
		run := func(threads int, resume bool) model.Checkpoint {
			tr := trainerOf(t, engine("", threads), start)
			for range 2 {
				_, err := tr.Update(t.Context(), batch, likelihood(100), adamW())
				require.NoError(t, err)
				if resume {
					tr = trainerOf(t, engine("", threads), tr.Checkpoint())
				}
			}
			return tr.Checkpoint()
		}
		want := run(1, false)
		for threads := 1; threads <= 3; threads++ {
			got := run(threads, threads > 1)
			require.Equal(t, weightBits(want.Weights), weightBits(got.Weights), name)
			require.Equal(t, weightBits(want.Variance), weightBits(got.Variance), name)
		}
	}
}

// Two tokens whose rows of the output layer are equal have equal probabilities after any
// text, whatever an adapter of the linear layers learns.
func TestAnAdapterLearnsToTellTokensWithEqualRowsApart(t *testing.T) {
	t.Parallel()
	for _, tied := range []bool{true, false} {
		a := model.Tiny(40)
		a.Tied = tied
		w := a.Init(1)
		table := w[len(w)-1]
		if tied {
			table = w[0]
		}
		copy(table.Data[9*a.HiddenSize:10*a.HiddenSize], table.Data[8*a.HiddenSize:9*a.HiddenSize])
		row := model.Row{Tokens: []int32{1, 2, 3, 9, 4, 9}}
		learn := func(tokens []int32) (chance float32) {
			l := model.LoRA{Rank: 8, Alpha: 16, Targets: model.LoRATargets(), Tokens: tokens}
			base := &model.Base{Digest: "equal rows", Architecture: a, Each: model.EachOf(func() (model.Weights, error) { return w, nil })}
			c := model.Checkpoint{Architecture: a, Adapter: &model.Adapter{LoRA: l, Base: base}}
			var err error
			c.Weights, err = c.Adapter.Init(a, 1)
			require.NoError(t, err)
			tr := trainerOf(t, engine("", 2), c)
			for range 60 {
				_, err := tr.Update(t.Context(), []model.Row{row}, likelihood(5), model.AdamW{LearningRate: 0.01, Beta1: 0.9, Beta2: 0.99, Epsilon: 1e-8})
				require.NoError(t, err)
			}
			got, _ := score(t, tr, []model.Row{row})
			return got[0][2]
		}
		require.Less(t, learn(nil), float32(-0.69), "at most one half")
		require.Greater(t, learn([]int32{9}), float32(-0.1))
	}
}

func TestACriticTrainsTheRowsThatItReads(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"tiny", "everything"} {
		a := architectures()[name]
		start, err := model.CriticOf(adapted(a, tokenLoRA(), 4))
		require.NoError(t, err)
		c := critic(t, engine("", 2), start)
		batch := withTokens(rows(a, 12, 20, 7))
		for range 3 { // the head is zero before the first update
			_, err := c.Update(t.Context(), batch, regression(batch), model.AdamW{LearningRate: 1e-2, Beta1: 0.9, Beta2: 0.99, Epsilon: 1e-8})
			require.NoError(t, err)
		}
		for i, w := range c.Checkpoint().Weights {
			require.NotEqual(t, start.Weights[i].Data, w.Data, w.Name)
		}
	}
}

func TestTokensThatCannotBeTrainedAreRefused(t *testing.T) {
	t.Parallel()
	a := architectures()["tiny"]
	a.Unused = "11"
	for want, tokens := range map[string][]int32{
		"trainable_tokens has 3 twice":                    {3, 3},
		"trainable_tokens has -1, want ids":               {-1},
		"trainable_tokens has 100000, but the vocabulary": {100000},
		"trainable_tokens has 11, an id without a token":  {11},
		"trainable_tokens has 1025 tokens, want at most":  make([]int32, 1025),
	} {
		c := adapted(a, lora(), 1)
		c.Adapter.Tokens = tokens
		_, err := engine("", 1).NewTrainer(c)
		require.ErrorContains(t, err, want)
	}
}
