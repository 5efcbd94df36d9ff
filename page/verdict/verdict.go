// Package verdict says in words why an attempt got its reward: how its agent ended, and
// whether its result is the task's answer.
//
// It does not grade: the reward is recorded. If the run's grader compares results with
// answers, this package repeats the comparison to describe it. The grader of SQL said why
// when it ran the queries, and that is on record. How other graders decided is not known.
// The texts contain parts that agents wrote, which still have to be cleaned and escaped.
package verdict

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/tasks"
)

// Verdict describes the outcome of an attempt in words.
type Verdict struct {
	Text string // empty if only the reward is known
	Good bool
	// Cause is the line of the agent's error that says why it failed.
	Cause string
}

// Of describes the outcome of an attempt at a task under a grader. A task without an id
// counts as unknown.
func Of(g spec.Grader, task tasks.Task, a record.Attempt) Verdict {
	switch {
	case a.Outcome == record.AgentFailed && a.Reward != nil:
		return Verdict{Text: fmt.Sprintf("The agent %s: that counts as %g.", Failure(a.Failure), *a.Reward), Cause: Cause(a.Failure, a.Error)}
	case a.Outcome == record.AgentFailed:
		return Verdict{Text: fmt.Sprintf("The agent %s.", Failure(a.Failure)), Cause: Cause(a.Failure, a.Error)}
	case a.Outcome == record.InfraFault:
		return Verdict{Text: "A fault of the machines ended it: it has no reward."}
	case a.Outcome != record.OutcomeCompleted || a.Reward == nil:
		return Verdict{}
	}
	switch g.Type {
	case spec.GraderExact, spec.GraderNumeric, spec.GraderContains, spec.GraderQA:
		if task.ID != "" {
			return compared(g, task, a.Result)
		}
	case spec.GraderSQL:
		return queried(a)
	case spec.GraderAgent:
		return Verdict{Text: "The agent reported this reward itself.", Good: *a.Reward > 0}
	case spec.GraderCommand, spec.GraderTasks:
		return Verdict{Text: "A grader of the run's own gave this reward.", Good: *a.Reward > 0}
	case spec.GraderHarbor:
		return Verdict{Text: "The task's own tests gave this reward.", Good: *a.Reward > 0}
	}
	return Verdict{}
}

// compared describes how a result and the answer differ.
func compared(g spec.Grader, task tasks.Task, result string) Verdict {
	share, err := tasks.Grade(g, task, result)
	switch {
	case err != nil:
		return Verdict{}
	case spec.Reaches(share, 1) && g.Type == spec.GraderContains:
		return Verdict{Text: "The answer is in the result.", Good: true}
	case spec.Reaches(share, 1):
		return Verdict{Text: "The answer is right.", Good: true}
	case strings.TrimSpace(result) == "":
		return Verdict{Text: "The agent returned nothing."}
	case share > 0:
		return Verdict{Text: "The answer is right in part."}
	case g.Type == spec.GraderContains:
		return Verdict{Text: "The answer is not in the result."}
	}
	return Verdict{Text: "The answer differs."}
}

// queried describes how a query fared whose result was compared with that of the task's query:
// the grader said it when it ran both.
func queried(a record.Attempt) Verdict {
	switch {
	case *a.Reward >= 1:
		return Verdict{Text: "The query returns what the task's query returns.", Good: true}
	case strings.TrimSpace(a.Result) == "":
		return Verdict{Text: "The agent returned no query."}
	}
	return Verdict{Text: a.Verdict}
}

// Failure describes in words how an agent failed. It returns an unknown word unchanged.
func Failure(word string) string {
	if words := failures()[word]; words != "" {
		return words
	}
	if word == "" {
		return "failed"
	}
	return word
}

// failures returns the descriptions of failures. Each continues "the agent".
func failures() map[string]string {
	return map[string]string{
		"exit": "ended with an error", "error": "returned an error", "panic": "panicked", "timeout": "ran out of time", "hang": "showed no sign of life",
		"output_limit": "wrote too much", "memory_limit": "took too much memory", "process_limit": "ran too many processes", "cpu_limit": "took too much processor time", "call_limit": "made too many calls", "token_limit": "sampled too many tokens",
		"killed": "was killed", "no_reward": "reported no reward", "bad_reward": "reported something that is not a reward",
		"truncated": "had a reply that was cut off", "retry": "asked for another attempt",
	}
}

// causeLine matches lines with which programs say why they end: exceptions of Python, Java and
// JavaScript, panics of Go and Rust, errors of shells, compilers and other tools.
var causeLine = regexp.MustCompile(`^(panic: |fatal error: |thread '.*' panicked|Uncaught |Exception in thread |[\w.$]*(Error|Exception|Interrupt|SystemExit)\b(: |:?$)|(\S+: )*([Ee]rror|ERROR|[Ff]atal|FATAL)(\[\w+\])?: )`)

// Cause returns the line of an error that most likely says what happened: of what a program
// wrote before it ended with an error the last line with which programs say that, or else the
// last one that is not indented. For other errors it is the first line.
func Cause(failure, text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	if failure != "exit" && !strings.Contains(text, "Traceback (most recent call last)") {
		return lines[0]
	}
	plain := ""
	for i, line := range slices.Backward(lines) {
		line = strings.TrimRight(line, " \t\r")
		switch {
		case causeLine.MatchString(line):
			return line
		case plain == "" && line != "" && (i == 0 || strings.TrimLeft(line, " \t") == line):
			plain = line
		}
	}
	return plain
}
