package training

import (
	"context"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/state"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/status"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/terminal"
	"github.com/fulgurite/fulgurite/internal/readable"
	"github.com/fulgurite/fulgurite/prompts/search"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/promptsearch"
	"github.com/fulgurite/fulgurite/run/report"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/workflows"
)

// Search is `fulgurite optimize`.
type Search struct {
	Request request `embed:""`
}

// optimizeResult is the outcome of a search, with facts that are not in the run's result.
type optimizeResult struct {
	workflows.TrainingResult
	Budget spec.OptimizerBudget `json:"budget"`
	// Refused counts the reflector's replies that were not used, by reason, and Decisions
	// say what was decided about the winner. Both are absent if this machine has no record
	// of the run.
	Refused   map[search.Refusal]int `json:"refused,omitempty"`
	Decisions []string               `json:"decisions,omitempty"`
}

// Outputs returns what the command prints as JSON.
func (*Search) Outputs() []any {
	return []any{optimizeResult{}, workflows.PhasesProgress{}, Started{}, status.Status{}}
}

// Run starts the search of a spec, or attaches to it, and follows it.
func (c *Search) Run(ctx context.Context, s *state.Flags, t *terminal.Terminal) error {
	e, err := c.Request.execution(ctx, t, "optimize", spec.Spec.Searchable)
	if err != nil {
		return err
	}
	sp := e.Plan.Spec
	if len(sp.Phases) > 0 {
		return e.phases(ctx, s, t)
	}
	result, err := e.Run(ctx, s, t)
	if err != nil || c.Request.Detach {
		return err
	}
	out := optimizeResult{TrainingResult: result, Budget: sp.Optimizer.Budget}
	out.addRecords(ctx, s, t)
	if c.Request.JSON {
		return t.JSON(out)
	}
	out.print(s, t)
	return nil
}

// addRecords adds what the record of the run says, if this machine has it.
func (o *optimizeResult) addRecords(ctx context.Context, s *state.Flags, t *terminal.Terminal) {
	records, err := s.OpenRecords(ctx, t, state.RecordFlags{})
	if err != nil {
		return
	}
	defer records.Close()
	found, err := promptsearch.Read(ctx, records.Store, o.Run)
	if err != nil || o.Search == nil || found.Account.Spent != o.Search.Spent {
		return // a run of this name in another store
	}
	o.Refused = found.Account.Refusals
	moves, err := records.Store.Promotions(ctx, o.Run, record.PromptsPolicy)
	if err != nil {
		return
	}
	decisions, err := records.Store.Decisions(ctx, o.Run, record.PromptsPolicy)
	if err != nil {
		return
	}
	for _, line := range report.History(moves[min(1, len(moves)):], decisions) { // the first move is to version 0
		o.Decisions = append(o.Decisions, line.Text)
	}
}

func (o *optimizeResult) print(s *state.Flags, t *terminal.Terminal) {
	if p := o.Search; p != nil {
		t.Printf("Run %s: %s.\n", o.Run, searchLine(*p))
	}
	if e := o.SearchEnd; e != nil {
		t.Printf("The search ended: %s.\n", promptsearch.EndText(e.Reason, e.Purpose))
		if e.Score != nil && e.SeedScore != nil {
			t.Printf("Validation reward: %.3f with the first prompts, %.3f with the best.\n", *e.SeedScore, *e.Score)
		}
		if e.Version == 0 {
			t.Printf("No candidate is better than the first prompts, so the gate split was not asked.\n")
		}
	}
	if o.Stopped != nil {
		t.Printf("Stopped, %s.\n", terminal.Escape(o.Stopped.Text()))
	}
	for _, text := range o.Decisions {
		t.Printf("Decision: %s.\n", terminal.Escape(text))
	}
	t.Printf("Version %d of the prompts is promoted.\n", o.Promoted)
	if o.Before != nil && o.After != nil {
		t.Printf("Test reward: %s before, %s after.\n", Describe(*o.Before), Describe(*o.After))
	}
	if p := o.Search; p != nil {
		t.Printf("Spent: %s.\n", promptsearch.SpentText(p.Spent, o.Budget))
		if p.Refused > 0 {
			text := promptsearch.RefusalsText(o.Refused)
			if text != "" {
				text = ": " + text
			}
			t.Printf("Refused: %s of the reflector%s.\n", readable.Count(p.Refused, "reply"), text)
		}
	}
	t.Printf("See the prompts:  %s\n", s.Command("prompts", o.Run))
}
