package model_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/fulgurite/fulgurite/model"
)

func TestANucleusIsTheSmallestSetOfTheLikeliest(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n, p := rapid.IntRange(1, 30).Draw(t, "n"), rapid.Float64Range(0.01, 1).Draw(t, "p")
		tokens, chances, sum := make([]int32, n), make([]float32, n), float32(0)
		for i := range n {
			tokens[i] = int32(3*i + 1)
			chances[i] = float32(rapid.IntRange(0, 4).Draw(t, "weight")) // makes many ties
			sum += chances[i]
		}
		for i := range chances {
			chances[i] /= max(sum, 1)
		}
		chance := func(token int32) float32 { return chances[token/3] }
		have := model.Nucleus(slices.Clone(tokens), chances, p)
		require.True(t, slices.IsSorted(have))
		require.NotEmpty(t, have)
		var mass float64
		least := have[0] // the token that was taken last
		for _, token := range have {
			mass += float64(chance(token))
			if chance(token) <= chance(least) {
				least = token
			}
		}
		require.Less(t, mass-float64(chance(least)), p+1e-6, "one fewer would do")
		require.True(t, mass >= p-1e-5 || len(have) == n, "they are too few")
		for _, token := range tokens {
			if !slices.Contains(have, token) {
				require.True(t, chance(token) < chance(least) || chance(token) == chance(least) && token > least, "token %d is likelier", token)
			}
		}
	})
}

func TestTheChoiceAmongSomeIsThatOfAllWithoutTheOthers(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		logits := rapid.SliceOfN(rapid.Float32Range(-9, 9), 1, 60).Draw(t, "logits")
		seed, index := rapid.Uint64().Draw(t, "seed"), rapid.IntRange(0, 99).Draw(t, "index")
		var tokens []int32
		var some []float32
		noise := make([]float32, len(logits))
		model.GumbelNoise(seed, index, noise)
		best := -1
		for i, x := range logits {
			if rapid.Bool().Draw(t, "in") || i == len(logits)-1 {
				tokens, some = append(tokens, int32(i)), append(some, x)
				if best < 0 || x*0.5+noise[i] > logits[best]*0.5+noise[best] {
					best = i
				}
			}
		}
		require.Equal(t, int32(best), tokens[model.GumbelChooseAmong(tokens, some, 0.5, seed, index)])
	})
}
