package trial

import (
	"fmt"
	"strings"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/terminal"
	"github.com/fulgurite/fulgurite/internal/readable"
	"github.com/fulgurite/fulgurite/internal/shell"
	"github.com/fulgurite/fulgurite/internal/truncate"
)

// resultBytes is how much of a result is printed; --json has all of it.
const resultBytes = 2000

func (r *report) print(t *terminal.Terminal) {
	if r.Adapter != "" {
		t.Printf("The model starts from the adapter %s.\n", r.Adapter)
	}
	for _, a := range r.Attempts {
		t.Printf("%s  task %s  %s  %s  result %q\n", a.Attempt, visible(a.Task, ""), outcomeOf(a), rewardOf(a), truncate.Ellipsis(a.Result, resultBytes))
		if a.LinesBefore > 0 {
			t.Printf("    %d lines of output before the last one are not part of the result\n", a.LinesBefore)
		}
		if a.Verdict != "" {
			t.Printf("    %s\n", visible(a.Verdict, "    "))
		}
		if a.Error != "" {
			t.Printf("    %s\n", visible(a.Error, "    "))
		}
		for i, c := range a.Calls {
			c.print(t, i)
		}
		for _, f := range a.Refusals {
			t.Printf("    refused %d times: %s: %s\n", f.Count, visible(f.Code, ""), visible(f.Message, "        "))
		}
	}
	r.Twice.print(t)
	r.printVerdict(t)
	if r.Kept != "" {
		t.Printf("The trial is in %s: %s\n", r.Kept, shell.Place{Dir: r.Kept}.Command("calls", "ATTEMPT"))
	} else if len(r.Attempts) > 0 && len(r.Problems)+len(r.Warnings) > 0 {
		t.Printf("With --keep DIR the trial stays, for `%s`.\n", shell.Place{Dir: "DIR"}.Command("calls", "ATTEMPT"))
	}
}

func outcomeOf(a attempt) string {
	if a.Outcome == "" {
		return "unfinished"
	}
	return string(a.Outcome)
}

func rewardOf(a attempt) string {
	if a.Reward == nil {
		return "not graded"
	}
	return fmt.Sprintf("reward %g", *a.Reward)
}

func (c call) print(t *terminal.Terminal, i int) {
	const indent = "            "
	t.Printf("    call %d  context %s: %s\n", i, readable.Count(c.Tokens[0], "token"), visible(c.Prompt, indent))
	t.Printf("%strained %s: %s  (log-probability %.2f)\n", indent, readable.Count(c.Trained, "token"), visible(c.Completion, indent), c.Logprob)
	by := fmt.Sprintf("%sby %s (%s)", indent, visible(c.Agent, ""), c.By)
	switch {
	case c.Untrained != "":
		t.Printf("%s, not trained: %s\n", by, visible(c.Untrained, ""))
	case c.Advantage != nil:
		t.Printf("%s, advantage %.4g\n", by, *c.Advantage)
	default:
		t.Printf("%s\n", by)
	}
	if c.HiddenTools {
		t.Printf("%sthe model does not see the tools of this request\n", indent)
	}
	if c.Problem != "" {
		t.Printf("%s%s\n", indent, visible(c.Problem, indent))
	}
}

func (r *report) printVerdict(t *terminal.Terminal) {
	list := func(title string, of []string) {
		if len(of) == 0 {
			return
		}
		t.Printf("\n%s\n", title)
		for _, text := range of {
			t.Printf("  - %s\n", visible(text, "    "))
		}
	}
	if len(r.Problems)+len(r.Warnings) == 0 {
		t.Printf("\nFound nothing that would stop learning.\n")
	}
	list("This would stop learning:", r.Problems)
	list("This may slow or stop learning:", r.Warnings)
}

// visible returns a text with its control characters escaped and all lines after the
// first one indented.
func visible(text, indent string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = terminal.Escape(line)
	}
	return strings.Join(lines, "\n"+indent)
}
