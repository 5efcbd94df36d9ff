// Package shuffle permutes the numbers below n without a list of them. One index costs
// the same whether n is ten or ten billion, and needs no memory. The order of tasks and
// the choice of generated problems use it.
//
// It is not a source of randomness for statistics or secrets. Guarantees: for every key
// and n the result is a permutation, it depends only on its arguments, and it never
// changes, because running workflows replay it. A test checks its values.
package shuffle

import "math/bits"

// rounds is the number of rounds of the Feistel network. Four are the theoretical minimum
// for a permutation that looks random; six leave a margin, because the halves are short.
const rounds = 6

// smallest is the smallest number of bits that the network permutes. With fewer bits it
// could not produce every order of a few tasks.
const smallest = 8

// Index returns the place of i in the permutation of key: a number from 0 to n-1 that is
// different for each i from 0 to n-1. It panics if i is not in that range.
//
// It is a balanced Feistel network over the next even power of two. The network is
// applied again as long as the result is not below n ("cycle walking", Black and Rogaway
// 2002).
func Index(key uint64, n, i int) int {
	if i < 0 || i >= n {
		panic("shuffle: index out of range")
	}
	width := max(smallest, bits.Len64(uint64(n-1)))
	half := (width + 1) / 2
	for x := uint64(i); ; {
		x = feistel(key, x, half)
		if x < uint64(n) {
			return int(x)
		}
	}
}

func feistel(key, x uint64, half int) uint64 {
	mask := uint64(1)<<half - 1
	left, right := x>>half, x&mask
	for round := range uint64(rounds) {
		left, right = right, left^(Key(key, round, right)&mask)
	}
	return left<<half | right
}

// Key returns one key for several numbers. Their order matters.
func Key(parts ...uint64) uint64 {
	var h uint64
	for _, p := range parts {
		h = mix(h*0x9e3779b97f4a7c15 + p + 0x632be59bd9b4e019)
	}
	return h
}

// mix is the finalizer of SplitMix64 (Steele, Lea and Flood 2014): every bit of
// x moves every bit of the result.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
