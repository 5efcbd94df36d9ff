package model

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
)

// GumbelNoise fills out with independent samples of the standard Gumbel distribution, one
// for each token of a vocabulary. If they are added to the logits, divided by the
// temperature, the token with the largest sum is a sample from the soft-max (Gumbel,
// 1954). This needs no normalization and no running sum whose order could matter.
//
// index is the number of tokens that a request has sampled so far, from 0. The noise of a
// token is a function of seed, index and the token's number alone. It does not depend on
// len(out), on the batch, or on other requests. Every engine uses this function, so that
// equal logits sample equal tokens.
//
// Hashing is integer arithmetic and equal everywhere. The two logarithms are those of
// package math, which may differ in the last bit between processors.
func GumbelNoise(seed uint64, index int, out []float32) {
	state := noiseState(seed, index)
	for token := range out {
		out[token] = gumbel(noiseBits(state, token))
	}
}

// GumbelChoose returns the token with the largest scale·logit + noise, and the lowest
// such token if there are several. It chooses the same token as GumbelNoise would, but
// does not compute the logarithms of tokens that cannot win.
//
// A token's noise is −log(−log u) ≤ −log(1−u). The right side is bounded by the number of
// zero bits at the start of 1−u. For few tokens the bound is above the value of the
// likeliest token.
func GumbelChoose(logits []float32, scale float32, seed uint64, index int) int {
	state, likely := noiseState(seed, index), likeliest(logits)
	floor := float32(logits[likely]*scale) + gumbel(noiseBits(state, likely))
	chosen, most := 0, float32(math.Inf(-1))
	for token, x := range logits {
		if noise := noiseBits(state, token); float32(x*scale)+bound(noise) >= floor {
			if x := float32(x*scale) + gumbel(noise); x > most {
				chosen, most = token, x
			}
		}
	}
	return chosen
}

// GumbelChooseAmong is like GumbelChoose, but chooses only among the given tokens:
// logits[i] is the logit of tokens[i], and tokens ascend. It returns the index of the
// chosen token in tokens. The noise of a token does not depend on the others.
func GumbelChooseAmong(tokens []int32, logits []float32, scale float32, seed uint64, index int) int {
	state, likely := noiseState(seed, index), likeliest(logits)
	floor := float32(logits[likely]*scale) + gumbel(noiseBits(state, int(tokens[likely])))
	chosen, most := 0, float32(math.Inf(-1))
	for i, x := range logits {
		if noise := noiseBits(state, int(tokens[i])); float32(x*scale)+bound(noise) >= floor {
			if x := float32(x*scale) + gumbel(noise); x > most {
				chosen, most = i, x
			}
		}
	}
	return chosen
}

func likeliest(logits []float32) int {
	likely := 0
	for i, x := range logits {
		if x > logits[likely] {
			likely = i
		}
	}
	return likely
}

// bound returns an upper bound of the noise of b.
func bound(b uint64) float32 {
	zeros := 52 - bits.Len64(1<<52-b)
	return float32(zeros+2)*math.Ln2 + slack
}

// noiseState begins the random stream of one choice. It mixes twice, so that neither
// neighbouring seeds nor neighbouring indices share a stream.
func noiseState(seed uint64, index int) uint64 {
	return mix64(mix64(seed) + uint64(index)*golden)
}

// slack keeps the bound above any effect of rounding.
const slack = 0.01

// golden is the increment of SplitMix64.
const golden = 0x9e3779b97f4a7c15

// noiseBits returns the 52 random bits of a token.
func noiseBits(state uint64, token int) uint64 {
	return mix64(state+uint64(token+1)*golden) >> 12
}

// gumbel turns 52 random bits into noise. It adds one half, so that u is strictly between
// 0 and 1 without rounding and both logarithms are finite.
func gumbel(b uint64) float32 {
	u := (float64(b) + 0.5) * 0x1p-52
	return float32(-math.Log(-math.Log(u)))
}

// mix64 is the finalizer of SplitMix64 (Steele, Lea and Flood, 2014), variant 13
// of Stafford.
func mix64(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Nucleus returns the most likely ones of tokens: the smallest number of them whose
// probabilities sum to at least p, and at least one (Holtzman et al., 2020,
// arXiv:1904.09751). chances[i] is the probability of tokens[i]. Among equally likely
// tokens the one with the lower number is taken first. tokens and the result ascend; the
// result uses the memory of tokens.
func Nucleus(tokens []int32, chances []float32, p float64) []int32 {
	order := make([]int, len(tokens))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int {
		return cmp.Or(cmp.Compare(chances[j], chances[i]), cmp.Compare(i, j))
	})
	sum, n := 0.0, 0
	for n < len(order) && (n == 0 || sum < p) {
		sum += float64(chances[order[n]])
		n++
	}
	order = order[:n]
	slices.Sort(order)
	for i, from := range order { // from is never below i
		tokens[i] = tokens[from]
	}
	return tokens[:n]
}
