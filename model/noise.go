package model

import "math"

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
	// Two rounds, so that neither neighbouring seeds nor neighbouring indices
	// share a stream.
	state := mix64(mix64(seed) + uint64(index)*0x9e3779b97f4a7c15)
	for token := range out {
		state += 0x9e3779b97f4a7c15
		// 52 bits and a half: strictly inside (0,1) without rounding, so both
		// logarithms are finite.
		u := (float64(mix64(state)>>12) + 0.5) * 0x1p-52
		out[token] = float32(-math.Log(-math.Log(u)))
	}
}

// mix64 is the finalizer of SplitMix64 (Steele, Lea and Flood, 2014), variant 13
// of Stafford.
func mix64(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
