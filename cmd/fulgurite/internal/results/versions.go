package results

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/state"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/terminal"
	"github.com/fulgurite/fulgurite/internal/readable"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/evaluation"
	"github.com/fulgurite/fulgurite/run/report"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/store"
	"github.com/fulgurite/fulgurite/workers/fleet"
)

// Versions is `fulgurite versions`.
type Versions struct {
	Run_    string            `arg:"" name:"run" help:"Name of the run, or RUN:POLICY for the versions of one of several policies."`
	JSON    bool              `help:"Print the versions as JSON." name:"json"`
	Records state.RecordFlags `embed:""`
}

// versionLine is one version as it is listed.
type versionLine struct {
	Version  int    `json:"version"`
	Weights  string `json:"weights"`
	Promoted bool   `json:"promoted"`
	Pinned   bool   `json:"pinned,omitempty"`
	Newest   bool   `json:"newest,omitempty"`
	// Collected says that its weights are gone.
	Collected bool     `json:"collected,omitempty"`
	Gate      *float64 `json:"gate,omitempty"`
	Test      *float64 `json:"test,omitempty"`
	// GatePass and TestPass are of splits with several attempts at each task.
	GatePass *evaluation.Passes `json:"gate_pass,omitempty"`
	TestPass *evaluation.Passes `json:"test_pass,omitempty"`
	Metrics  map[string]float64 `json:"metrics,omitempty"`
}

// Outputs returns what the command prints as JSON.
func (*Versions) Outputs() []any { return []any{[]versionLine{}} }

// Run lists the versions. Unless the output is JSON, it also lists how the promoted
// pointer moved.
func (c *Versions) Run(ctx context.Context, s *state.Flags, t *terminal.Terminal) error {
	records, err := s.OpenRecords(ctx, t, c.Records)
	if err != nil {
		return err
	}
	defer records.Close()
	run, policy, err := records.Catalog.Policy(ctx, c.Run_)
	if err != nil {
		return err
	}
	if err := hasWeights(ctx, s, records, run); err != nil {
		return err
	}
	unevaluated, err := records.Catalog.Unevaluated(ctx, run)
	if err != nil {
		return fmt.Errorf("run %s: %w", run, err)
	}
	sp, err := records.Catalog.Spec(ctx, run)
	if err != nil {
		return err
	}
	lines, err := versionLines(ctx, records.Store, run, policy, sp)
	if err != nil {
		return err
	}
	if c.JSON {
		return t.JSON(lines)
	}
	most := maxSamples(lines)
	t.Printf("%8s  %-9s  %s  %s  %s\n", "version", "", heading("gate", most), heading("test", most), "weights")
	for _, l := range lines {
		mark := ""
		switch {
		case l.Pinned:
			mark = "pinned"
		case l.Promoted:
			mark = "promoted"
		case l.Newest && unevaluated:
			mark = "newest"
		case l.Collected:
			mark = "collected"
		}
		t.Printf("%8d  %-9s  %s  %s  %s\n", l.Version, mark, cells(l.Gate, l.GatePass, most), cells(l.Test, l.TestPass, most), short(l.Weights))
	}
	if names := sp.PolicyNames(); len(names) > 0 && policy == model.DefaultPolicy {
		t.Printf("\nEach version has the policies %s: `%s` lists the versions of one.\n", strings.Join(names, ", "), s.Command("versions", run+":"+names[0]))
	}
	if unevaluated && len(lines) > 1 {
		t.Printf("\nNothing was evaluated, since the spec has no tasks.gate: %s alone means the newest version, %s@promoted the start.\n", c.Run_, c.Run_)
	}
	if !sp.Promotion.Alone {
		return printHistory(ctx, t, records.Store, run, model.DefaultPolicy)
	}
	if policy != model.DefaultPolicy {
		return printHistory(ctx, t, records.Store, run, policy)
	}
	t.Printf("Each policy is promoted alone, so no joint version is promoted.\n")
	return nil
}

// hasWeights returns an error for a run whose versions are prompts.
func hasWeights(ctx context.Context, s *state.Flags, records fleet.Records, run string) error {
	row, err := records.Store.Run(ctx, run)
	if err != nil {
		return fmt.Errorf("run %s: %w", run, err)
	}
	if sp, err := spec.Stored(row.Spec); err == nil && sp.Optimizer != nil {
		return terminal.Usagef("run %s searches for prompts and trains no weights: `%s` lists its versions", run, s.Command("prompts", run))
	}
	return nil
}

// versionLines returns the versions of a policy. What is evaluated and promoted are versions
// of the run: one of several policies has what the joint version of its number has, unless
// each is promoted alone.
func versionLines(ctx context.Context, db *store.Store, run, policy string, of spec.Spec) ([]versionLine, error) {
	versions, err := db.Versions(ctx, run, policy)
	if err != nil {
		return nil, err
	}
	evaluations, err := db.Evaluations(ctx, run)
	if err != nil {
		return nil, err
	}
	evaluated, err := report.Evaluations(ctx, db, evaluations, of)
	if err != nil {
		return nil, err
	}
	pointer := model.DefaultPolicy
	if of.Promotion.Alone {
		pointer = policy
		evaluated = slices.DeleteFunc(evaluated, func(e report.Evaluation) bool {
			return e.Policy != policy && (e.Policy != model.DefaultPolicy || e.Version != 0) // all begin together
		})
	}
	history, err := db.Promotions(ctx, run, pointer)
	if err != nil {
		return nil, err
	}
	current, pinned := -1, false
	if n := len(history); n > 0 {
		current, pinned = history[n-1].Version, history[n-1].Pinned()
	}
	lines := make([]versionLine, len(versions))
	for i, v := range versions {
		promoted := v.Number == current
		lines[i] = versionLine{Version: v.Number, Weights: v.Weights, Promoted: promoted, Pinned: promoted && pinned, Metrics: v.Metrics, Newest: i == len(versions)-1, Collected: !v.Collected.IsZero()}
		for _, e := range evaluated {
			switch {
			case e.Version != v.Number:
			case e.Kind == record.Gate:
				lines[i].Gate, lines[i].GatePass = &e.Mean, e.Pass
			case e.Kind == record.Test:
				lines[i].Test, lines[i].TestPass = &e.Mean, e.Pass
			}
		}
	}
	return lines, nil
}

// printHistory prints the moves of the promoted pointer, and the decisions against a
// candidate.
func printHistory(ctx context.Context, t *terminal.Terminal, db *store.Store, run, policy string) error {
	moves, err := db.Promotions(ctx, run, policy)
	if err != nil {
		return err
	}
	decisions, err := db.Decisions(ctx, run, policy)
	if err != nil {
		return err
	}
	if len(moves)+len(decisions) > 0 {
		t.Printf("\n")
	}
	for _, line := range report.History(moves, decisions) {
		t.Printf("%s  %s\n", readable.Time(line.At), line.Text)
	}
	return nil
}

// short returns as many characters of a digest as are needed to tell versions apart. With
// --json the whole digest is printed.
func short(digest string) string {
	_, hex, _ := strings.Cut(digest, ":")
	return hex[:min(len(hex), 12)]
}

// maxSamples returns the largest number of attempts at a task in the evaluations, or 0
// if no evaluation has several.
func maxSamples(lines []versionLine) int {
	most := 0
	for _, l := range lines {
		for _, p := range []*evaluation.Passes{l.GatePass, l.TestPass} {
			if p != nil {
				most = max(most, p.Samples)
			}
		}
	}
	return most
}

// heading returns the heading of a split's columns: the mean reward, and, with several
// attempts at each task, how many tasks at least one of them solves.
func heading(split string, samples int) string {
	if samples == 0 {
		return fmt.Sprintf("%6s", split)
	}
	return fmt.Sprintf("%6s  %7s", split, fmt.Sprintf("pass@%d", samples))
}

func cells(mean *float64, p *evaluation.Passes, samples int) string {
	text := fmt.Sprintf("%6s", optional(mean))
	if samples == 0 {
		return text
	}
	pass := ""
	if p != nil && p.Samples == samples {
		pass = fmt.Sprintf("%.3f", p.ByK[len(p.ByK)-1].At.Mean)
	}
	return text + fmt.Sprintf("  %7s", pass)
}

func optional(v *float64) string {
	if v == nil {
		return ""
	}
	return fmt.Sprintf("%.3f", *v)
}
