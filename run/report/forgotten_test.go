package report_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/report"
)

func TestStepsWhoseBatchesWentWithATaskAreNoFault(t *testing.T) {
	t.Parallel()
	run := newTestRun(t)
	require.Empty(t, run.report().Faults)
	ctx := t.Context()
	require.NoError(t, run.store.FinishRun(ctx, "demo", record.Completed, nil))
	b, err := run.store.Batch(ctx, "demo", model.DefaultPolicy, 2)
	require.NoError(t, err)
	require.NoError(t, run.blobs.Remove(ctx, b.Digest))
	require.NotEmpty(t, run.read().Faults, "a batch that was lost is one")

	of, err := run.store.Run(ctx, "demo")
	require.NoError(t, err)
	text, err := json.Marshal(record.ForgottenTaskReport{Run: "demo", Task: "secret", Steps: []int{2}})
	require.NoError(t, err)
	stone := record.Forgotten{Run: "demo", What: record.ForgottenTask, Task: "secret", By: "me", Report: text}
	_, _, err = run.store.BeginForgetting(ctx, of, stone)
	require.NoError(t, err)
	r := run.read()
	require.Empty(t, r.Faults)
	require.Equal(t, report.Prompts{Issued: 6, Trained: 3, Forgotten: 3, Abandoned: 1}, r.Prompts)
	require.Equal(t, report.Step{Step: 2, Prompts: report.Prompts{Issued: 3, Forgotten: 3}, Attempts: 6}, r.ByStep[1])
	require.Len(t, r.Forgotten, 1)
	var out bytes.Buffer
	require.NoError(t, r.WriteText(&out))
	require.Contains(t, out.String(), "forgotten                3  (the batches of their steps were removed with a task)")
	require.Contains(t, out.String(), `task "secret" (the removal was interrupted), by me`)
	require.NoError(t, run.store.EndForgetting(ctx, stone))
	out.Reset()
	require.NoError(t, run.read().WriteText(&out))
	require.Contains(t, out.String(), `task "secret", by me`)
	require.Contains(t, out.String(), "Every prompt is accounted for.")
}
