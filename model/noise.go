package model

import (
	"math"
	"math/bits"
)

// GumbelNoise fills out with independent samples of the standard Gumbel
// distribution, one for each token of a vocabulary. Adding them to the logits
// (divided by the temperature) and taking the largest samples from the soft-max
// (Gumbel, 1954), which needs no normalization and no running sum whose order
// could matter.
//
// index counts the tokens that a request has sampled so far, from 0. The noise
// of a token is a function of seed, index and the token's number alone: not of
// len(out), of the batch, or of other requests. Every engine uses this function,
// so that equal logits sample equal tokens.
//
// Hashing is integer arithmetic and equal everywhere; the two logarithms are
// those of package math, which may differ in the last bit between processors.
func GumbelNoise(seed uint64, index int, out []float32) {
	state := noiseState(seed, index)
	for token := range out {
		out[token] = gumbel(noiseBits(state, token))
	}
}

// GumbelChoose returns the token with the largest scale·logit + noise, and the lowest one
// if there are several. It finds the same token as GumbelNoise would, but leaves out the
// logarithms of tokens that cannot win.
//
// A token's noise is −log(−log u) ≤ −log(1−u), which is bounded by the number of zero
// bits with which 1−u begins. Few tokens have a bound above the likeliest token.
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

// GumbelChooseAmong is GumbelChoose among some tokens alone: logits[i] is the logit of
// tokens[i], which ascend. It returns the index of the chosen token in tokens. The noise
// of a token does not depend on the others.
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

// bound is not below the noise of b.
func bound(b uint64) float32 {
	zeros := 52 - bits.Len64(1<<52-b)
	return float32(zeros+2)*math.Ln2 + slack
}

// noiseState begins the stream of one choice. Two rounds, so that neither
// neighbouring seeds nor neighbouring indices share a stream.
func noiseState(seed uint64, index int) uint64 {
	return mix64(mix64(seed) + uint64(index)*golden)
}

// slack keeps the bound above what rounding does to it.
const slack = 0.01

// golden is the increment of SplitMix64.
const golden = 0x9e3779b97f4a7c15

// noiseBits are the 52 random bits of a token.
func noiseBits(state uint64, token int) uint64 {
	return mix64(state+uint64(token+1)*golden) >> 12
}

// gumbel turns 52 bits and a half, strictly inside (0,1) without rounding, into
// noise, so both logarithms are finite.
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
