package search

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
)

// purposes returns the parts of a budget, in the order in which shortages are reported.
func purposes() []Purpose {
	return []Purpose{PurposeMinibatch, PurposeValidation, PurposeReflections}
}

// of returns the number for a purpose.
func (b Budget) of(p Purpose) int {
	switch p {
	case PurposeMinibatch:
		return b.Minibatch
	case PurposeValidation:
		return b.Validation
	default:
		return b.Reflections
	}
}

func (b *Budget) add(p Purpose, n int) {
	switch p {
	case PurposeMinibatch:
		b.Minibatch += n
	case PurposeValidation:
		b.Validation += n
	default:
		b.Reflections += n
	}
}

// state is what both searches keep.
type state struct {
	Algorithm string   `json:"algorithm"`
	Settings  Settings `json:"settings"`
	Chance    chance   `json:"chance"`
	Expenses  Account  `json:"account"`
	// Open are the requests without an answer, in the order of their ids: the order in which
	// answers arrive must not show.
	Open []Request `json:"open"`
	End  *Done     `json:"end,omitempty"`
	// Whole are the validation tasks that a measurement of a candidate contains: all on
	// which the seed got a score.
	Whole []int `json:"whole"`
}

func newState(algorithm string, s Settings) state {
	return state{
		Algorithm: algorithm, Settings: s, Chance: chance{Seed: Seed(s.Seed)},
		Expenses: Account{Refusals: map[Refusal]int{}}, Whole: numbers(s.Validation),
	}
}

// Next is part of Search.
func (s *state) Next() Step { return Step{Requests: slices.Clone(s.Open), Done: s.End} }

// Account is part of Search.
func (s *state) Account() Account {
	a := s.Expenses
	a.Refusals = maps.Clone(a.Refusals)
	return a
}

// Use is part of Search.
func (s *state) Use(d Draws) { s.Chance.draws = d }

func (s *state) left(p Purpose) int { return s.Settings.Budget.of(p) - s.Expenses.Spent.of(p) }

// short returns the first purpose whose budget does not cover need.
func (s *state) short(need Budget) (p Purpose, short bool) {
	for _, p := range purposes() {
		if need.of(p) > s.left(p) {
			return p, true
		}
	}
	return "", false
}

// cost returns what a request takes from the budget.
func (r Request) cost() (p Purpose, n int) {
	if r.Kind == Evaluate {
		return r.Purpose, len(r.Tasks) * r.Samples
	}
	return PurposeReflections, 1
}

// request makes a request if the budget covers it. It is paid for at once, because a
// driver that has seen it may have started it.
func (s *state) request(r Request) bool {
	p, n := r.cost()
	if n > s.left(p) {
		return false
	}
	s.Expenses.Spent.add(p, n)
	s.Open = append(s.Open, r)
	slices.SortFunc(s.Open, func(a, b Request) int { return cmp.Compare(a.ID, b.ID) })
	return true
}

// minibatch returns the request to evaluate a candidate on a few tasks.
func (s *state) minibatch(id string, c Candidate, split string, tasks []int) Request {
	return Request{ID: id, Kind: Evaluate, Candidate: c, Split: split, Purpose: PurposeMinibatch, Tasks: tasks, Samples: s.Settings.Samples}
}

// take checks an answer and closes its request.
func (s *state) take(a Answer) (Request, error) {
	i := slices.IndexFunc(s.Open, func(r Request) bool { return r.ID == a.Request })
	if i < 0 {
		return Request{}, fmt.Errorf("take answer to %q: %w", a.Request, ErrNotOpen)
	}
	r := s.Open[i]
	if err := a.check(r); err != nil {
		return Request{}, fmt.Errorf("take answer to %q: %w", a.Request, err)
	}
	if r.Kind == Evaluate {
		s.Expenses.Spent.add(r.Purpose, a.Retries)
		for _, result := range a.Results {
			if result.Score == nil {
				s.Expenses.Missing++
			}
		}
	}
	s.Open = slices.Delete(slices.Clone(s.Open), i, i+1)
	return r, nil
}

func (a Answer) check(r Request) error {
	if r.Kind != Evaluate {
		switch {
		case len(a.Results) > 0 || a.Retries != 0:
			return fmt.Errorf("it has results, which only the answer to %s has", Evaluate)
		case a.Refusal != "" && !slices.Contains(Refusals(), a.Refusal):
			return fmt.Errorf("the refusal %q is unknown, want one of %v", a.Refusal, Refusals())
		case a.Refusal != "" && a.Text != "":
			return fmt.Errorf("it has a text and the refusal %q; leave out one", a.Refusal)
		}
		return nil
	}
	if a.Text != "" || a.Refusal != "" {
		return fmt.Errorf("it has a text or a refusal, which no answer to %s has", Evaluate)
	}
	if a.Retries < 0 {
		return fmt.Errorf("it has %d retries", a.Retries)
	}
	if len(a.Results) != len(r.Tasks) {
		return fmt.Errorf("it has %d results for %d tasks; a task without a score has a result with a nil score", len(a.Results), len(r.Tasks))
	}
	for i, result := range a.Results {
		switch {
		case result.Task != r.Tasks[i]:
			return fmt.Errorf("result %d is of task %d, and task %d was asked for there", i, result.Task, r.Tasks[i])
		case result.Score != nil && (math.IsNaN(*result.Score) || math.IsInf(*result.Score, 0)):
			return fmt.Errorf("the score of task %d is %v; a task without a score has a nil score", result.Task, *result.Score)
		}
	}
	return nil
}

// text returns the text of an answer, or why there is none, which it counts.
func (s *state) text(a Answer) (text string, why Refusal) {
	if why = a.Refusal; why == "" && a.Text == "" {
		why = RefusedEmpty
	}
	if why != "" {
		s.refused(why)
	}
	return a.Text, why
}

func (s *state) refused(why Refusal) {
	if s.Expenses.Refusals == nil {
		s.Expenses.Refusals = map[Refusal]int{}
	}
	s.Expenses.Refusals[why]++
}

// proposed returns the candidate that an answer proposes in place of a prompt of parent, or
// why there is none, which it counts.
func (s *state) proposed(a Answer, parent Candidate, prompt int) (c Candidate, why Refusal) {
	text, why := s.text(a)
	if why != "" {
		return Candidate{}, why
	}
	if c = parent.replaced(prompt, text); c.ID == parent.ID {
		s.refused(RefusedUnchanged)
		return Candidate{}, RefusedUnchanged
	}
	return c, ""
}

// excluded returns the validation tasks that no measurement contains.
func (s *state) excluded() []int {
	var out []int
	for task := range s.Settings.Validation {
		if !slices.Contains(s.Whole, task) {
			out = append(out, task)
		}
	}
	return out
}

// perfect reports whether no score can be improved. A missing score could be.
func (s *state) perfect(scores []*float64) bool {
	return !slices.ContainsFunc(scores, func(x *float64) bool { return x == nil || *x < *s.Settings.Perfect })
}

// sum adds the scores, none of which may be missing. It carries the rounding errors along
// (Neumaier 1974), so that equal scores in another order have the same sum, but for rare
// cases, and no gain comes from rounding.
func sum(scores []*float64) float64 {
	total, lost := 0.0, 0.0
	for _, score := range scores {
		x := *score
		t := total + x
		if math.Abs(total) >= math.Abs(x) {
			lost += (total - t) + x
		} else {
			lost += (x - t) + total
		}
		total = t
	}
	return total + lost
}

func mean(scores []*float64) float64 { return sum(scores) / float64(len(scores)) }

// scores returns the scores of results.
func scores(results []Result) []*float64 {
	out := make([]*float64, len(results))
	for i, r := range results {
		out[i] = r.Score
	}
	return out
}

// scored returns the results that have a score.
func scored(results []Result) []Result {
	var out []Result
	for _, r := range results {
		if r.Score != nil {
			out = append(out, r)
		}
	}
	return out
}

// tasks returns the tasks of results.
func tasks(results []Result) []int {
	out := make([]int, len(results))
	for i, r := range results {
		out[i] = r.Task
	}
	return out
}
