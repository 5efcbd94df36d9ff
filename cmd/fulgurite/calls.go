package main

import (
	"context"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/fulgurite/fulgurite/credit/attribution"
	"github.com/fulgurite/fulgurite/credit/signals"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/store"
	"github.com/fulgurite/fulgurite/trace"
)

type callsCommand struct {
	Attempt string      `arg:"" help:"Address of an attempt, RUN/KIND-STEP/TASK/SAMPLE/ATTEMPT, or the beginning of one, such as RUN."`
	Within  string      `arg:"" optional:"" name:"address" help:"The rest of the address, after RUN."`
	Text    bool        `help:"Print what was said: messages, tools, replies, rewards, advantages, and what the agent printed."`
	JSON    bool        `help:"Print JSON; with --text, what was said too." name:"json"`
	Choice  choiceFlags `embed:""`
	Records recordFlags `embed:""`
}

// attemptCalls is what is on record of an attempt.
type attemptCalls struct {
	trace.Attempt
	attemptText
	List []namedCall `json:"history"`
	// Tools are the spans of tools that ran.
	Tools []trace.Span `json:"tools"`
	// Refusals are the calls that got an error for a reply, by code.
	Refusals []trace.Refusal `json:"refusals"`
}

// namedCall is a call and who made it.
type namedCall struct {
	ID       string           `json:"id"`
	Seq      int              `json:"seq"`
	API      string           `json:"api"`
	Caller   attribution.Name `json:"caller"`
	Version  int              `json:"version"`
	Prompt   int              `json:"prompt_tokens"`
	Sampled  int              `json:"sampled_tokens"`
	Finish   string           `json:"finish"`
	Replayed int              `json:"replayed_from,omitempty"`
	Drift    bool             `json:"drift,omitempty"`
	Problem  string           `json:"parse_error,omitempty"`
	Signals  []signals.Signal `json:"signals"`
	Seconds  float64          `json:"seconds"`
	callText
}

// show reads an attempt and hands it on.
func (c *callsCommand) show(ctx context.Context, db *store.Store, address trace.Address, use func(*attemptCalls, signals.Attempt) error) (err error) {
	var out attemptCalls
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
	out.fill(seen)
	return use(&out, seen)
}

func (a *attemptCalls) fill(seen signals.Attempt) {
	names, observed := attribution.Of(seen.History, seen.Spans, seen.Terms.Ignore), signals.Of(seen)
	a.List, a.Tools, a.Refusals = []namedCall{}, []trace.Span{}, append([]trace.Refusal{}, a.Refusals...)
	for i, c := range seen.History {
		api := c.API
		if api == "" {
			api = "chat"
		}
		a.List = append(a.List, namedCall{
			ID: c.ID, Seq: c.Seq, API: api, Caller: names[i], Version: c.Version, Prompt: len(c.Prompt), Sampled: len(c.Completion),
			Finish: c.Finish, Replayed: c.ReplayedFrom, Drift: c.Drift, Problem: c.ParseError, Signals: observed[i].Signals, Seconds: c.Duration.Seconds(),
		})
	}
	for _, s := range seen.Spans {
		if s.Kind == trace.ToolSpan {
			a.Tools = append(a.Tools, s)
		}
	}
}

func (a *attemptCalls) print(t *terminal) error {
	outcome := string(a.Outcome)
	if outcome == "" {
		outcome = "running"
	}
	reward := ""
	if a.Reward != nil {
		reward = fmt.Sprintf(", reward %g", *a.Reward)
	}
	t.printf("%s: task %s, %s%s\n", a.Address, escapeControls(a.TaskID), outcome, reward)
	w := tabwriter.NewWriter(t.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "call\tagent\tby\tapi\tversion\tprompt\tsampled\tfinish\tremarks")
	for _, c := range a.List {
		var remarks []string
		if c.Replayed > 0 {
			remarks = append(remarks, fmt.Sprintf("replayed from attempt %d", c.Replayed))
		}
		if c.Drift {
			remarks = append(remarks, "drift")
		}
		if c.Problem != "" {
			remarks = append(remarks, c.Problem)
		}
		for _, s := range c.Signals {
			if s.Name != spec.SignalParseFailure { // the problem has just been told
				remarks = append(remarks, s.Text())
			}
		}
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%d\t%d\t%d\t%s\t%s\n", c.Seq, escapeControls(c.Caller.Agent), c.Caller.Source, c.API, c.Version, c.Prompt, c.Sampled, c.Finish, escapeControls(strings.Join(remarks, "; ")))
	}
	for _, s := range a.Tools {
		state := "ok"
		if s.Failed {
			state = "failed: " + s.Message
		}
		fmt.Fprintf(w, "tool\t%s\t\t\t\t\t\t\t%s\n", escapeControls(s.Tool), escapeControls(state))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, r := range a.Refusals {
		t.printf("refused: %s\n", r)
	}
	if a.Error != "" {
		t.printf("%s\n", a.Error)
	}
	return nil
}
