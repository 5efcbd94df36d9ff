package testsuite_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/history/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/fulgurite/fulgurite/workers"
	"github.com/fulgurite/fulgurite/workflows"
)

// recordHistories makes TestHistoriesAreRecorded write new files into histories/.
var recordHistories = flag.Bool("record", false, "record the histories that TestHistoriesReplay replays")

// recording is a history as it is kept: child ids derive from the workflow's, so
// it can only be replayed under its own.
type recording struct {
	WorkflowID string          `json:"workflow_id"`
	RunID      string          `json:"run_id"`
	History    json.RawMessage `json:"history"`
}

// histories are the shapes that are kept. They are only ever added.
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

func TestHistoriesAreRecorded(t *testing.T) {
	if !*recordHistories {
		t.Skip("records histories; run with -record after a deliberate change of a workflow")
	}
	ctx := t.Context()
	st := start(ctx, t, t.TempDir())
	defer func() { require.NoError(t, st.Close()) }()
	s := small(4)
	_, err := train(ctx, st, "plain", s)
	require.NoError(t, err)
	for file, id := range map[string]string{
		"training-plain": "plain", "rollout-plain": "plain/train-1/0", "evaluation-gate": "plain/gate-2", "evaluation-test": "plain/test-0",
	} {
		keep(t, st.Client, file, id)
	}
	s.Agent.Func = "nobody"
	_, err = train(ctx, st, "unknown-agent", s)
	require.Error(t, err)
	keep(t, st.Client, "training-failed", "unknown-agent")

	failing := small(1)
	failing.Agent.Limits.Calls = 1 // every tool use goes beyond the limit
	_, err = train(ctx, st, "agent-fails", failing)
	require.NoError(t, err)
	keep(t, st.Client, "rollout-agent-failed", "agent-fails/train-1/0")
}

// keep writes the history of a workflow into a new file beside those of its name.
func keep(t *testing.T, c client.Client, file, id string) {
	t.Helper()
	d, err := c.DescribeWorkflowExecution(t.Context(), id, "")
	require.NoError(t, err)
	text, err := protojson.Marshal(&history.History{Events: eventsOf(t.Context(), t, c, id)})
	require.NoError(t, err)
	data, err := json.Marshal(recording{WorkflowID: id, RunID: d.WorkflowExecutionInfo.Execution.RunId, History: text})
	require.NoError(t, err)
	path := fmt.Sprintf("histories/%s.json", file)
	for n := 2; ; n++ {
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			break
		}
		path = fmt.Sprintf("histories/%s-%d.json", file, n)
	}
	require.NoError(t, os.WriteFile(path, data, 0o644))
}
