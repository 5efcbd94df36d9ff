package main

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/terminal"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/store"
	"github.com/fulgurite/fulgurite/workers/stack"
)

// trackedRun is a run "demo" whose steps are recorded while it is tracked.
type trackedRun struct {
	t     *testing.T
	dir   string
	store *store.Store
}

func newTrackedRun(t *testing.T) trackedRun {
	t.Helper()
	dir := t.TempDir()
	db, err := store.Open(t.Context(), stack.Layout(dir).Database(), nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	require.NoError(t, db.Migrate(t.Context()))
	_, _, err = db.CreateRun(t.Context(), record.Run{Name: "demo", Status: record.Running, Spec: json.RawMessage(`{"training": {"steps": 1}}`), Created: time.Unix(1_700_000_000, 0)})
	require.NoError(t, err)
	return trackedRun{t, dir, db}
}

// step records a step and, with every fourth, an evaluation and a promotion.
func (r trackedRun) step(n int) {
	if n%4 == 0 {
		previous := n - 4
		if previous == 0 {
			previous = -1 // nothing was promoted
		}
		require.NoError(r.t, r.store.PutEvaluation(r.t.Context(), record.Evaluation{
			Run: "demo", Policy: model.DefaultPolicy, EvaluationResult: record.EvaluationResult{Kind: record.Gate, Version: n, Mean: 1 / float64(n)},
		}))
		require.NoError(r.t, r.store.Promote(r.t.Context(), record.Promotion{
			Run: "demo", Policy: model.DefaultPolicy, DecisionID: strconv.Itoa(n), Version: n, Previous: previous, Reason: "better",
		}))
	}
	require.NoError(r.t, r.store.PutStep(r.t.Context(), record.Step{Run: "demo", Policy: model.DefaultPolicy, Step: n, Metrics: map[string]float64{"reward/mean": float64(n)}}))
}

// testPython makes a Python that has small stand-ins for the trackers, and the folder where
// trackio keeps its database.
func testPython(t *testing.T) (python, folder string) {
	t.Helper()
	found, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3")
	}
	packages, err := filepath.Abs("../../run/track/tracker/testdata/packages")
	require.NoError(t, err)
	folder = t.TempDir()
	python = filepath.Join(folder, "python")
	text := fmt.Sprintf("#!/bin/sh\nexec env PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=%q TRACKIO_DIR=%q %q \"$@\"\n", packages, folder, found)
	require.NoError(t, os.WriteFile(python, []byte(text), 0o755))
	return python, folder
}

// A follower is killed again and again while steps are recorded. In the end TensorBoard's
// file has the bytes of one that was written at once, and trackio has each entry once.
func TestFollowersThatAreKilledLoseAndDoubleNothing(t *testing.T) {
	t.Parallel()
	r := newTrackedRun(t)
	python, folder := testPython(t)
	arguments := []string{"track", "demo", "--dir", r.dir, "--tensorboard", filepath.Join(folder, "events"), "--tracker", "trackio", "--project", "killed", "--python", python}
	const steps, kills = 48, 8
	for kill := range kills {
		tool := newTool(arguments...)
		require.NoError(t, tool.Start())
		life := time.NewTimer(time.Duration(200+rand.IntN(1200)) * time.Millisecond)
		tick := time.NewTicker(time.Duration(1+rand.IntN(100)) * time.Millisecond)
		for n := kill*steps/kills + 1; n <= (kill+1)*steps/kills; n++ {
			r.step(n)
			<-tick.C
		}
		<-life.C
		tick.Stop()
		require.NoError(t, tool.Process.Kill())
		require.Error(t, tool.Wait())
	}
	require.NoError(t, r.store.FinishRun(t.Context(), "demo", record.Completed, []byte(`{}`)))
	out, err := newTool(arguments...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "demo: 48 steps, 12 evaluations and 12 promotions are in trackio, project killed\n")

	code, late, errs := command(t, r.dir, "track", "demo", "--tensorboard", filepath.Join(folder, "late"), "--json")
	require.Zero(t, code, errs)
	var lines []struct {
		File                                   string
		Step, Evaluations, Promotions, Written int
	}
	require.NoError(t, json.Unmarshal([]byte(late), &lines))
	require.Len(t, lines, 1)
	require.Equal(t, 48+12+12+1, lines[0].Written)
	want, err := os.ReadFile(lines[0].File)
	require.NoError(t, err)
	got, err := os.ReadFile(filepath.Join(folder, "events", "demo", filepath.Base(lines[0].File)))
	require.NoError(t, err)
	require.True(t, bytes.Equal(want, got))

	db, err := sql.Open("sqlite", filepath.Join(folder, "killed.db"))
	require.NoError(t, err)
	defer db.Close()
	var rows, distinct int
	require.NoError(t, db.QueryRowContext(t.Context(), `SELECT count(*), count(DISTINCT metrics || step) FROM metrics`).Scan(&rows, &distinct))
	require.Equal(t, []int{48 + 12 + 12, 48 + 12 + 12}, []int{rows, distinct})
}

func TestSeveralRunsAreTrackedAtOnceAndSignalsEndIt(t *testing.T) {
	t.Parallel()
	r := newTrackedRun(t)
	_, _, err := r.store.CreateRun(t.Context(), record.Run{Name: "other", Status: record.Completed, Spec: json.RawMessage(`{}`), Created: time.Unix(1_700_000_000, 0)})
	require.NoError(t, err)
	r.step(1)
	folder := t.TempDir()
	tool := newTool("track", "demo", "other", "demo", "--dir", r.dir, "--tensorboard", folder)
	printed, err := tool.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, tool.Start())
	buffer, out := make([]byte, 4096), ""
	for !strings.Contains(out, "other: 0 steps, 0 evaluations and 0 promotions are in ") || !strings.Contains(out, "demo goes to ") {
		n, err := printed.Read(buffer)
		require.NoError(t, err, out)
		out += string(buffer[:n])
	}
	require.NoError(t, tool.Process.Signal(os.Interrupt))
	for err == nil {
		var n int
		n, err = printed.Read(buffer)
		out += string(buffer[:n])
	}
	require.Error(t, tool.Wait())
	require.Equal(t, exitInterrupted, tool.ProcessState.ExitCode(), out)
	require.Contains(t, out, " so far; the same command goes on there\n")
	require.FileExists(t, filepath.Join(folder, "demo", "events.out.tfevents.1700000000.fulgurite"))
	require.FileExists(t, filepath.Join(folder, "other", "events.out.tfevents.1700000000.fulgurite"))
}

func TestWhatCanNotBeTrackedIsRefused(t *testing.T) {
	t.Parallel()
	r := newTrackedRun(t)
	refused := func(args ...string) (int, string) {
		var out, errs bytes.Buffer
		code := run(t.Context(), append(args, "--dir", r.dir), &terminal.Terminal{Out: &out, Err: &errs})
		return code, errs.String()
	}
	code, errs := refused("track", "demo")
	require.Equal(t, exitUsage, code)
	require.Contains(t, errs, "give --tensorboard DIR, --otlp URL, or --tracker with trackio or wandb")
	code, errs = refused("track", "other", "--tensorboard", t.TempDir())
	require.Equal(t, exitUsage, code)
	require.Contains(t, errs, "run other: ")
	code, errs = refused("track", "demo", "--tracker", "mlflow")
	require.Equal(t, exitUsage, code)
	require.Contains(t, errs, "--tracker")
	code, errs = refused("track", "demo", "--once", "--tracker", "wandb", "--python", "/nowhere/python")
	require.Equal(t, exitFailed, code)
	require.Contains(t, errs, "start wandb: /nowhere/python is not there: install Python 3")
}
