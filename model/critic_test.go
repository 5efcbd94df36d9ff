package model_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/model"
)

func TestACriticBeginsAsItsPolicyUnderAHeadOfZeros(t *testing.T) {
	t.Parallel()
	for _, tied := range []bool{true, false} {
		a := model.Tiny(20)
		a.Tied = tied
		policy := model.Checkpoint{Architecture: a, Weights: a.Init(7), Updates: 3, Mean: a.Zeros(), Variance: a.Zeros()}
		c, err := model.CriticOf(policy)
		require.NoError(t, err)
		require.NoError(t, c.Architecture.CheckCritic())
		require.NoError(t, c.Architecture.Match(c.Weights))
		require.Zero(t, c.Updates)
		require.Nil(t, c.Mean)
		trunk := len(c.Weights) - 2
		for i, w := range c.Weights[:trunk] {
			require.Equal(t, policy.Weights[i], w)
		}
		for _, w := range c.Weights[trunk:] {
			require.Equal(t, make([]float32, w.Size()), w.Data, w.Name)
		}
		require.NotContains(t, names(c.Weights), "lm_head.weight")
		require.Equal(t, c.Weights[trunk:], c.Architecture.Init(1)[trunk:], "a head is drawn as zeros too")

		_, err = model.CriticOf(c)
		require.ErrorIs(t, err, model.ErrArchitecture)
		policy.Weights = policy.Weights[1:]
		_, err = model.CriticOf(policy)
		require.ErrorIs(t, err, model.ErrArchitecture)
	}
}

func names(w model.Weights) []string {
	out := make([]string, len(w))
	for i, t := range w {
		out[i] = t.Name
	}
	return out
}

func TestPoliciesAndCriticsAreNotTakenForEachOther(t *testing.T) {
	t.Parallel()
	a := model.Tiny(20)
	require.NoError(t, a.CheckPolicy())
	require.ErrorIs(t, a.CheckCritic(), model.ErrArchitecture)
	a.ValueHead = true
	require.NoError(t, a.CheckCritic())
	require.ErrorIs(t, a.CheckPolicy(), model.ErrArchitecture)
	a.Layers = 0
	require.ErrorContains(t, a.CheckCritic(), "layers")
}

func TestBadValuesAreRefusedByToken(t *testing.T) {
	t.Parallel()
	good := func() model.Values {
		return model.Values{Policy: "critic", Version: 2, Calls: [][][]float32{{{0, 1}, {}}, {}, {{2}}}}
	}
	require.NoError(t, good().Check())
	for want, spoil := range map[string]func(*model.Values){
		"policy is empty":                     func(v *model.Values) { v.Policy = "" },
		"version is -1":                       func(v *model.Values) { v.Version = -1 },
		"trajectory 0 call 0 token 1 is NaN":  func(v *model.Values) { v.Calls[0][0][1] = float32(math.NaN()) },
		"trajectory 2 call 0 token 0 is +Inf": func(v *model.Values) { v.Calls[2][0][0] = float32(math.Inf(1)) },
	} {
		v := good()
		spoil(&v)
		require.ErrorIs(t, v.Check(), model.ErrValues, want)
		require.ErrorContains(t, v.Check(), want)
	}
}

func TestReturnsAreOfTrainedTokensAndOfAllRows(t *testing.T) {
	t.Parallel()
	returned := func() model.Batch {
		b := batch()
		for i, r := range b.Rows {
			b.Rows[i].Returns = make([]float32, len(r.Tokens))
			for t, sampled := range r.Sampled {
				if sampled {
					b.Rows[i].Returns[t] = float32(t) / 4
				}
			}
		}
		return b
	}
	require.NoError(t, returned().Check())
	for want, spoil := range map[string]func(*model.Batch){
		"rows 0 and 1: one has returns":        func(b *model.Batch) { b.Rows[1].Returns = nil },
		"rows 0 and 2: one has returns":        func(b *model.Batch) { b.Rows[0].Returns, b.Rows[1].Returns = nil, nil },
		"row 2: 4 tokens with 3 returns":       func(b *model.Batch) { b.Rows[2].Returns = b.Rows[2].Returns[:3] },
		"row 2: token 3: return is NaN":        func(b *model.Batch) { b.Rows[2].Returns[3] = float32(math.NaN()) },
		"row 0: token 0: return is 1, want a ": func(b *model.Batch) { b.Rows[0].Returns[0] = 1 },
	} {
		b := returned()
		spoil(&b)
		require.ErrorIs(t, b.Check(), model.ErrBatch, want)
		require.ErrorContains(t, b.Check(), want)
	}
}
