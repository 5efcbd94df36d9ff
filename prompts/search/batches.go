package search

import (
	"slices"
)

// epochs gives GEPA its minibatches: each epoch is all tasks in random order, with the
// rarest ones repeated until the size of a minibatch divides it.
type epochs struct {
	Order []int `json:"order,omitempty"`
	Epoch int   `json:"epoch"`
}

// batch returns the tasks of a proposal. Proposals that merge take none, and theirs are
// left out, as the package does.
func (e *epochs) batch(c *chance, tasks, size, proposal int) []int {
	start := proposal * size
	epoch := 0
	if len(e.Order) > 0 {
		epoch = start / len(e.Order)
	}
	if len(e.Order) == 0 || epoch > e.Epoch {
		e.Epoch = epoch
		e.fill(c, tasks, size)
	}
	start %= len(e.Order)
	return slices.Clone(e.Order[start : start+size])
}

func (e *epochs) fill(c *chance, tasks, size int) {
	e.Order = c.permutation(tasks)
	count := make([]int, tasks) // by place in the epoch
	for i := range count {
		count[i] = 1
	}
	for len(e.Order)%size != 0 {
		rarest := tasks - 1 // of equally rare ones the last
		for i := tasks - 1; i >= 0; i-- {
			if count[i] < count[rarest] {
				rarest = i
			}
		}
		count[rarest]++
		e.Order = append(e.Order, e.Order[rarest])
	}
}

// stream gives APO its batches: all tasks in random order, again and again, cut into
// batches. A batch that an epoch leaves unfinished is finished with tasks of the next
// epoch that it does not have yet.
type stream struct {
	// Order is the rest of the epoch.
	Order []int `json:"order,omitempty"`
}

func (s *stream) batch(c *chance, tasks, size int) []int {
	if size >= tasks {
		return c.permutation(tasks)
	}
	var batch []int
	for len(batch) < size {
		if len(s.Order) == 0 {
			s.Order = c.permutation(tasks)
		}
		task := s.Order[0]
		s.Order = s.Order[1:]
		if !slices.Contains(batch, task) {
			batch = append(batch, task)
		}
	}
	return batch
}
