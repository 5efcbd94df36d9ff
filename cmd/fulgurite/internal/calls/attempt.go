package calls

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/terminal"
	"github.com/fulgurite/fulgurite/credit/attribution"
	"github.com/fulgurite/fulgurite/credit/signals"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
)

// attemptCalls is the record of an attempt.
type attemptCalls struct {
	record.Attempt
	attemptText
	// State is what became of the attempt, also where it has no outcome.
	State record.AttemptState `json:"state"`
	// CutOff counts the calls whose reply ended at a limit of tokens.
	CutOff int         `json:"cut_off"`
	List   []namedCall `json:"history"`
	// Tools are the spans of tools that ran.
	Tools []record.Span `json:"tools"`
	// Refusals are the calls that got an error for a reply, by code.
	Refusals []record.Refusal `json:"refusals"`
	// Draw is why a curriculum chose the task, if one did.
	Draw *record.Draw `json:"draw,omitempty"`
}

// namedCall is a call and who made it.
type namedCall struct {
	ID       string           `json:"id"`
	Seq      int              `json:"seq"`
	API      string           `json:"api"`
	Caller   attribution.Name `json:"caller"`
	Version  int              `json:"version"`
	Server   string           `json:"server,omitempty"` // the external server that sampled
	Prompt   int              `json:"prompt_tokens"`
	Sampled  int              `json:"sampled_tokens"`
	Finish   string           `json:"finish"`
	Replayed int              `json:"replayed_from,omitempty"`
	Drift    bool             `json:"drift,omitempty"`
	Partly   bool             `json:"partly_read,omitempty"` // the agent closed its stream
	Problem  string           `json:"parse_error,omitempty"`
	Signals  []signals.Signal `json:"signals"`
	Seconds  float64          `json:"seconds"`
	callText
}

func (a *attemptCalls) fill(seen signals.Attempt) {
	names, observed := attribution.Of(seen.History, seen.Spans, seen.Terms.Ignore), signals.Of(seen)
	a.List, a.Tools, a.Refusals = []namedCall{}, []record.Span{}, append([]record.Refusal{}, a.Refusals...)
	for i, c := range seen.History {
		if c.CutOff() {
			a.CutOff++
		}
		api := c.API
		if api == "" {
			api = "chat"
		}
		a.List = append(a.List, namedCall{
			ID: c.ID, Seq: c.Seq, API: api, Caller: names[i], Version: c.Version, Server: c.Server, Prompt: len(c.Prompt), Sampled: len(c.Completion),
			Finish: c.Finish, Replayed: c.ReplayedFrom, Drift: c.Drift, Partly: c.PartlyRead, Problem: c.ParseError, Signals: observed[i].Signals, Seconds: c.Duration.Seconds(),
		})
	}
	for _, s := range seen.Spans {
		if s.Kind == record.ToolSpan {
			a.Tools = append(a.Tools, s)
		}
	}
}

// heading returns the attempt's outcome in one line.
func (a *attemptCalls) heading() string {
	line := fmt.Sprintf("%s: task %s, %s", a.Address, terminal.Escape(a.TaskID), a.State)
	if a.Reward != nil {
		line += fmt.Sprintf(", reward %g", *a.Reward)
	}
	if a.Advantage != nil {
		line += fmt.Sprintf(", advantage %.4g", *a.Advantage)
	}
	if a.Draw != nil {
		line += ", chosen as " + string(a.Draw.Why)
		if a.Draw.Rate != nil {
			line += fmt.Sprintf(" (%.3g)", *a.Draw.Rate)
		}
	}
	return line
}

func (a *attemptCalls) print(t *terminal.Terminal) error {
	t.Printf("%s\n", a.heading())
	if a.Verdict != "" {
		t.Printf("%s\n", terminal.Escape(a.Verdict))
	}
	w := tabwriter.NewWriter(t.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "call\tagent\tby\tapi\tversion\tprompt\tsampled\tfinish\tremarks")
	for _, c := range a.List {
		var remarks []string
		if c.Finish == record.FinishLength {
			remarks = append(remarks, "cut off at a limit of tokens")
		}
		if c.Server != "" {
			remarks = append(remarks, "at "+c.Server)
		}
		if c.Replayed > 0 {
			remarks = append(remarks, fmt.Sprintf("replayed from attempt %d", c.Replayed))
		}
		if c.Drift {
			remarks = append(remarks, "drift")
		}
		if c.Partly {
			remarks = append(remarks, "read in part")
		}
		if c.Problem != "" {
			remarks = append(remarks, c.Problem)
		}
		for _, s := range c.Signals {
			if s.Name != spec.SignalParseFailure { // the problem is already among the remarks
				remarks = append(remarks, s.Text())
			}
		}
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%d\t%d\t%d\t%s\t%s\n", c.Seq, terminal.Escape(c.Caller.Agent), c.Caller.Source, c.API, c.Version, c.Prompt, c.Sampled, c.Finish, terminal.Escape(strings.Join(remarks, "; ")))
	}
	for _, s := range a.Tools {
		state := "ok"
		if s.Failed {
			state = "failed: " + s.Message
		}
		fmt.Fprintf(w, "tool\t%s\t\t\t\t\t\t\t%s\n", terminal.Escape(s.Tool), terminal.Escape(state))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, r := range a.Refusals {
		t.Printf("refused: %s\n", r)
	}
	if a.Error != "" {
		t.Printf("%s\n", a.Error)
	}
	return nil
}
