package status

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/state"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/terminal"
	"github.com/fulgurite/fulgurite/internal/readable"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/promptsearch"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/store"
	"github.com/fulgurite/fulgurite/workflows"
)

// reasonWidth is how much of the reason a list of runs has room for.
const reasonWidth = 160

// List is `fulgurite runs`.
type List struct {
	JSON    bool              `help:"Print JSON." name:"json"`
	Records state.RecordFlags `embed:""`
}

// listedRun is a run as `fulgurite runs` lists it.
type listedRun struct {
	Name   string        `json:"name"`
	Status record.Status `json:"status"`
	// Stop is the request to end the run early. While the run is under way, it says that
	// the run is stopping.
	Stop *record.Stop `json:"stop,omitempty"`
	// Error says why a run that ended did not complete.
	Error string `json:"error,omitempty"`
	// Step counts the finished steps, and Steps those that the spec asks for.
	Step  int `json:"step"`
	Steps int `json:"steps"`
	// Reward is the mean reward of the newest step, or of the evaluation of a run that
	// trains nothing.
	Reward *float64 `json:"reward,omitempty"`
	// Promoted is the promoted version.
	Promoted *int `json:"promoted,omitempty"`
	// Policies has the promoted version of each policy by its name, if each of several is
	// promoted alone. Promoted is then missing.
	Policies map[string]int `json:"policies,omitempty"`
	// Only is the split of a run that trains nothing.
	Only string `json:"evaluation_only,omitempty"`
	// Optimizer is the algorithm of a run that searches for prompts. Promoted is then a
	// version of the prompts, and Reward the best mean on the validation split, once the
	// search has ended.
	Optimizer string `json:"optimizer,omitempty"`
	// SpecDigest is the digest of the spec; `fulgurite plan --json` has it, too.
	SpecDigest string    `json:"spec_digest"`
	WorkflowID string    `json:"workflow_id"`
	Created    time.Time `json:"created"`
	Finished   time.Time `json:"finished,omitzero"`
}

// Outputs returns what the command prints as JSON.
func (*List) Outputs() []any { return []any{[]listedRun{}} }

// Run lists the runs.
func (c *List) Run(ctx context.Context, s *state.Flags, t *terminal.Terminal) error {
	records, err := s.OpenRecords(ctx, t, c.Records)
	if err != nil {
		return err
	}
	defer records.Close()
	runs, err := records.Store.Runs(ctx)
	if err != nil {
		return err
	}
	runs, doubt := liveAll(ctx, s, t, runs)
	lines := make([]listedRun, len(runs)) // a list also when there is none
	for i, r := range runs {
		if lines[i], err = listed(ctx, records.Store, r); err != nil {
			return fmt.Errorf("run %s: %w", r.Name, err)
		}
		lines[i].Error = s.Place().Complete(lines[i].Error)
	}
	if c.JSON {
		return t.JSON(lines)
	}
	if err := printRuns(t, lines); err != nil {
		return err
	}
	if doubt != "" {
		fmt.Fprintf(t.Err, "fulgurite: %s\n", doubt)
	}
	return nil
}

// listed reads what a list of runs says about one.
func listed(ctx context.Context, db *store.Store, r record.Run) (listedRun, error) {
	out := listedRun{
		Name: r.Name, Status: r.Status, Stop: r.Stop(), Error: r.Failure().Error,
		SpecDigest: r.SpecDigest, WorkflowID: r.WorkflowID, Created: r.Created, Finished: r.Finished,
	}
	if sp, err := spec.Stored(r.Spec); err == nil { // one that was refused may be anything
		if out.Only = sp.Evaluation.Only; out.Only == "" {
			out.Steps = stepsOf(sp, r)
		}
		if sp.Optimizer != nil {
			out.Optimizer = sp.Optimizer.Algorithm
			out.Reward = bestOf(r)
		}
	}
	if err := out.addProgress(ctx, db, promptsearch.PolicyOf(r)); err != nil {
		return out, err
	}
	if err := out.addPolicies(ctx, db, r); err != nil {
		return out, err
	}
	if r.Status != record.Running {
		return out, nil
	}
	asked, err := db.Actions(ctx, r.Name, maxActions)
	if err != nil {
		return out, fmt.Errorf("read its actions: %w", err)
	}
	for _, a := range asked {
		if a.Name == record.ActionStop && a.Outcome == record.ActionDone && !a.Input.Now && a.At.After(r.Created) && (a.Result.Step < out.Steps || out.Optimizer != "") {
			out.Stop = &record.Stop{By: a.By, Reason: a.Reason, After: a.Result.Step, Of: out.Steps}
		}
	}
	return out, nil
}

// bestOf returns the best mean on the validation split of a search that has ended, nil if
// there is none.
func bestOf(r record.Run) *float64 {
	var result workflows.TrainingResult
	if len(r.Result) == 0 || json.Unmarshal(r.Result, &result) != nil || result.SearchEnd == nil {
		return nil
	}
	return result.SearchEnd.Score
}

// maxActions is among how many of a run's newest actions the request to stop is looked
// for. The run refuses most others once it stops.
const maxActions = 100

// addProgress adds the newest step, or the evaluation, and the promoted version.
func (l *listedRun) addProgress(ctx context.Context, db *store.Store, policy string) error {
	last, err := db.LastStep(ctx, l.Name, model.DefaultPolicy)
	switch {
	case err == nil:
		l.Step = last.Step
		if mean, ok := last.Metrics["reward/mean"]; ok {
			l.Reward = &mean
		}
	case !errors.Is(err, record.ErrNotFound):
		return fmt.Errorf("read its last step: %w", err)
	}
	if l.Only != "" {
		all, err := db.Evaluations(ctx, l.Name)
		if err != nil {
			return fmt.Errorf("read its evaluation: %w", err)
		}
		if len(all) > 0 {
			l.Reward = &all[len(all)-1].Mean
		}
	}
	moved, err := db.Promoted(ctx, l.Name, policy)
	switch {
	case err == nil:
		l.Promoted = &moved.Version
	case !errors.Is(err, record.ErrNotFound):
		return fmt.Errorf("read its promoted version: %w", err)
	}
	return nil
}

// addPolicies adds the promoted version of each policy that has one, if each is promoted alone.
func (l *listedRun) addPolicies(ctx context.Context, db *store.Store, r record.Run) error {
	sp, err := spec.Stored(r.Spec)
	if err != nil || !sp.Promotion.Alone {
		return nil // a spec that was refused may be anything
	}
	for _, name := range sp.PolicyNames() {
		moved, err := db.Promoted(ctx, l.Name, name)
		switch {
		case err == nil:
			if l.Policies == nil {
				l.Policies = map[string]int{}
			}
			l.Policies[name] = moved.Version
		case !errors.Is(err, record.ErrNotFound):
			return fmt.Errorf("read the promoted version of policy %s: %w", name, err)
		}
	}
	return nil
}

// policiesText names what is promoted of each policy, such as "promoted checker@4, writer@2".
func (l *listedRun) policiesText() string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(l.Policies)) {
		parts = append(parts, fmt.Sprintf("%s@%d", name, l.Policies[name]))
	}
	if len(parts) == 0 {
		return ""
	}
	return "promoted " + strings.Join(parts, ", ")
}

// printRuns prints a table. Its last column has no heading: it says what is promoted of each
// policy, why a run is being stopped, or why it did not complete.
func printRuns(t *terminal.Terminal, lines []listedRun) error {
	if len(lines) == 0 {
		return nil
	}
	w := tabwriter.NewWriter(t.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "run\tstatus\tstep\treward\tbegan")
	for _, l := range lines {
		status, step, reward, why := string(l.Status), fmt.Sprintf("%d/%d", l.Step, l.Steps), "", shortLine(l.Error, reasonWidth)
		switch {
		case l.Only != "":
			step = "on " + l.Only
		case l.Optimizer != "":
			step = l.Optimizer + " search"
		}
		if l.Reward != nil {
			reward = fmt.Sprintf("%.3f", *l.Reward)
		}
		if l.Stop != nil {
			why = shortLine(l.Stop.Text(), reasonWidth)
			if l.Status == record.Running {
				status = "stopping"
			}
		}
		if text := l.policiesText(); text != "" {
			why = strings.TrimSuffix(text+"; "+why, "; ")
		}
		if why != "" {
			why = "\t" + terminal.Escape(why)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s%s\n", l.Name, status, step, reward, readable.Time(l.Created), why)
	}
	return w.Flush()
}

// shortLine returns the beginning of a text, cut to fit into a table.
func shortLine(text string, most int) string {
	line, rest, _ := strings.Cut(text, "\n")
	if letters := []rune(line); len(letters) > most {
		return string(letters[:most-1]) + "…"
	}
	if rest != "" {
		line += " …"
	}
	return line
}
