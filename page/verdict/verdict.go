package verdict

import (
	"fmt"
	"strings"

	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/tasks"
	"github.com/fulgurite/fulgurite/trace"
)

// Verdict describes the outcome of an attempt in words.
type Verdict struct {
	Text string // empty if only the reward is known
	Good bool
}

// Of describes the outcome of an attempt at a task under a grader. A task without an id
// counts as unknown.
func Of(g spec.Grader, task tasks.Task, a trace.Attempt) Verdict {
	switch {
	case a.Outcome == trace.AgentFailed && a.Reward != nil:
		return Verdict{Text: fmt.Sprintf("The agent %s: that counts as %g.", Failure(a.Failure), *a.Reward)}
	case a.Outcome == trace.AgentFailed:
		return Verdict{Text: fmt.Sprintf("The agent %s.", Failure(a.Failure))}
	case a.Outcome == trace.InfraFault:
		return Verdict{Text: "A fault of the machines ended it: it has no reward."}
	case a.Outcome != trace.Completed || a.Reward == nil:
		return Verdict{}
	}
	switch g.Type {
	case spec.GraderExact, spec.GraderNumeric, spec.GraderContains, spec.GraderQA:
		if task.ID != "" {
			return compared(g, task, a.Result)
		}
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
		return Verdict{"The answer is in the result.", true}
	case spec.Reaches(share, 1):
		return Verdict{"The answer is right.", true}
	case strings.TrimSpace(result) == "":
		return Verdict{Text: "The agent returned nothing."}
	case share > 0:
		return Verdict{Text: "The answer is right in part."}
	case g.Type == spec.GraderContains:
		return Verdict{Text: "The answer is not in the result."}
	}
	return Verdict{Text: "The answer differs."}
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
		"output_limit": "wrote too much", "memory_limit": "took too much memory", "call_limit": "made too many calls", "token_limit": "sampled too many tokens",
		"killed": "was killed", "no_reward": "reported no reward", "bad_reward": "reported something that is not a reward",
		"truncated": "had a reply that was cut off", "retry": "asked for another attempt",
	}
}

// Cause returns the line of an error that most likely says what happened. If a command
// ended with an error, that is the last line of its output. For other errors it is the
// first line.
func Cause(failure, text string) string {
	text = strings.TrimSpace(text)
	if failure == "exit" {
		return text[strings.LastIndexByte(text, '\n')+1:]
	}
	line, _, _ := strings.Cut(text, "\n")
	return line
}
