package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/fulgurite/fulgurite/credit/signals"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/store"
	"github.com/fulgurite/fulgurite/trace"
)

// choiceFlags say which attempts of a run are meant.
type choiceFlags struct {
	Kind   string   `help:"Only attempts of this kind, such as train, gate or test." placeholder:"KIND"`
	Step   *int     `help:"Only attempts of this step." placeholder:"N"`
	Task   []string `help:"Only attempts at these tasks: the id in the task file, or its number in an address." sep:"none" placeholder:"ID"`
	Sample *int     `help:"Only this sample of each task." placeholder:"N"`
	Failed bool     `help:"Only attempts that failed or ended by a fault."`
}

// place is where an address begins: a run, and perhaps parts of what comes after it.
type place []string

// placeOf reads the beginning of an address, given in one piece or two.
func placeOf(first, rest string) (place, error) {
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

// has reports whether an address begins so.
func (p place) has(a trace.Address) bool {
	whole := strings.Split(a.String(), "/")
	return slices.Equal(whole[:min(len(p), len(whole))], p)
}

func (f choiceFlags) wants(t record.Trial) bool {
	switch {
	case f.Kind != "" && string(t.Kind) != f.Kind,
		f.Step != nil && t.Step != *f.Step,
		f.Sample != nil && t.Sample != *f.Sample,
		len(f.Task) > 0 && !slices.Contains(f.Task, t.TaskID) && !slices.Contains(f.Task, strconv.Itoa(t.Task)),
		f.Failed && t.Outcome != trace.AgentFailed && t.Outcome != trace.InfraFault:
		return false
	}
	return true
}

// Run shows one attempt, or those of a run that are wanted.
func (c *callsCommand) Run(ctx context.Context, s *shared, t *terminal) error {
	p, err := placeOf(c.Attempt, c.Within)
	if err != nil {
		return usageError{err}
	}
	db, blobs, err := s.openRecords(ctx, t, c.Records)
	if err != nil {
		return err
	}
	defer db.Close()
	batches := batchReader{db: db, blobs: blobs}
	if len(p) == 5 {
		address, err := trace.ParseAddress(strings.Join(p, "/"))
		if err != nil {
			return usageError{err}
		}
		return c.show(ctx, db, address, func(a *attemptCalls, seen signals.Attempt) error { return c.one(ctx, t, &batches, a, seen) })
	}
	trials, err := c.trials(ctx, db, p)
	if err != nil {
		return err
	}
	if err := c.many(ctx, t, db, &batches, trials); err != nil || c.JSON || len(p) > 1 {
		return err
	}
	return printRefusals(ctx, t, db, p[0])
}

// trials are the attempts that are wanted; that there are none is an error.
func (c *callsCommand) trials(ctx context.Context, db *store.Store, p place) ([]record.Trial, error) {
	if _, err := db.Run(ctx, p[0]); err != nil {
		return nil, err
	}
	all, err := db.Trials(ctx, p[0], mainPolicy)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(t record.Trial) bool { return !p.has(t.Address) || !c.Choice.wants(t) })
	if len(all) == 0 {
		return nil, fmt.Errorf("no attempt of %s is as you say", strings.Join(p, "/"))
	}
	return all, nil
}

// one prints an attempt.
func (c *callsCommand) one(ctx context.Context, t *terminal, batches *batchReader, a *attemptCalls, seen signals.Attempt) error {
	if c.Text {
		if err := a.tell(ctx, batches, seen); err != nil {
			return err
		}
	}
	switch {
	case c.JSON:
		return t.json(a)
	case c.Text:
		a.write(t)
		return nil
	}
	return a.print(t)
}

// many lists attempts, or prints each as one is printed; JSON is an array.
func (c *callsCommand) many(ctx context.Context, t *terminal, db *store.Store, batches *batchReader, trials []record.Trial) error {
	if !c.Text && !c.JSON {
		return listTrials(t, trials)
	}
	var all []*attemptCalls
	for i, trial := range trials {
		err := c.show(ctx, db, trial.Address, func(a *attemptCalls, seen signals.Attempt) error {
			if !c.JSON {
				if i > 0 {
					t.printf("\n")
				}
				return c.one(ctx, t, batches, a, seen)
			}
			all = append(all, a)
			if !c.Text {
				return nil
			}
			return a.tell(ctx, batches, seen)
		})
		if err != nil {
			return err
		}
	}
	if c.JSON {
		return t.json(all)
	}
	return nil
}

func listTrials(t *terminal, trials []record.Trial) error {
	w := tabwriter.NewWriter(t.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "attempt\ttask\toutcome\tfailure\treward\tcalls\ttokens")
	for _, trial := range trials {
		reward := ""
		if trial.Reward != nil {
			reward = fmt.Sprintf("%g", *trial.Reward)
		}
		outcome := string(trial.Outcome)
		if trial.Outcome == trace.Running {
			outcome = "running"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%d\t%d\n", trial.Address, escapeControls(trial.TaskID), outcome, escapeControls(trial.Failure), reward, trial.Calls, trial.Tokens)
	}
	return w.Flush()
}
