package agent_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/agent"
	"github.com/fulgurite/fulgurite/record"
)

// sh returns the command line of a hook in the shell.
func sh(script string) []string { return []string{"sh", "-c", script} }

func TestHooksRunAroundTheAgentInItsHome(t *testing.T) {
	t.Parallel()
	scratch, out := t.TempDir(), filepath.Join(t.TempDir(), "out")
	j := job("demo")
	j.Environment = map[string]string{"OUT": out}
	h := agent.HookCommands(
		sh(`printf '%s %s' "$FULGURITE_ROLLOUT" "$FULGURITE_TASK" > "$FULGURITE_HOME/prepared"`),
		sh(`echo "$FULGURITE_OUTCOME $(cat "$FULGURITE_HOME/prepared") $(cat "$FULGURITE_HOME/left")" > "$OUT"`),
	)
	l := agent.Around(agent.Command{Args: sh(`cd "$HOME"; echo by the agent > left; cat prepared`), Scratch: "unused"}, h, scratch)
	got, err := l.Launch(t.Context(), j)
	require.NoError(t, err)
	prepared := `demo/train-3/17/2 {"id":"t17","input":"6*7","metadata":{"level":"easy"}}`
	require.Equal(t, agent.Result{Text: prepared, Output: record.Output{Stdout: prepared}}, got)
	after, err := os.ReadFile(out)
	require.NoError(t, err)
	require.Equal(t, "completed "+prepared+" by the agent\n", string(after))
	left, err := os.ReadDir(scratch)
	require.NoError(t, err)
	require.Empty(t, left, "the home is removed when all have run")
}

func TestWhatFailsBeforeTheAgentIsAFault(t *testing.T) {
	t.Parallel()
	launched := false
	var seen record.Outcome
	h := agent.HookCommands(sh("echo no room >&2; exit 4"), nil)
	h.After = func(_ context.Context, _ agent.Job, o record.Outcome) error { seen = o; return errors.New("nor can I") }
	f := agent.Func(func(context.Context, agent.Task, agent.Env) (string, error) { launched = true; return "", nil })
	_, err := agent.Around(f, h, t.TempDir()).Launch(t.Context(), job("demo"))
	require.ErrorIs(t, err, agent.ErrBefore)
	require.ErrorContains(t, err, "exit code 4: no room")
	require.ErrorContains(t, err, "nor can I")
	require.False(t, launched)
	require.Equal(t, record.InfraFault, seen, "what follows runs in any case")
}

func TestWhatFollowsRunsHoweverTheAgentEndsAndChangesNothing(t *testing.T) {
	t.Parallel()
	ended, cancel := context.WithCancel(t.Context())
	for name, c := range map[string]struct {
		agent   agent.Func
		ctx     context.Context
		outcome record.Outcome
	}{
		"completed": {func(context.Context, agent.Task, agent.Env) (string, error) { return "42", nil }, t.Context(), record.OutcomeCompleted},
		"failed":    {func(context.Context, agent.Task, agent.Env) (string, error) { return "", errors.New("lost") }, t.Context(), record.AgentFailed},
		"ended": {func(ctx context.Context, _ agent.Task, _ agent.Env) (string, error) {
			cancel()
			<-ctx.Done()
			return "", nil
		}, ended, record.InfraFault},
	} {
		var seen record.Outcome
		h := agent.Hooks{After: func(ctx context.Context, j agent.Job, o record.Outcome) error {
			require.NoError(t, ctx.Err())
			require.DirExists(t, j.Home)
			seen = o
			return errors.New("can't clear up")
		}}
		got, err := agent.Around(c.agent, h, t.TempDir()).Launch(c.ctx, job("demo"))
		require.Equal(t, c.outcome, seen, name)
		if c.outcome == record.InfraFault {
			require.ErrorContains(t, err, "can't clear up")
			continue
		}
		require.NoError(t, err)
		require.Equal(t, c.outcome == record.AgentFailed, got.Failed())
		require.Equal(t, "after the attempt: can't clear up", got.Note)
	}
}

func TestFunctionSeesTheHomeThatHooksPrepared(t *testing.T) {
	t.Parallel()
	f := agent.Func(func(_ context.Context, _ agent.Task, env agent.Env) (string, error) {
		text, err := os.ReadFile(filepath.Join(env.Home, "prepared"))
		return string(text), err
	})
	got, err := agent.Around(f, agent.HookCommands(sh(`echo 42 > "$HOME/prepared"`), nil), t.TempDir()).Launch(t.Context(), job("demo"))
	require.NoError(t, err)
	require.Equal(t, "42", strings.TrimSpace(got.Text))
}
