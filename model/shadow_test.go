package model_test

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/model"
)

// shadowPairs returns pairs of which some candidates, and some others, are cut off, each alone.
func shadowPairs(n, candidate, promoted int) []model.ShadowPair {
	pairs := make([]model.ShadowPair, n)
	for i := range candidate {
		pairs[i].Candidate.CutOff = true
	}
	for i := range promoted {
		pairs[n-1-i].Promoted.CutOff = true
	}
	return pairs
}

func TestAShadowIsWithdrawnByTheExactSignTest(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		candidate, promoted int
		p                   float64
		withdraw            bool
	}{
		{5, 0, 1. / 32, false}, // more than 0.05 / 3
		{6, 0, 1. / 64, true},
		{7, 1, 9. / 256, false},
		{9, 1, 11. / 1024, true},
		{1, 9, 1023. / 1024, false},
		{0, 0, 1, false},
	} {
		s, err := model.CompareShadow(3, 0.05, shadowPairs(50, c.candidate, c.promoted))
		require.NoError(t, err)
		require.InDelta(t, c.p, s.CutOff.PValue, 1e-12, "%+v", c)
		require.Equal(t, c.withdraw, s.Withdraw, "%+v", c)
		require.Equal(t, [2]int{c.candidate, c.promoted}, [2]int{s.CutOff.Candidate, s.CutOff.Promoted})
	}
}

func TestRepliesThatFailAreComparedOnlyAsThat(t *testing.T) {
	t.Parallel()
	pairs := make([]model.ShadowPair, 20)
	for i := range pairs {
		pairs[i] = model.ShadowPair{Candidate: model.ShadowReply{Tokens: 4, Seconds: 2}, Promoted: model.ShadowReply{Tokens: 2, Seconds: 3}}
		if i < 10 {
			pairs[i] = model.ShadowPair{Candidate: model.ShadowReply{Failed: true}, Promoted: model.ShadowReply{CutOff: true, Tokens: 100}}
		}
	}
	s, err := model.CompareShadow(0, 0.05, pairs)
	require.NoError(t, err)
	require.Equal(t, 10, s.Failed.Candidate)
	require.True(t, s.Failed.Worse)
	require.True(t, s.Withdraw)
	require.Zero(t, s.CutOff.Promoted)
	require.Equal(t, model.ShadowMean{Candidate: 4, Promoted: 2, Difference: 2}, s.Tokens)
	require.Equal(t, model.ShadowMean{Candidate: 2, Promoted: 3, Difference: -1}, s.Seconds)
	require.Contains(t, s.Reason(), "significantly more failed (p = 0.00098, at most 0.017)")
}

func TestAShadowWithTooFewPromptsPassesAndSaysSo(t *testing.T) {
	t.Parallel()
	require.Equal(t, 6, model.MinShadowReplies(0.05))
	s, err := model.CompareShadow(2, 0.05, shadowPairs(5, 5, 0))
	require.NoError(t, err)
	require.False(t, s.Withdraw)
	require.Contains(t, s.Reason(), "too few to tell, at least 6 are needed at level 0.05")
	s, err = model.CompareShadow(2, 0.05, shadowPairs(6, 6, 0))
	require.NoError(t, err)
	require.True(t, s.Withdraw)
	s, err = model.CompareShadow(2, 0.05, nil)
	require.NoError(t, err)
	require.False(t, s.Withdraw)
	require.Contains(t, s.Reason(), "nothing was compared")
}

// Both versions have each fault with the same probability, so the rule may withdraw at most the
// level of the candidates; more would be seen as five standard errors.
func TestACandidateThatIsNoWorseIsRarelyWithdrawn(t *testing.T) {
	t.Parallel()
	const candidates, level = 4000, 0.05
	random := rand.New(rand.NewPCG(1, 2))
	reply := func() model.ShadowReply {
		return model.ShadowReply{CutOff: random.Float64() < 0.3, Empty: random.Float64() < 0.2}
	}
	withdrawn := 0
	for range candidates {
		pairs := make([]model.ShadowPair, 100)
		for i := range pairs {
			pairs[i] = model.ShadowPair{Candidate: reply(), Promoted: reply()}
		}
		s, err := model.CompareShadow(0, level, pairs)
		require.NoError(t, err)
		if s.Withdraw {
			withdrawn++
		}
	}
	const standardError = 13.8 // of the count, at the level
	require.LessOrEqual(t, float64(withdrawn), candidates*level+5*standardError)
	require.Positive(t, withdrawn)
}
