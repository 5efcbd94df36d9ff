package report

import (
	"github.com/fulgurite/fulgurite/internal/readable"
	"github.com/fulgurite/fulgurite/prompts/search"
	"github.com/fulgurite/fulgurite/run/promptsearch"
	"github.com/fulgurite/fulgurite/spec"
)

// Search is the account of a search for prompts.
type Search struct {
	Algorithm string `json:"algorithm"`
	Proposals int    `json:"proposals"`
	// Candidates counts the proposals that became candidates, the first prompts included,
	// by what was decided last about them.
	Candidates map[search.Verdict]int `json:"candidates"`
	Measured   int                    `json:"measured"` // on the whole validation split
	Seed       *float64               `json:"seed"`     // the mean of the first prompts there
	Best       *float64               `json:"best"`
	Budget     spec.OptimizerBudget   `json:"budget"`
	Spent      search.Budget          `json:"spent"`
	// Missing counts results without a score.
	Missing int `json:"missing"`
	// Refused counts the reflector's replies that were not used, by reason.
	Refused map[search.Refusal]int `json:"refused"`
	// End says why the search ended, and Purpose which part of the budget ran out. They are
	// empty while it goes on, and if it was asked to end.
	End     search.Reason  `json:"end,omitempty"`
	Purpose search.Purpose `json:"purpose,omitempty"`
}

func searchOf(s *promptsearch.Search) *Search {
	p := s.Progress()
	out := &Search{
		Algorithm: s.Spec.Optimizer.Algorithm, Proposals: p.Proposals, Candidates: map[search.Verdict]int{}, Measured: p.Candidates,
		Seed: s.Seed().Score, Budget: s.Spec.Optimizer.Budget, Spent: p.Spent, Missing: s.Account.Missing, Refused: map[search.Refusal]int{},
	}
	for _, c := range s.Candidates {
		out.Candidates[c.Verdict]++
	}
	for reason, n := range s.Account.Refusals {
		out.Refused[reason] = n
	}
	if best, ok := s.Best(); ok {
		out.Best = best.Score
	}
	if s.Done != nil {
		out.End, out.Purpose = s.Done.Reason, s.Done.Purpose
	}
	return out
}

func (p *page) writeSearch(s Search) {
	p.Line("\nSearch (%s)", s.Algorithm)
	p.Line("  %s, %s measured on the validation split", readable.Count(s.Proposals, "proposal"), readable.Count(s.Measured, "candidate"))
	if s.Seed != nil && s.Best != nil {
		p.Line("  reward there: %.3f with the first prompts, %.3f with the best", *s.Seed, *s.Best)
	}
	p.Line("  spent: %s", promptsearch.SpentText(s.Spent, s.Budget))
	if s.Missing > 0 {
		p.Line("  results without a score: %d", s.Missing)
	}
	if text := promptsearch.RefusalsText(s.Refused); text != "" {
		p.Line("  replies refused: %s", text)
	}
	if s.End != "" {
		p.Line("  ended: %s", promptsearch.EndText(s.End, s.Purpose))
	}
}
