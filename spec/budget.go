package spec

import "github.com/fulgurite/fulgurite/spec/bounds"

// Keys of the budget, which Set takes.
const (
	KeyBudgetTokens = "budget.tokens"
	KeyBudgetCalls  = "budget.calls"
	KeyBudgetHours  = "budget.hours"
)

// maxBudget bounds the whole numbers of a budget, so that they are exact as numbers of JSON.
const maxBudget = 1 << 53

// Budget is what a run may use before it ends. It is compared with what is on record before
// each step, and in a search before each round. What has begun then is finished, and the last
// evaluations follow, so a run uses more by these. Give at least one key.
type Budget struct {
	// Tokens is the number of tokens that models write in attempts, those of evaluations
	// too. Absent or 0 means any number.
	Tokens int `json:"tokens,omitempty"`
	// Calls is the number of requests to models: calls of attempts, and requests to the judge
	// and to the reflector. Absent or 0 means any number.
	Calls int `json:"calls,omitempty"`
	// Hours is the time since the run was started, pauses too. Absent or 0 means any
	// time.
	Hours float64 `json:"hours,omitempty"`
}

func (s Spec) checkBudget(f *Faults) {
	b := s.Budget
	if b == nil {
		return
	}
	if *b == (Budget{}) {
		f.add("budget", "give budget.tokens, budget.calls or budget.hours, or leave budget out", "empty")
	}
	f.whole(KeyBudgetTokens, b.Tokens, 0, maxBudget)
	f.whole(KeyBudgetCalls, b.Calls, 0, maxBudget)
	f.number(KeyBudgetHours, b.Hours, bounds.Between(0, 1e6))
	f.unused("budget", s.Evaluation.Only != "", "an evaluation has no steps before which it could end")
}
