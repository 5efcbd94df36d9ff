package testsuite_test

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/fulgurite/fulgurite/workers"
	"github.com/fulgurite/fulgurite/workflows"
)

// recording is a history in the form of a kept file. The ids of children derive from the
// workflow's id, so the history can only be replayed under the same id.
type recording struct {
	WorkflowID string          `json:"workflow_id"`
	RunID      string          `json:"run_id"`
	History    json.RawMessage `json:"history"`
}

// histories returns the files of the kept histories. Files are only ever added.
func histories(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("histories/*.json")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	return files
}

func TestHistoriesReplay(t *testing.T) {
	t.Parallel()
	for _, file := range histories(t) {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			replayer := worker.NewWorkflowReplayer()
			workers.Workflows(replayer)
			require.NoError(t, replay(t, replayer, file))
		})
	}
}

func TestReplayCatchesAChangedWorkflow(t *testing.T) {
	t.Parallel()
	replayer := worker.NewWorkflowReplayer()
	replayer.RegisterWorkflowWithOptions(func(ctx workflow.Context, in workflows.TrainingInput) (workflows.TrainingResult, error) {
		if err := workflow.Sleep(ctx, time.Second); err != nil {
			return workflows.TrainingResult{}, err
		}
		return workflows.TrainingWorkflow(ctx, in)
	}, workflow.RegisterOptions{Name: "TrainingWorkflow"})
	require.ErrorContains(t, replay(t, replayer, "histories/training-plain.json"), "TMPRL1100")
}

func replay(t *testing.T, replayer worker.WorkflowReplayer, file string) error {
	t.Helper()
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	var r recording
	require.NoError(t, json.Unmarshal(data, &r))
	h, err := client.HistoryFromJSON(bytes.NewReader(r.History), client.HistoryJSONOptions{})
	require.NoError(t, err)
	return replayer.ReplayWorkflowHistoryWithOptions(log.NewStructuredLogger(slog.New(slog.DiscardHandler)), h, worker.ReplayWorkflowHistoryOptions{
		OriginalExecution: workflow.Execution{ID: r.WorkflowID, RunID: r.RunID},
	})
}
