package main

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/terminal"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/report"
	"github.com/fulgurite/fulgurite/store"
	"github.com/fulgurite/fulgurite/store/blob"
	"github.com/fulgurite/fulgurite/tasks"
	"github.com/fulgurite/fulgurite/workers/stack"
)

// newUnaccountedRun makes a directory with the run "demo". Its only step is recorded, but
// the batch that the step refers to is missing.
func newUnaccountedRun(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	db, err := store.Open(t.Context(), stack.Layout(dir).Database(), nil)
	require.NoError(t, err)
	require.NoError(t, db.Migrate(t.Context()))
	blobs, err := blob.Open(stack.Layout(dir).Blobs())
	require.NoError(t, err)
	list, err := tasks.Encode([]tasks.Task{{ID: "a", Input: "1"}})
	require.NoError(t, err)
	digest, err := blobs.Put(t.Context(), list)
	require.NoError(t, err)
	_, _, err = db.CreateRun(t.Context(), record.Run{
		Name: "demo", Spec: json.RawMessage(`{"training":{"steps":1,"tasks_per_step":2,"samples_per_task":2}}`),
		Splits: map[record.Kind]record.Split{record.Train: {Digest: digest, Count: 1}},
	})
	require.NoError(t, err)
	require.NoError(t, db.PutStep(t.Context(), record.Step{Run: "demo", Policy: model.DefaultPolicy, Step: 1, Batch: digest}))
	require.NoError(t, db.Close())
	return dir
}

func TestTheReportOfAnUnaccountedRunFails(t *testing.T) {
	t.Parallel()
	dir := newUnaccountedRun(t)
	var out, errs bytes.Buffer
	code := run(t.Context(), []string{"report", "demo", "--dir", dir}, &terminal.Terminal{Out: &out, Err: &errs})
	require.Equal(t, exitFailed, code)
	require.Contains(t, errs.String(), "2 prompts skipped, 0 duplicated")
	require.Contains(t, out.String(), "train-1/0 was neither trained nor quarantined")

	out.Reset()
	code = run(t.Context(), []string{"report", "demo", "--json", "--store", filepath.Join(dir, "fulgurite.db"), "--blobs", filepath.Join(dir, "blobs")}, &terminal.Terminal{Out: &out, Err: &errs})
	require.Equal(t, exitFailed, code)
	var r report.Report
	require.NoError(t, json.Unmarshal(out.Bytes(), &r))
	require.Equal(t, report.Prompts{Issued: 2, Skipped: 2}, r.Prompts)
}

func TestAStoreThatIsNotThereIsNotMade(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "absent.db")
	var out, errs bytes.Buffer
	code := run(t.Context(), []string{"versions", "demo", "--store", path}, &terminal.Terminal{Out: &out, Err: &errs})
	require.Equal(t, exitUsage, code)
	require.Contains(t, errs.String(), "no store at "+path)
	require.NoFileExists(t, path)
}
