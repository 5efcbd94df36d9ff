package verdict_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/page/verdict"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/tasks"
	"github.com/fulgurite/fulgurite/trace"
)

func TestAVerdictSaysWhyAnAttemptGotItsReward(t *testing.T) {
	t.Parallel()
	none, half, all := 0.0, 0.5, 1.0
	task := tasks.Task{ID: "t", Answer: "29"}
	for _, c := range []struct {
		grader  string
		attempt trace.Attempt
		want    verdict.Verdict
	}{
		{"exact", trace.Attempt{Outcome: trace.Completed, Reward: &none, Result: "9"}, verdict.Verdict{Text: "The answer differs."}},
		{"exact", trace.Attempt{Outcome: trace.Completed, Reward: &all, Result: " 29\n"}, verdict.Verdict{Text: "The answer is right.", Good: true}},
		{"numeric", trace.Attempt{Outcome: trace.Completed, Reward: &none, Result: "about 30"}, verdict.Verdict{Text: "The answer differs."}},
		{"contains", trace.Attempt{Outcome: trace.Completed, Reward: &none, Result: "it is 3"}, verdict.Verdict{Text: "The answer is not in the result."}},
		{"qa", trace.Attempt{Outcome: trace.Completed, Reward: &half, Result: "29 apples"}, verdict.Verdict{Text: "The answer is right in part."}},
		{"exact", trace.Attempt{Outcome: trace.Completed, Reward: &none}, verdict.Verdict{Text: "The agent returned nothing."}},
		{"agent", trace.Attempt{Outcome: trace.Completed, Reward: &half}, verdict.Verdict{Text: "The agent reported this reward itself.", Good: true}},
		{"exact", trace.Attempt{Outcome: trace.AgentFailed, Failure: "exit", Reward: &none}, verdict.Verdict{Text: "The agent ended with an error: that counts as 0."}},
		{"exact", trace.Attempt{Outcome: trace.InfraFault}, verdict.Verdict{Text: "A fault of the machines ended it: it has no reward."}},
		{"exact", trace.Attempt{}, verdict.Verdict{}},
	} {
		require.Equal(t, c.want, verdict.Of(spec.Grader{Type: c.grader}, task, c.attempt), c.grader)
	}
	require.Equal(t, verdict.Verdict{}, verdict.Of(spec.Grader{Type: "exact"}, tasks.Task{}, trace.Attempt{Outcome: trace.Completed, Reward: &none}), "a task that is not kept")
}

func TestTheCauseOfAnErrorIsOneLine(t *testing.T) {
	t.Parallel()
	require.Equal(t, "ValueError: no", verdict.Cause("exit", "exit: exit code 1\nTraceback:\n  x\nValueError: no\n"))
	require.Equal(t, "panic: index out of range", verdict.Cause("panic", "panic: index out of range\ngoroutine 1"))
	require.Empty(t, verdict.Cause("exit", ""))
	require.Equal(t, "sideways", verdict.Failure("sideways"))
	require.Equal(t, "failed", verdict.Failure(""))
}
