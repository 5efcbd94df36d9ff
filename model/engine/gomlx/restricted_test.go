package gomlx_test

import (
	"context"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/engine/gomlx"
)

// turns allows different tokens in each turn: in every fourth turn only one, in every
// fifth all. It ends the reply after last tokens.
type turns struct {
	vocab, last int
	seen        []int32
	sets        []model.TokenSet
}

func (c *turns) Allowed(set model.TokenSet) bool {
	n := len(c.seen)
	if n%5 == 4 {
		c.sets = append(c.sets, nil)
		return false
	}
	set.Add(int32(n * n % c.vocab))
	for j := 0; j < 5 && n%4 != 3; j++ {
		set.Add(int32((3*n + 2*j) % c.vocab))
	}
	c.sets = append(c.sets, slices.Clone(set))
	return true
}

func (c *turns) Accept(token int32) bool {
	c.seen = append(c.seen, token)
	return len(c.seen) == c.last
}

func TestConstrainedDecodingAgreesWithMaskedScoring(t *testing.T) {
	t.Parallel()
	a := small()
	d, tr := decoder(t, gomlx.Options{}, a), trainer(t, engine(t, gomlx.Options{}), a)
	var group errgroup.Group // plain requests and constrained ones share batches
	for i := range 12 {
		group.Go(func() error {
			_, err := d.Decode(t.Context(), model.DecodeRequest{Prompt: []int32{1, 2}, MaxTokens: 20, Temperature: 1, Seed: uint64(i)})
			return err
		})
	}
	completions, constraints := make([]model.Completion, 9), make([]*turns, 9)
	emitted := make([][]int32, len(completions))
	request := func(i int) model.DecodeRequest {
		return model.DecodeRequest{
			Prompt: []int32{int32(i), 5, 7}, MaxTokens: 30, Temperature: []float64{0, 1, 0.6}[i%3], Seed: uint64(i), Constraint: constraints[i],
			Emit: func(token int32, _ float32) { emitted[i] = append(emitted[i], token) },
		}
	}
	for i := range completions {
		constraints[i] = &turns{vocab: a.VocabSize, last: 16}
		group.Go(func() (err error) {
			completions[i], err = d.Decode(t.Context(), request(i))
			return err
		})
	}
	require.NoError(t, group.Wait())
	for i, c := range completions {
		require.Len(t, c.Tokens, 16)
		require.Equal(t, "stop", c.Finish)
		require.Equal(t, c.Tokens, constraints[i].seen)
		require.Equal(t, c.Tokens, emitted[i])
		for j, set := range constraints[i].sets {
			require.True(t, set == nil || set.Has(c.Tokens[j]))
			require.Equal(t, j%4 == 3 && j%5 != 4, c.Forced[j], "token %d", j)
		}
		r := request(i)
		row := model.Row{Tokens: append(slices.Clone(r.Prompt), c.Tokens...), Temperature: r.Temperature}
		row.Allowed = append(make([]model.TokenSet, len(r.Prompt)-1), constraints[i].sets...)
		logprobs, _, err := tr.Score(t.Context(), []model.Row{row})
		require.NoError(t, err)
		require.InDeltaSlice(t, logprobs[0][len(r.Prompt)-1:], c.Logprobs, 1e-5)
	}
}

func TestMaskedProbabilitiesSumToOne(t *testing.T) {
	t.Parallel()
	a := small()
	tr := trainer(t, engine(t, gomlx.Options{}), a)
	allowed := []int32{0, 4, 12}
	set := model.NewTokenSet(a.VocabSize)
	for _, token := range allowed {
		set.Add(token)
	}
	sum, entropy := 0.0, 0.0
	var last float32
	for _, token := range allowed {
		r := model.Row{Tokens: []int32{1, 5, token}, Temperature: 0.7, Allowed: []model.TokenSet{nil, set}}
		logprobs, entropies, err := tr.Score(t.Context(), []model.Row{r})
		require.NoError(t, err)
		p := math.Exp(float64(logprobs[0][1]))
		sum, entropy, last = sum+p, entropy-p*float64(logprobs[0][1]), entropies[0][1]
	}
	require.InDelta(t, 1, sum, 1e-5)
	require.InDelta(t, entropy, last, 1e-5)
}

func TestSetsThatCannotBeAreRefused(t *testing.T) {
	t.Parallel()
	a := small()
	tr, d := trainer(t, engine(t, gomlx.Options{}), a), decoder(t, gomlx.Options{}, a)
	for want, sets := range map[string][]model.TokenSet{"1 allowed sets": {nil}, "token 2 is 3": {nil, model.NewTokenSet(a.VocabSize)}} {
		_, _, err := tr.Score(t.Context(), []model.Row{{Tokens: []int32{1, 2, 3}, Allowed: sets}})
		require.ErrorContains(t, err, want)
	}
	_, err := d.Decode(t.Context(), model.DecodeRequest{Prompt: []int32{1}, MaxTokens: 3, Constraint: nothing{}})
	require.ErrorIs(t, err, model.ErrForm)
	_, err = d.Decode(t.Context(), model.DecodeRequest{Prompt: []int32{1}, MaxTokens: 3, TopP: 1.5})
	require.ErrorContains(t, err, "top_p")
	// The batch continues.
	_, err = d.Decode(t.Context(), model.DecodeRequest{Prompt: []int32{1}, MaxTokens: 3})
	require.NoError(t, err)
}

// nothing allows no token.
type nothing struct{}

func (nothing) Allowed(model.TokenSet) bool { return true }
func (nothing) Accept(int32) bool           { return false }

func TestNoTokenIsEmittedAfterDecodeHasReturned(t *testing.T) {
	t.Parallel()
	a := small()
	a.MaxPositions = 4000
	d := decoder(t, gomlx.Options{Capacity: 1}, a)
	ctx, cancel := context.WithCancel(t.Context())
	emitted, returned := 0, make(chan struct{})
	_, err := d.Decode(ctx, model.DecodeRequest{Prompt: []int32{1}, MaxTokens: 3999, Emit: func(int32, float32) {
		select {
		case <-returned:
			panic("a token was emitted after Decode had returned")
		default:
		}
		emitted++
		cancel()
	}})
	close(returned)
	require.ErrorIs(t, err, context.Canceled)
	require.Positive(t, emitted)
	_, err = d.Decode(t.Context(), model.DecodeRequest{Prompt: []int32{1}, MaxTokens: 3})
	require.NoError(t, err)
}
