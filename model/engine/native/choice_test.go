package native_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/engine/native"
)

// walk is a constraint whose sets depend on the tokens so far: sometimes all tokens,
// sometimes one, mostly a few. It ends the reply after last tokens, or never if last is
// 0.
type walk struct {
	vocab, last int
	seed        uint64
	seen        []int32
	sets        []model.TokenSet // that it allowed
}

func (w *walk) Allowed(set model.TokenSet) bool {
	r := rand.New(rand.NewPCG(w.seed, uint64(len(w.seen))))
	for _, token := range w.seen {
		r = rand.New(rand.NewPCG(r.Uint64(), uint64(token)))
	}
	if r.IntN(4) == 0 {
		w.sets = append(w.sets, nil)
		return false
	}
	for range 1 + r.IntN(4)*r.IntN(4) {
		set.Add(int32(r.IntN(w.vocab)))
	}
	w.sets = append(w.sets, slices.Clone(set))
	return true
}

func (w *walk) Accept(token int32) bool {
	w.seen = append(w.seen, token)
	return len(w.seen) == w.last
}

// fixed is a constraint that always allows the same tokens.
type fixed []int32

func (f fixed) Allowed(set model.TokenSet) bool {
	for _, token := range f {
		set.Add(token)
	}
	return true
}

func (fixed) Accept(int32) bool { return false }

func everyToken(a model.Architecture) []int32 {
	all := make([]int32, a.VocabSize)
	for i := range all {
		all[i] = int32(i)
	}
	return all
}

// restrictedRequests returns n requests: two in three are constrained, and half draw from
// a nucleus.
func restrictedRequests(a model.Architecture, n int, seed uint64) []model.DecodeRequest {
	all := requests(a, n, seed)
	for i := range all {
		if i%3 > 0 {
			all[i].Constraint = &walk{vocab: a.VocabSize, seed: uint64(i), last: i % 7 * 5}
		}
		if i%2 > 0 {
			all[i].TopP = 0.6
		}
	}
	return all
}

func TestConstrainedCompletionKeepsToItsSets(t *testing.T) {
	t.Parallel()
	eachModel(t, func(t *testing.T, a model.Architecture, kernelName string) {
		d := decoder(t, engine(kernelName, 2), a, weights(a, 1))
		forced := 0
		for i, r := range requests(a, 40, 12) {
			w := &walk{vocab: a.VocabSize, seed: uint64(i)}
			r.Constraint = w
			c, err := d.Decode(t.Context(), r)
			require.NoError(t, err)
			require.Equal(t, c.Tokens, w.seen, "each token is accepted once, in order")
			for j, set := range w.sets {
				alone := set != nil && len(set.AppendTokens(nil, a.VocabSize)) == 1
				require.True(t, set == nil || set.Has(c.Tokens[j]))
				require.Equal(t, alone, c.Forced != nil && c.Forced[j])
				if alone {
					forced++
					require.Zero(t, c.Logprobs[j])
				}
			}
		}
		require.Positive(t, forced)
	})
}

// The log-probabilities that a decoder reports for a constrained sample are those that
// training will compute.
func TestMaskedLogprobsAreScoredLogprobs(t *testing.T) {
	t.Parallel()
	eachModel(t, func(t *testing.T, a model.Architecture, kernelName string) {
		w := weights(a, 1)
		tr, d := trainer(t, engine(kernelName, 2), a, w), decoder(t, engine(kernelName, 2), a, w)
		for i, r := range requests(a, 40, 13) {
			constraint := &walk{vocab: a.VocabSize, seed: uint64(i)}
			r.Constraint = constraint
			c, err := d.Decode(t.Context(), r)
			require.NoError(t, err)
			whole := model.Row{Tokens: append(slices.Clone(r.Prompt), c.Tokens...), Temperature: r.Temperature}
			whole.Allowed = append(make([]model.TokenSet, len(r.Prompt)-1), constraint.sets...)
			logprobs, _ := score(t, tr, []model.Row{whole})
			require.Equal(t, bits(logprobs[0][len(r.Prompt)-1:]), bits(c.Logprobs))
		}
	})
}

func TestRestrictedCompletionIsTheSameInAnyCompany(t *testing.T) {
	t.Parallel()
	eachModel(t, func(t *testing.T, a model.Architecture, kernelName string) {
		solo := decoder(t, engine(kernelName, 1), a, weights(a, 1))
		var want []model.Completion
		for _, r := range restrictedRequests(a, 64, 2) {
			c, err := solo.Decode(t.Context(), r)
			require.NoError(t, err)
			want = append(want, c)
		}
		busy := decoder(t, native.New(native.Options{Threads: 3, MaxBatch: 17, Kernel: kernelName}), a, weights(a, 1))
		have, errs := make([]model.Completion, len(want)), make([]error, len(want))
		var done sync.WaitGroup
		for i, r := range restrictedRequests(a, 64, 2) {
			done.Go(func() { have[i], errs[i] = busy.Decode(t.Context(), r) })
		}
		done.Wait()
		for i := range want {
			require.NoError(t, errs[i])
			require.Equal(t, bits(want[i].Logprobs), bits(have[i].Logprobs))
			require.Equal(t, want[i], have[i])
		}
	})
}

func TestASetOfAllTokensIsNoRestriction(t *testing.T) {
	t.Parallel()
	eachModel(t, func(t *testing.T, a model.Architecture, kernelName string) {
		d := decoder(t, engine(kernelName, 2), a, weights(a, 1))
		for _, r := range requests(a, 12, 5) {
			free, err := d.Decode(t.Context(), r)
			require.NoError(t, err)
			r.Constraint, r.TopP = fixed(everyToken(a)), 1
			same, err := d.Decode(t.Context(), r)
			require.NoError(t, err)
			require.Equal(t, free, same)
		}
		plain, full := rows(a, 9, 40, 4), rows(a, 9, 40, 4)
		for i := range full {
			full[i].Allowed = make([]model.TokenSet, len(full[i].Tokens)-1)
			for t := range full[i].Allowed {
				full[i].Allowed[t] = setOf(a, everyToken(a))
			}
		}
		require.Equal(t, trained(t, a, kernelName, plain), trained(t, a, kernelName, full))
	})
}

func setOf(a model.Architecture, tokens []int32) model.TokenSet {
	set := model.NewTokenSet(a.VocabSize)
	for _, token := range tokens {
		set.Add(token)
	}
	return set
}

// trained returns the bits of the weights after one update.
func trained(t *testing.T, a model.Architecture, kernelName string, batch []model.Row) []string {
	tr := trainer(t, engine(kernelName, 2), a, weights(a, 1))
	_, err := tr.Update(t.Context(), batch, weighted, adamW())
	require.NoError(t, err)
	return weightBits(tr.Checkpoint().Weights)
}

func TestMaskedScoreIsThatOfTheDistributionOverTheSet(t *testing.T) {
	t.Parallel()
	a := architectures()["qwen2"]
	tr := trainer(t, engine("", 2), a, weights(a, 1))
	allowed := []int32{2, 3, 17, 40}
	var free, masked []model.Row
	for _, token := range allowed {
		r := model.Row{Tokens: []int32{5, 9, token}, Temperature: 0.7}
		free = append(free, r)
		r.Allowed = []model.TokenSet{nil, setOf(a, allowed)}
		masked = append(masked, r)
	}
	whole, _ := score(t, tr, free)
	part, entropies := score(t, tr, masked)
	sum, entropy := 0.0, 0.0
	for i := range allowed {
		require.Equal(t, whole[i][0], part[i][0], "a position without a set is not restricted")
		sum += math.Exp(float64(whole[i][1]))
	}
	for i := range allowed {
		l := float64(whole[i][1]) - math.Log(sum)
		require.InDelta(t, l, part[i][1], 1e-5)
		entropy -= l * math.Exp(l)
	}
	require.InDelta(t, entropy, entropies[0][1], 1e-5)
}

// In a model whose output layer is not tied to the embedding, the row of a token that no
// position may choose has no gradient.
func TestExcludedTokensDoNotTrain(t *testing.T) {
	t.Parallel()
	a := architectures()["llama"]
	allowed := []int32{4, 30, 36}
	row := model.Row{Tokens: []int32{1, 4, 36, 30, 4}, Allowed: make([]model.TokenSet, 4)}
	for i := range row.Allowed {
		row.Allowed[i] = setOf(a, allowed)
	}
	g, _ := gradients(t, a, weights(a, 3), "", []model.Row{row})
	head := g[len(g)-1]
	require.Equal(t, "lm_head.weight", head.Name)
	for token := range a.VocabSize {
		sum := 0.0
		for _, x := range head.Data[token*a.HiddenSize : (token+1)*a.HiddenSize] {
			sum += math.Abs(float64(x))
		}
		require.Equal(t, slices.Contains(allowed, int32(token)), sum > 0, "token %d", token)
	}
}

func TestConstraintEndsACompletion(t *testing.T) {
	t.Parallel()
	a := architectures()["tiny"]
	d := decoder(t, engine("", 1), a, weights(a, 1))
	r := model.DecodeRequest{Prompt: []int32{1}, MaxTokens: 20, Temperature: 1, Constraint: &walk{vocab: a.VocabSize, last: 6}}
	c, err := d.Decode(t.Context(), r)
	require.NoError(t, err)
	require.Equal(t, "stop", c.Finish)
	require.Len(t, c.Tokens, 6)
	r.MaxTokens, r.Constraint = 6, &walk{vocab: a.VocabSize, last: 6}
	c, err = d.Decode(t.Context(), r)
	require.NoError(t, err)
	require.Equal(t, "stop", c.Finish, "the reply is whole, though no further token was to be had")
	r.MaxTokens, r.Constraint = 5, &walk{vocab: a.VocabSize, last: 6}
	c, err = d.Decode(t.Context(), r)
	require.NoError(t, err)
	require.Equal(t, "length", c.Finish)
}

// dead allows a token at each of three positions and then none.
type dead struct{ n int }

func (d *dead) Allowed(set model.TokenSet) bool {
	if d.n < 3 {
		set.Add(7)
	}
	return true
}

func (d *dead) Accept(int32) bool { d.n++; return false }

func TestAFormThatAllowsNothingIsAnError(t *testing.T) {
	t.Parallel()
	a := architectures()["tiny"]
	d := decoder(t, engine("", 1), a, weights(a, 1))
	for _, temperature := range []float64{0, 1} {
		_, err := d.Decode(t.Context(), model.DecodeRequest{Prompt: []int32{1}, MaxTokens: 9, Temperature: temperature, Constraint: &dead{}})
		require.ErrorIs(t, err, model.ErrForm)
		require.ErrorContains(t, err, "no token of the vocabulary after 3 tokens")
	}
	// A set that has only tokens outside the model's vocabulary allows none.
	_, err := d.Decode(t.Context(), model.DecodeRequest{Prompt: []int32{1}, MaxTokens: 9, Constraint: fixed{int32(a.VocabSize) + 1}})
	require.ErrorIs(t, err, model.ErrForm)
}

func TestNucleusHoldsTheLikeliestTokens(t *testing.T) {
	t.Parallel()
	a := model.Tiny(32)
	tr, d := trainer(t, engine("", 1), a, weights(a, 1)), decoder(t, engine("", 1), a, weights(a, 1))
	const temperature, topP, draws = 6, 0.5, 3000
	chances := make([]float64, a.VocabSize)
	for v := range chances {
		l, _ := score(t, tr, []model.Row{{Tokens: []int32{1, 2, int32(v)}, Temperature: temperature}})
		chances[v] = math.Exp(float64(l[0][1]))
	}
	order := everyToken(a)
	slices.SortFunc(order, func(i, j int32) int {
		if chances[i] > chances[j] {
			return -1
		}
		return 1
	})
	n, sum := 0, 0.0
	for sum < topP {
		sum += chances[order[n]]
		n++
	}
	require.Greater(t, n, 1)
	counts := map[int32]float64{}
	for seed := range uint64(draws) {
		c, err := d.Decode(t.Context(), model.DecodeRequest{Prompt: []int32{1, 2}, MaxTokens: 1, Temperature: temperature, TopP: topP, Seed: seed})
		require.NoError(t, err)
		counts[c.Tokens[0]]++
		require.InDelta(t, math.Log(chances[c.Tokens[0]]/sum), c.Logprobs[0], 1e-5)
	}
	require.Len(t, counts, n)
	for _, token := range order[:n] {
		p := chances[token] / sum
		require.InDelta(t, p, counts[token]/draws, 4*math.Sqrt(p*(1-p)/draws)+1e-3, "token %d", token)
	}
	greedy := model.DecodeRequest{Prompt: []int32{1, 2}, MaxTokens: 9}
	whole, err := d.Decode(t.Context(), greedy)
	require.NoError(t, err)
	greedy.TopP = 0.1
	same, err := d.Decode(t.Context(), greedy)
	require.NoError(t, err)
	require.Equal(t, whole, same, "nothing is drawn, so nothing is left out")
	for _, p := range []float64{-0.1, 1.1, math.NaN()} {
		greedy.TopP = p
		_, err := d.Decode(t.Context(), greedy)
		require.ErrorIs(t, err, model.ErrRow)
	}
}

func TestBadSetsAreRefused(t *testing.T) {
	t.Parallel()
	a := architectures()["tiny"]
	tr := trainer(t, engine("", 1), a, a.Init(1))
	for want, sets := range map[string][]model.TokenSet{
		"1 allowed sets for 3 tokens": {nil},
		"token 2 is 3":                {nil, setOf(a, []int32{2, 4})},
		"token 1 is 2":                {{}, nil},
	} {
		batch := []model.Row{{Tokens: []int32{1, 2}}, {Tokens: []int32{1, 2, 3}, Allowed: sets}}
		_, _, err := tr.Score(t.Context(), batch)
		require.ErrorIs(t, err, model.ErrRow)
		require.ErrorContains(t, err, "row 1")
		require.ErrorContains(t, err, want)
	}
}
