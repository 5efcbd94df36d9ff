package testsuite_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/agent/sandbox"
	"github.com/fulgurite/fulgurite/spec"
)

// lookingAgent is the value of agentVariable for an agent whose result says whether it can
// read the directory that lookedAt names.
const (
	lookingAgent = "looking"
	lookedAt     = "FULGURITE_TEST_LOOKED_AT"
)

// look runs lookingAgent.
func look() error {
	entries, err := os.ReadDir(os.Getenv(lookedAt))
	if err != nil || len(entries) == 0 {
		fmt.Println("closed")
		return nil
	}
	fmt.Println("open")
	return nil
}

func TestAnAgentCannotReadTheStoreUnlessTheSpecTurnsIsolationOff(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	st := sharedStack(t)
	program, err := os.Executable()
	require.NoError(t, err)
	tasks := filepath.Join(t.TempDir(), "gate.jsonl")
	require.NoError(t, os.WriteFile(tasks, []byte(`{"id": "a", "input": "1", "answer": "closed"}`+"\n"), 0o600))
	s := evaluating("")
	s.Model.Version, s.Tasks.Gate, s.Evaluation.Samples = "", tasks, 1
	s.Agent = spec.Agent{Command: []string{program}, Environment: map[string]string{agentVariable: lookingAgent, lookedAt: shared.dir}}

	if err := sandbox.Check(ctx); err != nil {
		t.Skip(err)
	}
	isolation, want := spec.SandboxProcess, 1.0
	if sandbox.Unfit(filepath.Dir(program), []string{program}, nil) != "" { // it lies below /tmp
		isolation, want = spec.SandboxNone, 0
	}
	for _, c := range []struct {
		run, sandbox, isolation string
		reward                  float64
	}{
		{"isolated", spec.SandboxProcess, spec.SandboxProcess, 1},
		{"turned-off", spec.SandboxNone, spec.SandboxNone, 0},
		{"left-out", "", isolation, want},
	} {
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
