package main

import (
	"iter"
	"math/rand/v2"
	"time"
)

// arrivals say when requests are due. Conversations begin, and their turns follow each other,
// in intervals that are distributed exponentially, so that all requests together are nearly a
// Poisson process.
type arrivals struct {
	rate float64 // requests a second
	seed uint64
	// inFours makes the intervals equal, so that the turns of four conversations are due at
	// the same moments.
	inFours bool
}

// turnInterval is the mean time from one turn of a conversation to the next.
const turnInterval = time.Second

// conversations returns how long after the begin each conversation begins, with its random
// numbers, up to a length.
func (a arrivals) conversations(length time.Duration) iter.Seq2[time.Duration, *rand.Rand] {
	return func(yield func(time.Duration, *rand.Rand) bool) {
		random := rand.New(rand.NewPCG(a.seed, 0))
		every := time.Duration(turns * float64(time.Second) / a.rate)
		n := uint64(0)
		for at := time.Duration(0); at < length; at += a.interval(random, every) {
			if n++; !yield(at, rand.New(rand.NewPCG(a.seed, n))) {
				return
			}
		}
	}
}

// interval returns an interval with that mean.
func (a arrivals) interval(random *rand.Rand, mean time.Duration) time.Duration {
	if a.inFours {
		return mean
	}
	return time.Duration(random.ExpFloat64() * float64(mean))
}
