package fleet_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/fulgurite/fulgurite/agent"
	"github.com/fulgurite/fulgurite/agent/sandbox"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/workers/fleet"
)

func TestAnIsolatedAgentReadsNeitherAnswersNorStoreNorBlobs(t *testing.T) {
	t.Parallel()
	if err := sandbox.Check(t.Context()); err != nil {
		t.Skip(err)
	}
	work := t.TempDir()
	records, err := fleet.Connect(t.Context(), filepath.Join(work, "state", "store.db"), filepath.Join(work, "blobs"), zap.NewNop())
	require.NoError(t, err)
	t.Cleanup(func() { _ = records.Close() })
	require.NoError(t, records.Migrate(t.Context(), true))
	tasks := filepath.Join(work, "tasks.jsonl")
	require.NoError(t, os.WriteFile(tasks, []byte(`{"id": "1", "answer": "42"}`), 0o600))
	for _, sandboxed := range []string{"", spec.SandboxProcess} {
		s := spec.Spec{
			Agent: spec.Agent{Command: []string{"sh", "-c", `echo answers $(wc -c < tasks.jsonl), state $(ls state | wc -l), blobs $(ls blobs | wc -l)`}, Sandbox: sandboxed},
			Tasks: spec.Tasks{Train: tasks},
		}
		launchers := records.Launchers(nil)
		launchers.Scratch = t.TempDir()
		launcher, err := launchers.Launcher(s.WithDefaults())
		require.NoError(t, err)
		result, err := launcher.Launch(t.Context(), agent.Job{
			Address: record.Address{RolloutID: record.RolloutID{Run: "isolation", Kind: record.Train}, Attempt: 1}, BaseURL: "http://127.0.0.1:1/r/x/v1", Directory: work,
		})
		require.NoError(t, err)
		if sandboxed == "" {
			require.NotContains(t, result.Text, " 0", "it reads everything")
			continue
		}
		require.Equal(t, "answers 0, state 0, blobs 0", result.Text, result)
	}
	stages := spec.Spec{
		Agent:    spec.Agent{Command: []string{"sh", "-c", `echo answers $(wc -c < tasks.jsonl)`}, Sandbox: spec.SandboxProcess},
		Training: spec.Training{Curriculum: &spec.Curriculum{Type: spec.CurriculumStages, Stages: []spec.Stage{{Tasks: tasks}}}},
	}
	launchers := records.Launchers(nil)
	launchers.Scratch = t.TempDir()
	launcher, err := launchers.Launcher(stages)
	require.NoError(t, err)
	result, err := launcher.Launch(t.Context(), agent.Job{
		Address: record.Address{RolloutID: record.RolloutID{Run: "stages", Kind: record.Train}, Attempt: 1}, BaseURL: "http://127.0.0.1:1/r/x/v1", Directory: work,
	})
	require.NoError(t, err)
	require.Equal(t, "answers 0", result.Text, "tasks of stages are hidden, too")
}

// A record of a later release may ask for an isolation that this one does not know.
func TestAnAgentWhoseIsolationIsUnknownIsNotStarted(t *testing.T) {
	t.Parallel()
	_, err := fleet.Launchers{}.Launcher(spec.Spec{Agent: spec.Agent{Command: []string{"true"}, Sandbox: "machine"}})
	require.ErrorContains(t, err, "agent.sandbox machine: this worker can't isolate an agent so")
}
