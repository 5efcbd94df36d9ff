package verdict_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/page/verdict"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/tasks"
)

func TestAVerdictSaysWhyAnAttemptGotItsReward(t *testing.T) {
	t.Parallel()
	none, half, all := 0.0, 0.5, 1.0
	task := tasks.Task{ID: "t", Answer: "29"}
	for _, c := range []struct {
		grader  string
		attempt record.Attempt
		want    verdict.Verdict
	}{
		{"exact", record.Attempt{Outcome: record.OutcomeCompleted, Reward: &none, Result: "9"}, verdict.Verdict{Text: "The answer differs."}},
		{"exact", record.Attempt{Outcome: record.OutcomeCompleted, Reward: &all, Result: " 29\n"}, verdict.Verdict{Text: "The answer is right.", Good: true}},
		{"numeric", record.Attempt{Outcome: record.OutcomeCompleted, Reward: &none, Result: "about 30"}, verdict.Verdict{Text: "The answer differs."}},
		{"contains", record.Attempt{Outcome: record.OutcomeCompleted, Reward: &none, Result: "it is 3"}, verdict.Verdict{Text: "The answer is not in the result."}},
		{"qa", record.Attempt{Outcome: record.OutcomeCompleted, Reward: &half, Result: "29 apples"}, verdict.Verdict{Text: "The answer is right in part."}},
		{"exact", record.Attempt{Outcome: record.OutcomeCompleted, Reward: &none}, verdict.Verdict{Text: "The agent returned nothing."}},
		{"sql", record.Attempt{Outcome: record.OutcomeCompleted, Reward: &none, Result: "SELECT x", Verdict: "The query fails: no such column: x."}, verdict.Verdict{Text: "The query fails: no such column: x."}},
		{"sql", record.Attempt{Outcome: record.OutcomeCompleted, Reward: &all, Result: "SELECT 29"}, verdict.Verdict{Text: "The query returns what the task's query returns.", Good: true}},
		{"sql", record.Attempt{Outcome: record.OutcomeCompleted, Reward: &none}, verdict.Verdict{Text: "The agent returned no query."}},
		{"agent", record.Attempt{Outcome: record.OutcomeCompleted, Reward: &half}, verdict.Verdict{Text: "The agent reported this reward itself.", Good: true}},
		{"exact", record.Attempt{Outcome: record.AgentFailed, Failure: "exit", Reward: &none, Error: "exit code 1\nKeyError: 1"}, verdict.Verdict{Text: "The agent ended with an error: that counts as 0.", Cause: "KeyError: 1"}},
		{"exact", record.Attempt{Outcome: record.InfraFault}, verdict.Verdict{Text: "A fault of the machines ended it: it has no reward."}},
		{"exact", record.Attempt{}, verdict.Verdict{}},
	} {
		require.Equal(t, c.want, verdict.Of(spec.Grader{Type: c.grader}, task, c.attempt), c.grader)
	}
	require.Equal(t, verdict.Verdict{}, verdict.Of(spec.Grader{Type: "exact"}, tasks.Task{}, record.Attempt{Outcome: record.OutcomeCompleted, Reward: &none}), "a task that is not kept")
}

func TestTheCauseOfAnErrorIsOneLine(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ failure, text, want string }{
		{"exit", "exit code 3\nFileNotFoundError: no such file: answers.json", "FileNotFoundError: no such file: answers.json"},
		{"exit", "exit: exit code 1\nTraceback:\n  x\nValueError: no\n", "ValueError: no"},
		{"exit", "exit code 1\nTraceback (most recent call last):\n  File \"a.py\"\nopenai.BadRequestError: 400\nsee the log", "openai.BadRequestError: 400"},
		{"exit", "exit code 2\npanic: index out of range [5]\n\ngoroutine 1 [running]:\nmain.main()\n\t/x.go:5 +0x1", "panic: index out of range [5]"},
		{"exit", "exit code 1\nthrow new Error(1)\n^\n\nTypeError: x is not a function\n    at f (a.js:1:2)\n\nNode.js v22", "TypeError: x is not a function"},
		{"exit", "exit code 101\nthread 'main' panicked at src/main.rs:2:5:\nno\nnote: run with RUST_BACKTRACE=1", "thread 'main' panicked at src/main.rs:2:5:"},
		{"exit", "exit code 127\nsh: 1: agent: not found", "sh: 1: agent: not found"},
		{"exit", "exit code 2\nusage: agent [-h]\nagent.py: error: unrecognized arguments: -x", "agent.py: error: unrecognized arguments: -x"},
		{"exit", "exit code 1", "exit code 1"},
		{"exit", "", ""},
		{"panic", "panic: index out of range\ngoroutine 1", "panic: index out of range"},
		{"error", "Traceback (most recent call last):\n  File \"a.py\"\nKeyError: 'x'", "KeyError: 'x'"},
	} {
		require.Equal(t, c.want, verdict.Cause(c.failure, c.text), c.text)
	}
	require.Equal(t, "sideways", verdict.Failure("sideways"))
	require.Equal(t, "failed", verdict.Failure(""))
}
