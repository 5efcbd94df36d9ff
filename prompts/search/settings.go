package search

import (
	"errors"
	"fmt"
	"math"
)

// Defaults of gepa 0.1.4, and of Agent Lightning 0.3's APO.
const (
	defaultMinibatch       = 3
	defaultMerges          = 5
	defaultBeam            = 4
	defaultBranch          = 4
	defaultRounds          = 3
	defaultGradientBatch   = 4
	defaultValidationBatch = 16
	defaultPerfect         = 1
)

// maxCount bounds the numbers of a search: products of three of them fit in 63 bits.
const maxCount = 1 << 20

// Budget is a number for each purpose. As a limit it is required: a search has no other
// end that is certain.
type Budget struct {
	// Minibatch and Validation are rollouts.
	Minibatch  int `json:"minibatch"`
	Validation int `json:"validation"`
	// Reflections are requests to the reflector, refused ones included.
	Reflections int `json:"reflections"`
}

// Settings are those that every search has. Errors call them optimizer.NAME.
type Settings struct {
	// Prompts are the texts to start from, in an order that stays.
	Prompts []Prompt `json:"prompts"`
	// Train and Validation are the numbers of tasks in the splits.
	Train      int    `json:"train"`
	Validation int    `json:"validation"`
	Budget     Budget `json:"budget"`
	// Seed decides everything that is left to chance.
	Seed uint64 `json:"seed"`
	// Samples is the number of attempts at each task of a minibatch, and
	// ValidationSamples of a validation. 0 means 1.
	Samples           int `json:"samples,omitempty"`
	ValidationSamples int `json:"validation_samples,omitempty"`
	// Perfect is the score that can't be improved. Nil means 1.
	Perfect *float64 `json:"perfect,omitempty"`
	// Patience is how many proposals (GEPA) or rounds (APO) may pass without a better
	// candidate before the search ends. 0 means that only the budget and the rounds end it.
	Patience int `json:"patience,omitempty"`
}

// GEPASettings are the settings of GEPA. Errors call them optimizer.gepa.NAME.
type GEPASettings struct {
	// Minibatch is the number of train tasks that a reflection learns from. 0 means 3.
	Minibatch int `json:"minibatch,omitempty"`
	// Merge says that candidates of two lineages are combined. The package has it off
	// by default.
	Merge bool `json:"merge,omitempty"`
	// Merges is the number of accepted merges after which no further one becomes due. 0
	// means 5. Only with Merge.
	Merges int `json:"merges,omitempty"`
	// SkipPerfect says that nothing is proposed from a minibatch on which the parent is
	// perfect. Nil means true.
	SkipPerfect *bool `json:"skip_perfect,omitempty"`
}

// APOSettings are the settings of APO. Errors call them optimizer.apo.NAME.
type APOSettings struct {
	// Beam is the number of candidates that a round keeps, and of parents in a round. 0
	// means 4.
	Beam int `json:"beam,omitempty"`
	// Branch is the number of proposals from each parent of a round. 0 means 4.
	Branch int `json:"branch,omitempty"`
	// Rounds is the number of rounds. 0 means 3.
	Rounds int `json:"rounds,omitempty"`
	// GradientBatch is the number of train tasks that a critique is made from. 0 means 4.
	GradientBatch int `json:"gradient_batch,omitempty"`
	// ValidationBatch is the number of validation tasks that a round compares its
	// candidates on. 0 means 16.
	ValidationBatch int `json:"validation_batch,omitempty"`
}

// ErrBudget means that a budget is too small for a single candidate.
var ErrBudget = errors.New("too small for a single candidate")

func (s *Settings) complete() error {
	fill(&s.Samples, 1)
	fill(&s.ValidationSamples, 1)
	if s.Perfect == nil {
		s.Perfect = new(float64)
		*s.Perfect = defaultPerfect
	}
	if len(s.Prompts) == 0 {
		return errors.New("prompts: there is none to improve; name at least one")
	}
	seen := map[string]bool{}
	for i, p := range s.Prompts {
		switch {
		case p.Name == "":
			return fmt.Errorf("prompts[%d]: it has no name; give it one", i)
		case seen[p.Name]:
			return fmt.Errorf("prompts.%s: two prompts have this name; rename one", p.Name)
		}
		seen[p.Name] = true
	}
	for _, number := range []struct {
		name             string
		value, low, high int
	}{
		{"tasks.train", s.Train, 1, maxCount},
		{"tasks.validation", s.Validation, 1, maxCount},
		{"optimizer.samples", s.Samples, 1, maxCount},
		{"optimizer.validation_samples", s.ValidationSamples, 1, maxCount},
		{"optimizer.patience", s.Patience, 0, math.MaxInt},
		{"optimizer.budget.minibatch", s.Budget.Minibatch, 1, math.MaxInt},
		{"optimizer.budget.validation", s.Budget.Validation, 1, math.MaxInt},
		{"optimizer.budget.reflections", s.Budget.Reflections, 1, math.MaxInt},
	} {
		if err := check(number.name, number.value, number.low, number.high); err != nil {
			return err
		}
	}
	if math.IsNaN(*s.Perfect) || math.IsInf(*s.Perfect, 0) {
		return fmt.Errorf("optimizer.perfect: %v is not a number that a reward can have; give the highest reward", *s.Perfect)
	}
	return nil
}

func (g *GEPASettings) complete(s Settings) error {
	fill(&g.Minibatch, defaultMinibatch)
	if g.SkipPerfect == nil {
		g.SkipPerfect = new(bool)
		*g.SkipPerfect = true
	}
	if g.Merges != 0 && !g.Merge {
		return errors.New("optimizer.gepa.merges: it has a meaning only with optimizer.gepa.merge: true")
	}
	if g.Merge && s.Validation < mergeTasks {
		return fmt.Errorf("optimizer.gepa.merge: two candidates are merged only if they share %d validation tasks, and there are %d; add tasks, or leave it out", mergeTasks, s.Validation)
	}
	fill(&g.Merges, defaultMerges)
	if err := check("optimizer.gepa.minibatch", g.Minibatch, 1, maxCount); err != nil {
		return err
	}
	if err := check("optimizer.gepa.merges", g.Merges, 1, maxCount); err != nil {
		return err
	}
	// The seed and the candidate are measured on all tasks, and compared on a minibatch.
	need := g.proposal(s)
	need.Validation *= 2
	return s.covers(need)
}

// proposal returns what one proposal can cost.
func (g *GEPASettings) proposal(s Settings) Budget {
	minibatch := 2 * g.Minibatch
	if g.Merge {
		minibatch = max(minibatch, mergeTasks)
	}
	return Budget{Minibatch: minibatch * s.Samples, Validation: s.Validation * s.ValidationSamples, Reflections: 1}
}

func (a *APOSettings) complete(s Settings) error {
	for _, number := range []struct {
		name         string
		value        *int
		defaultValue int
	}{
		{"optimizer.apo.beam", &a.Beam, defaultBeam},
		{"optimizer.apo.branch", &a.Branch, defaultBranch},
		{"optimizer.apo.rounds", &a.Rounds, defaultRounds},
		{"optimizer.apo.gradient_batch", &a.GradientBatch, defaultGradientBatch},
		{"optimizer.apo.validation_batch", &a.ValidationBatch, defaultValidationBatch},
	} {
		fill(number.value, number.defaultValue)
		if err := check(number.name, *number.value, 1, maxCount); err != nil {
			return err
		}
	}
	// The seed and the winner are measured on all tasks; in between, the seed and one
	// candidate on a batch.
	return s.covers(Budget{
		Minibatch:   min(a.GradientBatch, s.Train) * s.Samples,
		Validation:  2 * (s.Validation + min(a.ValidationBatch, s.Validation)) * s.ValidationSamples,
		Reflections: 2,
	})
}

// covers returns an error if the budget is below what a single candidate needs.
func (s Settings) covers(need Budget) error {
	for _, p := range purposes() {
		if has, want := s.Budget.of(p), need.of(p); has < want {
			return fmt.Errorf("optimizer.budget.%s: %d is %w, which needs %d; give at least that", p, has, ErrBudget, want)
		}
	}
	return nil
}

func fill(number *int, value int) {
	if *number == 0 {
		*number = value
	}
}

func check(name string, value, low, high int) error {
	switch {
	case value < low:
		return fmt.Errorf("%s: %d is below %d", name, value, low)
	case value > high:
		return fmt.Errorf("%s: %d is above %d", name, value, high)
	}
	return nil
}
