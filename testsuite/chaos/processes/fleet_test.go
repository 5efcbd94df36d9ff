package processes_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"

	"github.com/fulgurite/fulgurite/examples/calc"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/store"
	"github.com/fulgurite/fulgurite/testsuite/chaos/processes"
	"github.com/fulgurite/fulgurite/workflows"
)

// binEnvironment names the directory of the commands. Where it is not set, they
// are built.
const binEnvironment = "FULGURITE_BIN"

func TestMain(m *testing.M) {
	var code int
	var err error
	if os.Getenv(binEnvironment) != "" {
		code = m.Run()
	} else {
		code, err = runBuilt(m)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// runBuilt builds the commands and runs the tests with them.
func runBuilt(m *testing.M) (code int, err error) {
	bin, err := os.MkdirTemp("", "fleet-bin-")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(bin)) }()
	build := exec.Command("go", "build", "-buildvcs=false", "-o", bin, "./cmd/fulgurite", "./cmd/fulgurite-worker")
	build.Dir = "../../.."
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("build: %w: %s", err, out)
	}
	if err := os.Setenv(binEnvironment, bin); err != nil {
		return 0, err
	}
	return m.Run(), nil
}

// smallSpec trains from the warm start that the repository has.
func smallSpec(t *testing.T, steps int) []byte {
	t.Helper()
	base := t.TempDir()
	for name, data := range map[string][]byte{model.WeightsFile: calc.Weights, model.ConfigFile: calc.Config} {
		require.NoError(t, os.WriteFile(filepath.Join(base, name), data, 0o644))
	}
	s, err := spec.Parse(calc.Spec, "spec.yaml")
	require.NoError(t, err)
	s.Model.Base, s.Model.WarmStart = base, nil
	s.Tasks = spec.Tasks{Train: "arithmetic:train:64", Gate: "arithmetic:gate:16", Test: "arithmetic:test:16"}
	s.Training.Steps, s.Training.TasksPerStep, s.Training.SamplesPerTask = steps, 4, 4
	data, err := json.Marshal(s.WithDefaults())
	require.NoError(t, err)
	return data
}

// start starts a fleet that ends with the test, if that has not ended it.
func start(t *testing.T, o processes.Options) *processes.Fleet {
	t.Helper()
	o.Dir, o.Bin = directory(t), os.Getenv(binEnvironment)
	f, err := processes.Start(t.Context(), o)
	if errors.Is(err, processes.ErrNotInstalled) && os.Getenv("CI") == "" {
		t.Skipf("skipped: %v", err)
	}
	require.NoError(t, err)
	t.Cleanup(func() { _ = f.Close() }) // after the test's own Close there is nothing left to end
	return f
}

// train starts a run with the given number of steps.
func train(ctx context.Context, t *testing.T, f *processes.Fleet, steps int) client.WorkflowRun {
	t.Helper()
	temporal, err := client.DialContext(ctx, client.Options{HostPort: f.Temporal, Logger: log.NewStructuredLogger(slog.New(slog.DiscardHandler))})
	require.NoError(t, err)
	t.Cleanup(temporal.Close)
	run, err := temporal.ExecuteWorkflow(ctx, client.StartWorkflowOptions{ID: "small", TaskQueue: workflows.QueueTraining},
		"TrainingWorkflow", workflows.TrainingInput{Spec: smallSpec(t, steps)})
	require.NoError(t, err)
	return run
}

func TestAFleetTrainsAndDrains(t *testing.T) {
	for name, sqlite := range map[string]bool{"postgres": false, "sqlite": true} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			f := start(t, processes.Options{SQLite: sqlite})
			var result workflows.TrainingResult
			require.NoError(t, train(ctx, t, f, 2).Get(ctx, &result))
			require.Equal(t, 2, result.Steps)

			records, err := store.Open(ctx, f.Store, nil)
			require.NoError(t, err)
			version, err := records.Version(ctx, model.VersionID{Run: "small", Policy: model.DefaultPolicy, Number: 2})
			require.NoError(t, err)
			require.Equal(t, result.Weights, version.Weights)
			require.NoError(t, records.Close())

			generations, err := os.ReadFile(f.Generations)
			require.NoError(t, err)
			require.Greater(t, bytes.Count(generations, []byte("\n")), 2*4*4, "the sampler's own account")
			require.NoError(t, f.Close(), "every process ends with code 0")
		})
	}
}

func TestAFleetOutlivesEachOfItsProcesses(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	f := start(t, processes.Options{})
	run := train(ctx, t, f, 4)
	for _, role := range f.Roles() {
		before := f.PID(role)
		require.NoError(t, f.Kill(role))
		<-f.Ended(role)
		require.Zero(t, f.PID(role))
		require.NoError(t, f.Restart(ctx, role))
		require.NoError(t, f.Await(ctx, role))
		require.NotEqual(t, before, f.PID(role))
	}
	var result workflows.TrainingResult
	require.NoError(t, run.Get(ctx, &result))
	require.Equal(t, 4, result.Steps)
	require.NoError(t, f.Close())
}

// directory returns a directory that is kept if the test fails, because of the logs in
// it.
func directory(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "fleet-") //nolint:usetesting // t.TempDir would take the logs away
	require.NoError(t, err)
	t.Cleanup(func() {
		if !t.Failed() {
			require.NoError(t, os.RemoveAll(dir))
		}
	})
	return dir
}
