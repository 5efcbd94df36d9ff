package main

import (
	"math/rand/v2"
	"time"

	"github.com/fulgurite/fulgurite/testsuite/chaos/processes"
)

// fault is a kill or a hang of a process.
type fault struct {
	role  processes.Role
	after time.Duration // since the fault before it
	// hang is how long the process is suspended; 0 kills it.
	hang time.Duration
}

// A hang is from one second to twice the time after which most parts take a
// process for dead.
const (
	shortestHang = time.Second
	longestHang  = 20 * time.Second
	// killsPerHang is the number of kills for each hang.
	killsPerHang = 6
)

// faultPlan chooses faults, one after the other, from a seed alone. The moments of a run
// at which they happen still differ from one execution to the next.
type faultPlan struct {
	random *rand.Rand
	every  time.Duration
	roles  []processes.Role
	round  []processes.Role // roles that are still to be killed in this round, which kills each role once
	count  int
}

func newFaultPlan(seed uint64, every time.Duration, roles []processes.Role) *faultPlan {
	return &faultPlan{random: rand.New(rand.NewPCG(seed, 0x6368616f73)), every: every, roles: roles}
}

// next returns the next fault. Its time after the previous fault is between half and one
// and a half times the mean.
func (p *faultPlan) next() fault {
	p.count++
	b := fault{after: p.every/2 + time.Duration(p.random.Int64N(int64(p.every)))}
	if p.count%(killsPerHang+1) == 0 {
		b.role = p.roles[p.random.IntN(len(p.roles))]
		b.hang = shortestHang + time.Duration(p.random.Int64N(int64(longestHang-shortestHang)))
		return b
	}
	if len(p.round) == 0 {
		p.round = append(p.round, p.roles...)
		p.random.Shuffle(len(p.round), func(i, j int) { p.round[i], p.round[j] = p.round[j], p.round[i] })
	}
	b.role, p.round = p.round[0], p.round[1:]
	return b
}
