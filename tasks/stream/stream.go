// Package stream defines which task comes next. Training reads an endless stream of the
// train split. Each step also has its own stream of reserves. Both are pure functions of
// the run's seed, so workflows can call them.
package stream

import "github.com/fulgurite/fulgurite/tasks/shuffle"

// At returns the task at an ordinal of the endless stream that training reads: epoch
// after epoch, each with its own permutation of the n tasks. index is from 0 to n-1. At
// depends only on its arguments and costs the same for any n, so a workflow can call it.
// n must be positive and ordinal not negative.
func At(seed uint64, n, ordinal int) (index, epoch int) {
	epoch = ordinal / n
	return indexAt(seed, epoch, n, ordinal%n), epoch
}

// Order returns one epoch of that stream: the indices of its tasks.
func Order(seed uint64, epoch, n int) []int {
	order := make([]int, n)
	for i := range order {
		order[i] = indexAt(seed, epoch, n, i)
	}
	return order
}

// orderDomain separates the order of tasks from other uses of a seed.
const orderDomain = 0x7461736b // "task"

func indexAt(seed uint64, epoch, n, i int) int {
	return shuffle.Index(shuffle.Key(orderDomain, seed, uint64(epoch)), n, i)
}

// reserveDomain separates the order of reserves from that of tasks.
const reserveDomain = 0x72657376 // "resv"

// Reserve returns the k-th task, from 0, that may replace a quarantined one in a step.
// Each step has its own stream of them, which repeats permutations of the n tasks. So one
// step's reserves change neither the normal order (At) nor another step's reserves, in
// whatever order steps are rolled out.
func Reserve(seed uint64, n, step, k int) int {
	return shuffle.Index(shuffle.Key(reserveDomain, seed, uint64(step), uint64(k/n)), n, k%n)
}
