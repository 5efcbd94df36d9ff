package activities

import (
	"github.com/fulgurite/fulgurite/credit"
	"github.com/fulgurite/fulgurite/spec"
)

// Work is how many pieces of work t has done.
func (t *Trainer) Work() uint64 { return t.work.Load() }

// Objective is the loss that TrainStep makes of a spec's.
func Objective(l spec.Loss) (credit.Objective, error) { return objective(l) }
