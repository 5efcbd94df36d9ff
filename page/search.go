package page

import (
	"context"
	"fmt"
	"html/template"
	"slices"
	"strings"

	"github.com/fulgurite/fulgurite/internal/readable"
	"github.com/fulgurite/fulgurite/page/cache"
	"github.com/fulgurite/fulgurite/page/figure"
	"github.com/fulgurite/fulgurite/page/format"
	"github.com/fulgurite/fulgurite/prompts/optimize"
	"github.com/fulgurite/fulgurite/prompts/search"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/promptsearch"
	"github.com/fulgurite/fulgurite/spec"
)

const (
	// maxSearches is how many searches are kept. One of 1,000 candidates takes a few MB.
	maxSearches = 8
	// bestShown is how many candidates the page of a run shows, and openShown how many
	// requests of a round it names.
	bestShown = 5
	openShown = 3
)

// searches reports whether a run searches for better prompts.
func searches(run record.Run) bool { return promptsearch.PolicyOf(run) == record.PromptsPolicy }

// searchOf returns the search of a run as it is now, or as it was a moment ago. Its first
// reading makes the whole search anew, which takes most of a second for 1,000 candidates, so
// it is read in the background; later ones read only new answers.
func (s *Server) searchOf(ctx context.Context, run record.Run) (cache.Answer[*promptsearch.Search], error) {
	state, err := s.searchState(ctx, run)
	if err != nil {
		return cache.Answer[*promptsearch.Search]{}, err
	}
	reader, err := s.readers.Of(ctx, run.Name+" "+run.ExecutionID, func(context.Context) (*promptsearch.Reader, error) {
		return promptsearch.NewReader(run.Name), nil
	})
	if err != nil {
		return cache.Answer[*promptsearch.Search]{}, err
	}
	return s.searched.Of(ctx, run.Name, state, run.Status == record.Running, s.Patience, func() (*promptsearch.Search, error) {
		return reader.Read(s.ctx, s.Records)
	}), nil
}

// searchState returns a text that changes with the record of a search. It reads only the
// answers that are new.
func (s *Server) searchState(ctx context.Context, run record.Run) (string, error) {
	h, err := s.historyOf(ctx, run)
	if err != nil {
		return "", err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	fresh, err := s.Records.SearchAnswers(ctx, run.Name, h.answers)
	if err != nil {
		return "", err
	}
	h.answers += len(fresh)
	versions, err := s.Records.PromptVersions(ctx, run.Name)
	if err != nil {
		return "", err
	}
	moves, err := s.Records.LatestPromotions(ctx, run.Name, record.PromptsPolicy, 1)
	last := ""
	for _, m := range moves {
		last = m.DecisionID
	}
	return fmt.Sprintf("%s %s %d %d %q", run.ExecutionID, run.Status, h.answers, len(versions), last), err
}

// searchBody is the search on the page of its run.
type searchBody struct {
	Path      string // of its candidates
	Algorithm string
	Making    bool   // it is being read
	Unread    string // why it can't be
	Ended     bool
	Now       string // why it ended, or what is going on
	Proposals int
	Measured  int // candidates with a validation score
	Best      *candidateRow
	Seed      *float64
	Budget    []budgetRow
	Refused   []refusedRow
	Missing   int
	Figures   []figure.Drawn
	Top       []candidateRow
}

// budgetRow is the budget for one purpose.
type budgetRow struct {
	Purpose, What string
	Spent, Of     int
	Share         template.HTML
}

// refusedRow says how many replies of the reflector were refused for a reason.
type refusedRow struct {
	Reason string
	Count  int
}

// searchBody sums up the search of a run.
func (s *Server) searchBody(ctx context.Context, run record.Run) (*searchBody, error) {
	b := &searchBody{Path: promptsPath(run.Name), Algorithm: algorithmName(specOf(run))}
	answer, err := s.searchOf(ctx, run)
	if err != nil {
		return nil, err
	}
	b.Making = answer.Making
	if answer.Err != nil {
		b.Unread = format.FirstLine(answer.Err.Error())
	}
	if answer.Value == nil {
		return b, nil
	}
	found := answer.Value
	b.Ended, b.Now = found.Done != nil || run.Status != record.Running, format.FirstLine(going(found, run))
	for _, d := range found.Decisions {
		b.Proposals = max(b.Proposals, d.Proposal+1)
	}
	rows := candidateRows(found)
	if len(rows) > 0 {
		b.Seed = rows[0].Score
	}
	for _, row := range rows {
		if row.Score == nil {
			continue
		}
		b.Measured++
		b.Top = append(b.Top, row)
		if row.Leads {
			b.Best = &row
		}
	}
	slices.SortStableFunc(b.Top, func(x, y candidateRow) int { return compareKnown(x.Score, y.Score, -1) })
	b.Top = b.Top[:min(len(b.Top), bestShown)]
	b.Budget = budgetRows(found)
	b.Missing = found.Account.Missing
	for _, why := range search.Refusals() {
		if n := found.Account.Refusals[why]; n > 0 {
			b.Refused = append(b.Refused, refusedRow{refusalText(why), n})
		}
	}
	b.Figures, err = s.searchFigures(found)
	return b, err
}

// searchFigures draws the best validation score over the proposals.
func (s *Server) searchFigures(found *promptsearch.Search) ([]figure.Drawn, error) {
	best, seed := figure.Curve{Name: "best so far"}, figure.Curve{Name: "the spec's prompts"}
	last := 0.0
	for _, d := range found.Decisions {
		x := float64(d.Proposal + 1)
		last = max(last, x)
		if d.Best && d.Score != nil {
			best.Points = append(best.Points, figure.Point{X: x, Y: *d.Score})
			if d.Proposal < 0 {
				seed.Points = append(seed.Points, figure.Point{X: x, Y: *d.Score})
			}
		}
	}
	for _, l := range []*figure.Curve{&best, &seed} {
		if n := len(l.Points); n > 0 && l.Points[n-1].X < last {
			l.Points = append(l.Points, figure.Point{X: last, Y: l.Points[n-1].Y})
		}
	}
	best.Points = stairs(best.Points)
	f := figure.Figure{Title: "Validation score", Unit: "proposal", Lines: []figure.Curve{best, seed}, Note: "mean over the validation split"}
	if f.Empty() {
		return nil, nil
	}
	return figure.Draw([]figure.Figure{f})
}

// stairs adds the points with which a line keeps each value until the next one.
func stairs(points []figure.Point) []figure.Point {
	var out []figure.Point
	for i, p := range points {
		if i > 0 && points[i-1].Y != p.Y {
			out = append(out, figure.Point{X: p.X, Y: points[i-1].Y})
		}
		out = append(out, p)
	}
	return out
}

func algorithmName(sp spec.Spec) string {
	if sp.Optimizer == nil {
		return ""
	}
	return strings.ToUpper(sp.Optimizer.Algorithm)
}

// budgetRows returns what was spent for each purpose.
func budgetRows(found *promptsearch.Search) []budgetRow {
	of, spent := found.Spec.Optimizer.Budget, found.Account.Spent
	rows := []budgetRow{
		{Purpose: string(search.PurposeMinibatch), What: "attempts at a few tasks", Spent: spent.Minibatch, Of: of.Minibatch},
		{Purpose: string(search.PurposeValidation), What: "attempts that measure candidates", Spent: spent.Validation, Of: of.Validation},
		{Purpose: string(search.PurposeReflections), What: "requests to the reflector", Spent: spent.Reflections, Of: of.Reflections},
	}
	for i, row := range rows {
		d := figure.Drawing{}
		d.Add(`<svg class="share" viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true"><rect width="%.1f" height="8"/></svg>`, 100*min(1, float64(row.Spent)/float64(max(1, row.Of))))
		rows[i].Share = template.HTML(d.String()) // it has numbers alone
	}
	return rows
}

// going says why a search ended, or what it does now.
func going(found *promptsearch.Search, run record.Run) string {
	if done := found.Done; done != nil {
		return endText(*done, *found.Spec.Optimizer)
	}
	if run.Status != record.Running {
		return "the run ended before the search did"
	}
	var parts []string
	for _, r := range found.Open {
		if len(parts) == openShown {
			parts = append(parts, readable.Count(len(found.Open)-openShown, "more request"))
			break
		}
		parts = append(parts, openText(found, r))
	}
	return strings.Join(parts, "; ")
}

// openText says what a request that has no answer waits for.
func openText(found *promptsearch.Search, r optimize.Request) string {
	of := "a new candidate"
	if c, ok := found.Find(r.Candidate.ID); ok {
		of = fmt.Sprintf("candidate %d", c.Number)
	}
	switch r.Kind {
	case search.Evaluate:
		return fmt.Sprintf("%s is attempted on %s of %s", of, readable.Count(len(r.Tasks), "task"), r.Split)
	case search.Critique:
		return fmt.Sprintf("the reflector is asked what is wrong with %s of %s", r.Prompt, of)
	}
	return fmt.Sprintf("the reflector is asked for a better text of %s, from %s", r.Prompt, of)
}

// endText says why a search ended.
func endText(done search.Done, o spec.PromptOptimizer) string {
	switch done.Reason {
	case search.EndBudget:
		return fmt.Sprintf("ended: the budget for %s does not cover what it needs next", done.Purpose)
	case search.EndNoProgress:
		what := "proposal"
		if o.Algorithm == spec.AlgorithmAPO {
			what = "round"
		}
		return fmt.Sprintf("ended: %s brought no better candidate (optimizer.patience)", readable.Count(o.Patience, what))
	case search.EndSolved:
		return "ended: the winner has the perfect score on every validation task"
	case search.EndRounds:
		return "ended: all rounds are done"
	case search.EndStopped:
		return "ended because it was asked to"
	case search.EndUnmeasured:
		return "ended: the spec's prompts got a score on no validation task, so nothing can be compared with them"
	}
	return "ended: " + string(done.Reason)
}

// refusalText says why a reply of the reflector is not used.
func refusalText(why search.Refusal) string {
	switch why {
	case search.RefusedFailed:
		return "the reflector did not reply"
	case search.RefusedEmpty:
		return "the reply has no text"
	case search.RefusedCutOff:
		return "the reply was cut off"
	case search.RefusedNoFence:
		return "the text does not stand in a fence"
	case search.RefusedMarkup:
		return "the reply is a web page"
	case search.RefusedCopies:
		return "the text has the answer of a task"
	case search.RefusedUnknown:
		return "the text has an unknown placeholder"
	case search.RefusedLost:
		return "the text lacks a placeholder"
	case search.RefusedTooLong:
		return "the text is too long (prompts.max_bytes)"
	case search.RefusedUnreadable:
		return "the text is not UTF-8, or has control characters"
	case search.RefusedUnchanged:
		return "the text is the one that it should replace"
	case search.RefusedKnown:
		return "the texts are those of another candidate"
	}
	return strings.ReplaceAll(string(why), "_", " ")
}

// verdictText says what a search decided about a candidate.
func verdictText(v search.Verdict) string {
	switch v {
	case search.Unmeasured:
		return "not measured"
	case search.Measured, search.Accepted, search.Rejected, search.Refused, search.Perfect:
		return string(v)
	}
	return format.FirstLine(string(v))
}
