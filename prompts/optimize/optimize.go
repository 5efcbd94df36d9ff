// Package optimize makes the search that a spec's optimizer describes.
//
// It checks what a spec alone can't know: whether the budget covers one candidate, and
// whether a validation is small enough, given how many tasks the splits have. So whoever
// plans a run and whoever starts it refuse the same specs with the same words.
//
// It is not the driver of a search, asks no model and does no I/O. Equal arguments give
// equal searches.
package optimize

import (
	"fmt"

	"github.com/fulgurite/fulgurite/prompts/search"
	"github.com/fulgurite/fulgurite/spec"
)

// MaxValidation is the most rollouts of one validation: every candidate of an archive keeps
// a score for each of its tasks, and a candidate waits for all of them.
const MaxValidation = 1000

// Of returns the search that a spec describes, for the numbers of tasks in its splits. The
// spec has an optimizer and its defaults, and ReadPrompts has processed it. Errors are those
// of New.
func Of(s spec.Spec, train, validation int) (search.Search, error) {
	return New(*s.Optimizer, s.Seed, Seed(s).Prompts, train, validation)
}

// New returns the search that an optimizer describes, for texts to start from and the
// numbers of tasks in the splits. The optimizer has its defaults. An error names the key of
// the spec that is wrong. It wraps search.ErrBudget if the budget does not cover one
// candidate.
func New(o spec.PromptOptimizer, seed uint64, texts []search.Prompt, train, validation int) (search.Search, error) {
	switch rollouts := validation * o.ValidationSamples; {
	case validation == 1:
		return nil, fmt.Errorf("tasks.validation: one task can't tell a better prompt from a lucky one; give at least 2")
	case rollouts > MaxValidation:
		return nil, fmt.Errorf("tasks.validation: a validation of %d tasks with %d attempts each has %d rollouts, and at most %d are possible; take fewer tasks, or lower optimizer.validation_samples",
			validation, o.ValidationSamples, rollouts, MaxValidation)
	}
	s := search.Settings{
		Prompts: texts, Train: train, Validation: validation, Budget: search.Budget(o.Budget), Seed: seed,
		Samples: o.Samples, ValidationSamples: o.ValidationSamples, Perfect: o.Perfect, Patience: o.Patience,
	}
	if o.Algorithm == spec.AlgorithmAPO {
		a := o.APO
		if a == nil {
			a = &spec.APO{}
		}
		made, err := search.NewAPO(s, search.APOSettings(*a))
		if err != nil {
			return nil, err
		}
		return made, nil
	}
	g := o.GEPA
	if g == nil {
		g = &spec.GEPA{}
	}
	made, err := search.NewGEPA(s, search.GEPASettings(*g))
	if err != nil {
		return nil, err
	}
	return made, nil
}
