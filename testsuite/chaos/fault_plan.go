package main

import (
	"math/rand/v2"
	"time"

	"github.com/fulgurite/fulgurite/testsuite/chaos/processes"
)

// blow is something that is done to a process.
type blow struct {
	role  processes.Role
	after time.Duration // the blow before it
	// hang is how long the process stands still; 0 kills it.
	hang time.Duration
}

// A hang is from one second to twice the time after which most parts take a
// process for dead.
const (
	shortestHang = time.Second
	longestHang  = 20 * time.Second
	// killsPerHang is how many blows are kills for each that is a hang.
	killsPerHang = 6
)

// plan decides on blows, one after the other, by a seed alone: which moments of
// a run they meet differs from time to time all the same.
type plan struct {
	random *rand.Rand
	every  time.Duration
	roles  []processes.Role
	deck   []processes.Role // what is left of a round in which each role is killed once
	count  int
}

func newPlan(seed uint64, every time.Duration, roles []processes.Role) *plan {
	return &plan{random: rand.New(rand.NewPCG(seed, 0x6368616f73)), every: every, roles: roles}
}

// next is the next blow, half to one and a half times the mean after the last.
func (p *plan) next() blow {
	p.count++
	b := blow{after: p.every/2 + time.Duration(p.random.Int64N(int64(p.every)))}
	if p.count%(killsPerHang+1) == 0 {
		b.role = p.roles[p.random.IntN(len(p.roles))]
		b.hang = shortestHang + time.Duration(p.random.Int64N(int64(longestHang-shortestHang)))
		return b
	}
	if len(p.deck) == 0 {
		p.deck = append(p.deck, p.roles...)
		p.random.Shuffle(len(p.deck), func(i, j int) { p.deck[i], p.deck[j] = p.deck[j], p.deck[i] })
	}
	b.role, p.deck = p.deck[0], p.deck[1:]
	return b
}
