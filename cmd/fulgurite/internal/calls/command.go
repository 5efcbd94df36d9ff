// Package calls implements `fulgurite calls`, which shows the attempts of a run, their
// model calls and the texts of these calls.
package calls

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/state"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/status"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/terminal"
	"github.com/fulgurite/fulgurite/credit/signals"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/report"
	"github.com/fulgurite/fulgurite/store"
)

// Command is `fulgurite calls`.
type Command struct {
	Attempt string            `arg:"" help:"Address of an attempt, RUN/KIND-STEP/TASK/SAMPLE/ATTEMPT, or the beginning of one, such as RUN."`
	Within  string            `arg:"" optional:"" name:"address" help:"The rest of the address, after RUN."`
	Text    bool              `help:"Print what was said: messages, tools, replies, rewards, advantages, and what the agent printed."`
	JSON    bool              `help:"Print JSON; with --text, what was said too." name:"json"`
	Choice  choiceFlags       `embed:""`
	Records state.RecordFlags `embed:""`
}

// choiceFlags say which attempts of a run are meant.
type choiceFlags struct {
	Kind   string   `help:"Only attempts of this kind, such as train, gate or test." placeholder:"KIND"`
	Step   *int     `help:"Only attempts of this step." placeholder:"N"`
	Task   []string `help:"Only attempts at these tasks: the id in the task file, or its number in an address." sep:"none" placeholder:"ID"`
	Sample *int     `help:"Only this sample of each task." placeholder:"N"`
	Failed bool     `help:"Only attempts that failed, were lost or ended by a fault."`
	CutOff bool     `help:"Only attempts with a reply that was cut off at a limit of tokens."`
}

// prefix is the beginning of an address: the run, and possibly some of the parts that
// follow it.
type prefix []string

// parsePrefix reads the beginning of an address, given in one piece or two.
func parsePrefix(first, rest string) (prefix, error) {
	if rest != "" && rest != first && !strings.HasPrefix(rest, first+"/") {
		first += "/" + rest
	} else if rest != "" {
		first = rest
	}
	parts := strings.Split(strings.Trim(first, "/"), "/")
	if len(parts) > 5 || slices.Contains(parts, "") {
		return nil, fmt.Errorf("bad address %q: want RUN/KIND-STEP/TASK/SAMPLE/ATTEMPT, or the beginning of it", first)
	}
	return parts, nil
}

// of reports whether the address begins with the prefix.
func (p prefix) of(a record.Address) bool {
	whole := strings.Split(a.String(), "/")
	return slices.Equal(whole[:min(len(p), len(whole))], p)
}

func (f choiceFlags) wants(t listed) bool {
	switch {
	case f.Kind != "" && string(t.Kind) != f.Kind,
		f.Step != nil && t.Step != *f.Step,
		f.Sample != nil && t.Sample != *f.Sample,
		len(f.Task) > 0 && !slices.Contains(f.Task, t.TaskID) && !slices.Contains(f.Task, strconv.Itoa(t.Task)),
		f.CutOff && t.CutOff == 0,
		f.Failed && t.state != record.AttemptAgentFailed && t.state != record.AttemptInfraFault && t.state != record.AttemptLost:
		return false
	}
	return true
}

// Outputs returns what the command prints as JSON.
func (*Command) Outputs() []any { return []any{attemptCalls{}, []attemptCalls{}} }

// Run shows one attempt, or the attempts of a run that the flags select.
func (c *Command) Run(ctx context.Context, s *state.Flags, t *terminal.Terminal) error {
	p, err := parsePrefix(c.Attempt, c.Within)
	if err != nil {
		return terminal.Usage(err)
	}
	records, err := s.OpenRecords(ctx, t, c.Records)
	if err != nil {
		return err
	}
	defer records.Close()
	live := status.LiveStore{Store: records.Store, State: s, Terminal: t}
	texts := textReader{batches: batchReader{db: records.Store, blobs: records.Blobs}, prompts: records.Prompts.Set}
	if len(p) == 5 {
		address, err := record.ParseAddress(strings.Join(p, "/"))
		if err != nil {
			return terminal.Usage(err)
		}
		state, err := c.state(ctx, live, address)
		if err != nil {
			return err
		}
		return c.show(ctx, records.Store, address, state, func(a *attemptCalls, seen signals.Attempt) error { return c.one(ctx, t, &texts, a, seen) })
	}
	trials, err := c.trials(ctx, live, p)
	if err != nil {
		return err
	}
	if err := c.many(ctx, t, records.Store, &texts, trials); err != nil || c.JSON || len(p) > 1 {
		return err
	}
	return printRefusals(ctx, t, records.Store, p[0])
}

// listed is an attempt in a list, with what became of it.
type listed struct {
	record.Trial
	state record.AttemptState
}

// trials returns the selected attempts; it is an error if there are none.
func (c *Command) trials(ctx context.Context, db status.LiveStore, p prefix) ([]listed, error) {
	run, err := db.Store.Run(ctx, p[0])
	if err != nil {
		return nil, err
	}
	all, err := db.Trials(ctx, p[0], model.DefaultPolicy)
	if err != nil {
		return nil, err
	}
	states := record.StatesOf(all, run)
	if slices.Contains(states, record.AttemptRunning) { // the run may have ended without a word in the store
		if run, err = db.Run(ctx, p[0]); err != nil {
			return nil, err
		}
		states = record.StatesOf(all, run)
	}
	var out []listed
	for i, t := range all {
		if one := (listed{t, states[i]}); p.of(t.Address) && c.Choice.wants(one) {
			out = append(out, one)
		}
	}
	if len(out) == 0 {
		return nil, terminal.Usagef("no attempt of %s matches", strings.Join(p, "/"))
	}
	return out, nil
}

// state returns what became of an attempt.
func (c *Command) state(ctx context.Context, db status.LiveStore, at record.Address) (record.AttemptState, error) {
	attempt, err := db.Attempt(ctx, at)
	if err != nil || attempt.Outcome != record.OutcomeRunning {
		return record.AttemptState(attempt.Outcome), err
	}
	group, err := db.TrialsOfGroup(ctx, at.Run, at.Kind, at.Step, at.Task)
	if err != nil {
		return "", err
	}
	run, err := db.Run(ctx, at.Run)
	if err != nil {
		return "", err
	}
	replaced := slices.ContainsFunc(group, func(t record.Trial) bool { return t.RolloutID == at.RolloutID && t.Attempt > at.Attempt })
	return record.StateOf(attempt.Outcome, replaced, run), nil
}

// show reads an attempt in a state and passes it to use.
func (c *Command) show(ctx context.Context, db *store.Store, address record.Address, state record.AttemptState, use func(*attemptCalls, signals.Attempt) error) (err error) {
	out := attemptCalls{State: state}
	if out.Attempt, err = db.Attempt(ctx, address); err != nil {
		return err
	}
	seen := signals.Attempt{Attempt: out.Attempt}
	if seen.History, err = db.Exchanges(ctx, address); err != nil {
		return err
	}
	if seen.Rewards, err = db.Rewards(ctx, address); err != nil {
		return err
	}
	if seen.Spans, err = db.Spans(ctx, address); err != nil {
		return err
	}
	if seen.Events, err = db.Events(ctx, address); err != nil {
		return err
	}
	if out.Refusals, err = db.Refusals(ctx, address); err != nil {
		return err
	}
	if out.Output, err = db.Output(ctx, address); err != nil {
		return err
	}
	choice, err := db.Choice(ctx, address.Run, model.DefaultPolicy, address.Step)
	switch trained := address.Kind == record.Train || address.Kind == record.Reserve; {
	case err == nil && trained:
		draw := choice.DrawOf(address.Kind, address.Task)
		out.Draw = &draw
	case err != nil && !errors.Is(err, record.ErrNotFound):
		return err
	}
	out.fill(seen)
	return use(&out, seen)
}

// one prints an attempt.
func (c *Command) one(ctx context.Context, t *terminal.Terminal, texts *textReader, a *attemptCalls, seen signals.Attempt) error {
	if c.Text {
		if err := a.addText(ctx, texts, seen); err != nil {
			return err
		}
	}
	switch {
	case c.JSON:
		return t.JSON(a)
	case c.Text:
		a.printText(t)
		return nil
	}
	return a.print(t)
}

// many lists attempts in a table. With --text it prints each attempt as one does, and
// with --json it prints one array.
func (c *Command) many(ctx context.Context, t *terminal.Terminal, db *store.Store, texts *textReader, trials []listed) error {
	if !c.Text && !c.JSON {
		return listTrials(t, trials)
	}
	var all []*attemptCalls
	for i, trial := range trials {
		err := c.show(ctx, db, trial.Address, trial.state, func(a *attemptCalls, seen signals.Attempt) error {
			if !c.JSON {
				if i > 0 {
					t.Printf("\n")
				}
				return c.one(ctx, t, texts, a, seen)
			}
			all = append(all, a)
			if !c.Text {
				return nil
			}
			return a.addText(ctx, texts, seen)
		})
		if err != nil {
			return err
		}
	}
	if c.JSON {
		return t.JSON(all)
	}
	return nil
}

func listTrials(t *terminal.Terminal, trials []listed) error {
	w := tabwriter.NewWriter(t.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "attempt\ttask\toutcome\tfailure\treward\tcalls\tcut off\ttokens")
	for _, trial := range trials {
		reward := ""
		if trial.Reward != nil {
			reward = fmt.Sprintf("%g", *trial.Reward)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%d\t%d\t%d\n", trial.Address, terminal.Escape(trial.TaskID), trial.state, terminal.Escape(trial.Failure), reward, trial.Calls, trial.CutOff, trial.Tokens)
	}
	return w.Flush()
}

// printRefusals prints the refused calls of all attempts of a run, by code.
func printRefusals(ctx context.Context, t *terminal.Terminal, db *store.Store, run string) error {
	counts, err := db.RefusalsOfRun(ctx, run, model.DefaultPolicy)
	if err != nil {
		return err
	}
	for _, r := range report.Refusals(counts) {
		t.Printf("refused: %s\n", r.Text())
	}
	return nil
}
