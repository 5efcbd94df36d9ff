package spec

import (
	"cmp"

	"github.com/fulgurite/fulgurite/spec/bounds"
)

// Keys of scheduling, which Set takes.
const (
	KeyWeight   = "scheduling.weight"
	KeyPriority = "scheduling.priority"
)

// The scheduling of a run that gives none, as Temporal has it.
const (
	defaultWeight   = 1
	defaultPriority = 3
)

// Scheduling is how the queues of Temporal choose between tasks of several runs that wait
// in them. It changes the order of work, and no number of the run.
type Scheduling struct {
	// Weight is the run's share of a queue, relative to other runs of the same priority: of
	// two runs with tasks waiting, one of weight 2 has two tasks begun for each one of a run
	// of weight 1. Between 0.001 and 1000. Absent or 0 means 1.
	Weight float64 `json:"weight,omitempty"`
	// Priority is from 1 to 5. Tasks of a run with priority 1 begin before all tasks of runs
	// with priority 2 that wait in the same queue, and so on. Absent or 0 means 3.
	Priority int `json:"priority,omitempty"`
}

// Effective returns the scheduling with its defaults.
func (s Scheduling) Effective() Scheduling {
	return Scheduling{cmp.Or(s.Weight, defaultWeight), cmp.Or(s.Priority, defaultPriority)}
}

func (s Scheduling) check(f *Faults) {
	e := s.Effective()
	f.number(KeyWeight, e.Weight, bounds.Between(0.001, 1000))
	f.whole(KeyPriority, e.Priority, 1, 5)
}

// settable reads and changes the numbers of the scheduling.
func (s *Scheduling) settable() map[string]settable {
	return map[string]settable{
		KeyWeight:   {func() float64 { return s.Effective().Weight }, func(v float64) { s.Weight = v }},
		KeyPriority: {func() float64 { return float64(s.Effective().Priority) }, wholeNumber(&s.Priority).set},
	}
}
