package testsuite_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/agent/sandbox"
	"github.com/fulgurite/fulgurite/spec"
)

// The agent is a program of the machine in a directory of the machine, since one that lies
// below a temporary directory is not isolated by default.
func TestAnAgentCannotReadTheStoreUnlessTheSpecTurnsIsolationOff(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	if err := sandbox.Check(ctx); err != nil {
		t.Skip(err) // no package makes a kernel allow it
	}
	st := sharedStack(t)
	tasks := filepath.Join(t.TempDir(), "gate.jsonl")
	require.NoError(t, os.WriteFile(tasks, []byte(`{"id": "a", "input": "1", "answer": "closed"}`+"\n"), 0o600))
	s := evaluating("")
	s.Model.Version, s.Tasks.Gate, s.Evaluation.Samples = "", tasks, 1
	s.Agent = spec.Agent{
		Command: []string{"sh", "-c", `[ -n "$(ls "$LOOKED_AT" 2>/dev/null)" ] && echo open || echo closed`}, Directory: "/usr",
		Environment: map[string]string{"LOOKED_AT": shared.dir},
	}
	for _, c := range []struct {
		run, sandbox, isolation string
		reward                  float64
	}{{"left-out", "", spec.SandboxProcess, 1}, {"turned-off", spec.SandboxNone, spec.SandboxNone, 0}} {
		s.Agent.Sandbox = c.sandbox
		result := mustTrain(ctx, t, st, c.run, s.WithDefaults())
		require.Equal(t, 1, result.Evaluation.Rollouts)
		require.InDelta(t, c.reward, result.Evaluation.Mean, 0, c.run)
		run, err := st.Store.Run(ctx, c.run)
		require.NoError(t, err)
		var recorded spec.Spec
		require.NoError(t, json.Unmarshal(run.Spec, &recorded))
		require.Equal(t, c.isolation, recorded.Agent.Sandbox)
	}
}
