package activities_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/agent"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
)

// playing returns the spec of an agent that is this test's binary in a role.
func (w *testEnv) playing(role ...string) spec.Spec {
	w.t.Helper()
	self, err := os.Executable()
	require.NoError(w.t, err)
	s := w.spec()
	s.Agent = spec.Agent{Command: append([]string{self, "play"}, role...), FailureReward: -0.5}
	return s
}

// worker returns a Runner that runs commands with a forwarder to a real gateway.
func (w *testEnv) worker() *activities.Runner {
	r := w.runner(w.serve(w.gateway()), nil)
	r.Launchers = commands(filepath.Join(w.dir, "scratch"))
	return r
}

func TestPoisonedAgentsHaveOneOutcomeAndTheWorkerLivesOn(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		role    []string
		change  func(*spec.Spec)
		failure string // empty if the attempt is completed
		says    string
		early   bool // before its first model call
	}{
		"exits with a code":        {role: []string{"ask", "exit"}, failure: "exit", says: "exit: exit code 3\nthe reason"},
		"exits before it asks":     {role: []string{"exit"}, failure: "exit", says: "exit code 3", early: true},
		"panics":                   {role: []string{"ask", "crash"}, failure: "exit", says: "a bug of mine"},
		"runs for too long":        {role: []string{"hang", "1"}, change: func(s *spec.Spec) { s.Agent.Limits.Seconds = 2 }, failure: "timeout", says: "still running after 2s"},
		"leaves a process behind":  {role: []string{"orphan"}, says: ""},
		"writes a gibibyte":        {role: []string{"ask", "flood"}, failure: "output_limit", says: "wrote more than 1048576 bytes"},
		"eats memory":              {role: []string{"ask", "eat"}, change: func(s *spec.Spec) { s.Agent.Limits.MemoryBytes = 64 << 20 }, failure: "memory_limit", says: "67108864 are allowed"},
		"slams the door":           {role: []string{"ask", "slam"}, says: ""},
		"never stops asking":       {role: []string{"insist"}, change: func(s *spec.Spec) { s.Agent.Limits.Calls = 2 }, failure: "call_limit", says: "100 of its requests were refused"},
		"never has enough":         {role: []string{"insist"}, change: func(s *spec.Spec) { s.Agent.Limits.Tokens = 2 }, failure: "token_limit", says: "100 of its requests were refused"},
		"posts an absurd reward":   {role: []string{"ask", "post", `{"reward": 1e300}`}, change: byAgent, failure: "exit", says: "status 400"},
		"posts what is no number":  {role: []string{"ask", "post", `{"reward": NaN}`}, change: byAgent, failure: "exit", says: "status 400"},
		"reports nothing":          {role: []string{"ask", "surroundings"}, change: byAgent, failure: "no_reward", says: "no_reward: the agent reported no reward"},
		"posts where none is due":  {role: []string{"ask", "post", `{"reward": 1}`}, failure: "exit", says: "status 403"},
		"reports a sensible value": {role: []string{"ask", "post", `{"reward": -2.5}`}, change: byAgent},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if name == "eats memory" && runtime.GOOS != "linux" {
				t.Skip("only Linux tells what processes take")
			}
			w := newTestEnv(t)
			s := w.playing(c.role...)
			if c.change != nil {
				c.change(&s)
			}
			w.start(s)
			worker, in := w.worker(), rollout(0, 0)
			got, err := do[activities.RunAgentResult](t, worker.RunAgent, in)
			require.NoError(t, err)
			sealed, err := w.store.Attempts(t.Context(), "demo", record.Train, 1)
			require.NoError(t, err)
			require.Len(t, sealed, 1)
			require.Equal(t, sealed[0].Outcome, got.Outcome)
			require.Equal(t, c.failure, sealed[0].Failure, "%s", sealed[0].Error)
			require.Contains(t, sealed[0].Error, c.says)
			if c.failure != "" {
				require.Equal(t, record.AgentFailed, got.Outcome)
				require.InDelta(t, -0.5, *got.Reward, 0)
				require.InDelta(t, -0.5, *sealed[0].Reward, 0)
			} else {
				require.Equal(t, record.OutcomeCompleted, got.Outcome)
				require.Empty(t, sealed[0].Error)
			}
			if c.early {
				require.Contains(t, got.TaskFault, "agent failed before its first model call: exit: exit code 3")
			} else {
				require.Empty(t, got.TaskFault)
			}

			if s.Grader.Type != "agent" {
				good, err := do[activities.RunAgentResult](t, worker.RunAgent, rollout(1, 0))
				require.NoError(t, err)
				require.InDelta(t, 1, *good.Reward, 0)
			}
			left, err := os.ReadDir(filepath.Join(w.dir, "scratch"))
			require.NoError(t, err)
			require.Empty(t, left)
		})
	}
}

func byAgent(s *spec.Spec) { s.Grader = spec.Grader{Type: "agent"} }

func TestFuncThatReportsAnAbsurdRewardHasFailed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		reward float64
		says   string
	}{
		"NaN":      {math.NaN(), "bad_reward: report reward: NaN is not a finite number"},
		"infinite": {math.Inf(-1), "bad_reward: report reward: -Inf is not a finite number"},
		"too much": {1e6 + 1, "bad_reward: report reward: 1.000001e+06 is beyond the limit of 1e+06"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newTestEnv(t)
			s := w.spec()
			byAgent(&s)
			w.prepare(s)
			runner := w.runner("", func(_ context.Context, _ agent.Task, env agent.Env) (string, error) {
				_ = env.Reward(0.5)
				_ = env.Reward(c.reward) // the agent ignores the error
				return "done", nil
			})
			in := rollout(0, 0)
			got, err := do[activities.RunAgentResult](t, runner.RunAgent, in)
			require.NoError(t, err)
			require.Equal(t, record.AgentFailed, got.Outcome)
			require.InDelta(t, -0.5, *got.Reward, 0)
			require.Equal(t, "bad_reward", w.attempt(at(in, 1)).Failure)
			require.Equal(t, c.says, w.attempt(at(in, 1)).Error)
		})
	}
}

// tries runs the agent as often as Temporal would, and returns the last result and the
// number of runs.
func (w *testEnv) tries(worker *activities.Runner, in activities.RunAgentInput, most int) (activities.RunAgentResult, int) {
	w.t.Helper()
	for n := 1; n <= most; n++ {
		got, err := do[activities.RunAgentResult](w.t, worker.RunAgent, in)
		if err == nil {
			return got, n
		}
		requireRetryable(w.t, err, at(in, n).String())
		w.requireFault(at(in, n))
	}
	require.FailNow(w.t, "no outcome", "after %d tries", most)
	panic("unreachable")
}

func TestTheSameHangAtTheSamePlaceIsTheAgentsFailure(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	s := w.playing("hang", "2")
	s.Agent.Limits.IdleSeconds = 3 // a busy machine takes more than one to start the agent
	w.start(s)
	in := rollout(0, 0)
	got, n := w.tries(w.worker(), in, 5)
	require.Equal(t, 2, n)
	require.Equal(t, record.AgentFailed, got.Outcome)
	require.InDelta(t, -0.5, *got.Reward, 0)
	require.Equal(t, "hang", w.attempt(at(in, 1)).Failure)
	require.Contains(t, w.attempt(at(in, 1)).Error, "trying again: hang: no model call and no output for 3s")
	second := w.attempt(at(in, 2))
	require.Equal(t, "hang", second.Failure)
	require.Equal(t, "hang: no model call and no output for 3s; attempt 1 hung at the same place, after 2 calls", second.Error)
}

func TestHangsAtOtherPlacesAreTriedAgainButNotForEver(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	s := w.playing("hang", filepath.Join(w.dir, "ran"))
	s.Agent.Limits.IdleSeconds = 3
	w.start(s)
	in := rollout(0, 0)
	got, n := w.tries(w.worker(), in, 10)
	require.Equal(t, 5, n)
	require.Equal(t, record.AgentFailed, got.Outcome)
	require.Contains(t, w.attempt(at(in, 5)).Error, "so did 4 attempts before")
}

// An attempt of which the agent says that it has no valid reward gets none, and the task is
// set aside when that goes on.
func TestAnAgentThatAsksForAnotherAttemptGetsItButNotForEver(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	w.prepare(w.spec())
	down, calls := 3, 0
	runner := w.runner("", func(context.Context, agent.Task, agent.Env) (string, error) {
		if calls++; calls <= down {
			return "", fmt.Errorf("%w: the search is down", agent.ErrRetry)
		}
		return "42", nil
	})
	got, n := w.tries(runner, rollout(0, 0), 5)
	require.Equal(t, 4, n)
	require.InDelta(t, 1, *got.Reward, 0)

	calls, down = 0, 100
	in := rollout(0, 1)
	got, n = w.tries(runner, in, 20)
	require.Equal(t, activities.RetryTries, n)
	require.Nil(t, got.Reward)
	require.Equal(t, record.InfraFault, got.Outcome)
	require.Contains(t, got.TaskFault, "the agent asks for another attempt: try again: the search is down")
	for attempt := range n {
		require.Equal(t, "retry", w.attempt(at(in, attempt+1)).Failure)
	}
}

func TestAnAgentThatIsKilledIsTriedAgainButNotForEver(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	w.start(w.playing("ask", "suicide"))
	in := rollout(0, 0)
	got, n := w.tries(w.worker(), in, 10)
	require.Equal(t, 5, n)
	require.Equal(t, record.AgentFailed, got.Outcome)
	require.Equal(t, "killed", w.attempt(at(in, 1)).Failure)
}

func TestAnAgentThatFailsAfterItSawAFaultHasNotFailed(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	w.start(w.playing("ask", "exit")) // it also exits if its call fails
	sick := http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(http.StatusInternalServerError) })
	worker := w.runner(w.serve(sick), nil)
	worker.Launchers = commands(filepath.Join(w.dir, "scratch"))
	in := rollout(0, 0)
	_, err := do[activities.RunAgentResult](t, worker.RunAgent, in)
	requireRetryable(t, err, "fault in sight of the agent: gateway answered 500")
	w.requireFault(at(in, 1))
	require.Empty(t, w.attempt(at(in, 1)).Failure, "nothing is known of the agent")
}

// Replay depends on it: requests may hold what an agent sees of its machine.
func TestEveryAttemptSeesTheSameSurroundings(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	w.start(w.playing("surroundings"))
	in := rollout(0, 0)
	in.Rollout.Kind = record.Try // tried as often as it is requested
	look := func(attempt int) string {
		_, err := do[activities.RunAgentResult](t, w.worker().RunAgent, in) // another worker each time
		require.NoError(t, err)
		var lines []string
		require.NoError(t, json.Unmarshal([]byte(w.attempt(at(in, attempt)).Result), &lines))
		for i, l := range lines {
			name, _, _ := strings.Cut(l, "=")
			for _, end := range []string{"_KEY", "_URL", "_BASE", "_ENDPOINT", "_HEADERS", "_ATTRIBUTES", "_ATTEMPT_ID"} {
				if strings.HasSuffix(name, end) {
					lines[i] = name // the attempt's address and key
				}
			}
		}
		return strings.Join(lines, "\n")
	}
	first := look(1)
	home := filepath.Join(w.dir, "scratch", "demo+try-1+0+0")
	for _, line := range []string{"CWD=" + w.dir, "HOME=" + home, "TMPDIR=" + home, "TZ=UTC", "HOST="} {
		require.Contains(t, first, line)
	}
	require.Equal(t, first, look(2))
}
