package main

import (
	"fmt"
	"strings"
)

func (r *tryReport) print(t *terminal) {
	for _, a := range r.Attempts {
		t.printf("%s  task %s  %s  reward %g  result %q\n", a.Attempt, visible(a.Task, ""), outcomeOf(a), a.Reward, a.Result)
		if a.LinesBefore > 0 {
			t.printf("    %d lines of output before the last one are no part of the result\n", a.LinesBefore)
		}
		if a.Error != "" {
			t.printf("    %s\n", visible(a.Error, "    "))
		}
		for i, c := range a.Calls {
			c.print(t, i)
		}
		for _, f := range a.Refusals {
			t.printf("    refused %d times: %s: %s\n", f.Count, visible(f.Code, ""), visible(f.Message, "        "))
		}
	}
	r.Twice.print(t)
	r.printVerdict(t)
	if r.Kept != "" {
		t.printf("The trial is in %s: fulgurite calls --dir %s ATTEMPT\n", r.Kept, r.Kept)
	} else if len(r.Attempts) > 0 && len(r.Problems)+len(r.Warnings) > 0 {
		t.printf("With --keep DIR the trial stays, for `fulgurite calls --dir DIR ATTEMPT`.\n")
	}
}

func outcomeOf(a tryAttempt) string {
	if a.Outcome == "" {
		return "unfinished"
	}
	return string(a.Outcome)
}

func (c tryCall) print(t *terminal, i int) {
	const indent = "            "
	t.printf("    call %d  context %d tokens: %s\n", i, c.Tokens[0], visible(c.Prompt, indent))
	t.printf("%strained %d tokens: %s  (log-probability %.2f)\n", indent, c.Trained, visible(c.Completion, indent), c.Logprob)
	by := fmt.Sprintf("%sby %s (%s)", indent, visible(c.Agent, ""), c.By)
	switch {
	case c.Untrained != "":
		t.printf("%s, not trained: %s\n", by, visible(c.Untrained, ""))
	case c.Advantage != nil:
		t.printf("%s, advantage %.4g\n", by, *c.Advantage)
	default:
		t.printf("%s\n", by)
	}
	if c.HiddenTools {
		t.printf("%sthe model does not see the tools of this request\n", indent)
	}
	if c.Problem != "" {
		t.printf("%s%s\n", indent, visible(c.Problem, indent))
	}
}

func (r *tryReport) printVerdict(t *terminal) {
	list := func(title string, of []string) {
		if len(of) == 0 {
			return
		}
		t.printf("\n%s\n", title)
		for _, text := range of {
			t.printf("  - %s\n", visible(text, "    "))
		}
	}
	if len(r.Problems)+len(r.Warnings) == 0 {
		t.printf("\nNothing stands in the way of learning.\n")
	}
	list("This would stop learning:", r.Problems)
	list("This may stand in the way of learning:", r.Warnings)
}

// visible is a text without what a terminal would obey; its lines after the first one
// are indented.
func visible(text, indent string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = escapeControls(line)
	}
	return strings.Join(lines, "\n"+indent)
}
