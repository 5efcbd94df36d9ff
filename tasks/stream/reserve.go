package stream

import "github.com/fulgurite/fulgurite/tasks/shuffle"

// reserveDomain separates the order of reserves from that of tasks.
const reserveDomain = 0x72657376 // "resv"

// Reserve is the k-th task, from 0, that may replace a quarantined one in a step. Each
// step has a stream of its own, a permutation of the n tasks again and again. So one
// step's reserves shift neither the normal order (At) nor another step's reserves, in
// whatever order steps are rolled out.
func Reserve(seed uint64, n, step, k int) int {
	return shuffle.Index(shuffle.Key(reserveDomain, seed, uint64(step), uint64(k/n)), n, k%n)
}
