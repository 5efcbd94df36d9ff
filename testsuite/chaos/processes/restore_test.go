package processes_test

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/store"
	"github.com/fulgurite/fulgurite/testsuite/chaos/processes"
	"github.com/fulgurite/fulgurite/workflows"
)

// shipwreck is a fleet whose store, or whose Temporal, is lost.
type shipwreck struct {
	*processes.Fleet
	t *testing.T
}

// tool runs a command of a fleet to its end and returns what it printed and its exit code.
func (s shipwreck) tool(ctx context.Context, arguments ...string) (out string, code int) {
	s.t.Helper()
	command := exec.CommandContext(ctx, filepath.Join(os.Getenv(binEnvironment), arguments[0]), arguments[1:]...)
	command.Env = append(os.Environ(), "FULGURITE_STORE="+s.Store, "FULGURITE_BLOBS="+s.Blobs, "TEMPORAL_ADDRESS="+s.Temporal, "FULGURITE_DIR="+s.t.TempDir())
	text, err := command.CombinedOutput()
	if command.ProcessState == nil {
		require.NoError(s.t, err)
	}
	s.t.Logf("%s\n%s", strings.Join(arguments, " "), text)
	return string(text), command.ProcessState.ExitCode()
}

// done is tool for a command that has to succeed.
func (s shipwreck) done(ctx context.Context, arguments ...string) string {
	s.t.Helper()
	out, code := s.tool(ctx, arguments...)
	require.Zero(s.t, code, out)
	return out
}

// workers returns the roles of the fleet's own processes.
func (s shipwreck) workers() (out []processes.Role) {
	for _, role := range s.Roles() {
		if role != processes.Postgres && role != processes.Temporal {
			out = append(out, role)
		}
	}
	return out
}

func (s shipwreck) kill(roles ...processes.Role) {
	s.t.Helper()
	for _, role := range roles {
		require.NoError(s.t, s.Kill(role))
	}
}

func (s shipwreck) start(ctx context.Context, roles ...processes.Role) {
	s.t.Helper()
	for _, role := range roles {
		require.NoError(s.t, s.Restart(ctx, role))
	}
	for _, role := range roles {
		require.NoError(s.t, s.Await(ctx, role))
	}
}

// lose drops databases of the server. It makes an empty one for the store, as the user of the
// server would.
func (s shipwreck) lose(ctx context.Context, databases ...string) {
	s.t.Helper()
	server := strings.TrimSuffix(s.Store, "/fulgurite")
	conn, err := pgx.Connect(ctx, server+"/postgres")
	require.NoError(s.t, err)
	for _, name := range databases {
		_, err := conn.Exec(ctx, "DROP DATABASE "+name+" WITH (FORCE)")
		require.NoError(s.t, err)
		if name == "fulgurite" {
			_, err := conn.Exec(ctx, "CREATE DATABASE fulgurite")
			require.NoError(s.t, err)
		}
	}
	require.NoError(s.t, conn.Close(ctx))
}

// rename gives the database of the store another name, makes an empty one in its place, and
// returns the address of the old one.
func (s shipwreck) rename(ctx context.Context, name string) string {
	s.t.Helper()
	server := strings.TrimSuffix(s.Store, "/fulgurite")
	conn, err := pgx.Connect(ctx, server+"/postgres")
	require.NoError(s.t, err)
	for _, statement := range []string{
		"SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = 'fulgurite'", "ALTER DATABASE fulgurite RENAME TO " + name, "CREATE DATABASE fulgurite",
	} {
		_, err := conn.Exec(ctx, statement)
		require.NoError(s.t, err)
	}
	require.NoError(s.t, conn.Close(ctx))
	return server + "/" + name
}

// weights waits until the run has ended and returns the weights of its versions.
func (s shipwreck) weights(ctx context.Context, versions int) (out []string) {
	s.t.Helper()
	records, err := store.Open(ctx, s.Store, nil)
	require.NoError(s.t, err)
	defer func() { require.NoError(s.t, records.Close()) }()
	require.Eventually(s.t, func() bool {
		run, err := records.Run(ctx, "small")
		return err == nil && run.Status == record.Completed
	}, 2*time.Minute, 100*time.Millisecond)
	for number := range versions + 1 {
		v, err := records.Version(ctx, model.VersionID{Run: "small", Policy: model.DefaultPolicy, Number: number})
		require.NoError(s.t, err)
		out = append(out, v.Weights)
	}
	return out
}

// A backup is made while a run is under way. Later the store is lost while Temporal knows more of
// the run, then when Temporal knows the end of the run, and then Temporal is lost, too.
func TestAFleetGoesOnFromARestoredStore(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	const steps = 4
	s := shipwreck{start(t, processes.Options{CPUs: 1}), t}
	records, err := store.Open(ctx, s.Store, nil)
	require.NoError(t, err)
	temporal, err := client.DialContext(ctx, client.Options{HostPort: s.Temporal})
	require.NoError(t, err)
	defer temporal.Close()
	other, err := temporal.ExecuteWorkflow(ctx, client.StartWorkflowOptions{ID: "other", TaskQueue: workflows.QueueTraining},
		"TrainingWorkflow", workflows.TrainingInput{Spec: named(t, "other", smallSpec(t, 1))})
	require.NoError(t, err)
	require.NoError(t, other.Get(ctx, nil))

	run := train(ctx, t, s.Fleet, steps)
	version := func(number int) (weights string) {
		t.Helper()
		require.Eventually(t, func() bool {
			v, err := records.Version(ctx, model.VersionID{Run: "small", Policy: model.DefaultPolicy, Number: number})
			weights = v.Weights
			return err == nil
		}, 2*time.Minute, 20*time.Millisecond)
		return weights
	}
	version(1)
	saved := filepath.Join(t.TempDir(), "saved")
	var report struct {
		Manifest struct {
			Runs []struct{ Name, Status string }
		}
	}
	require.NoError(t, json.Unmarshal([]byte(s.done(ctx, "fulgurite", "backup", saved, "--json")), &report))
	require.Len(t, report.Manifest.Runs, 2)
	require.Equal(t, "running", report.Manifest.Runs[1].Status)
	undisturbed := version(2)
	s.kill(s.workers()...)
	now, err := temporal.DescribeWorkflowExecution(ctx, run.GetID(), "")
	require.NoError(t, err)
	require.Equal(t, enums.WORKFLOW_EXECUTION_STATUS_RUNNING, now.WorkflowExecutionInfo.Status)
	require.Contains(t, s.done(ctx, "fulgurite", "forget", "--run", "other", "--yes", "--reason", "asked to"), "a restore of it forgets it again")
	require.NoError(t, records.Close())

	// What can't be, and why.
	out, code := s.tool(ctx, "fulgurite", "restore", saved)
	require.Equal(t, 2, code)
	require.Contains(t, out, "this database can't be used: it is not empty")
	out, code = s.tool(ctx, "fulgurite", "restore", saved, "--to", t.TempDir())
	require.Equal(t, 2, code)
	require.Contains(t, out, "has the backup of a fleet")

	s.lose(ctx, "fulgurite")
	require.NoError(t, os.Rename(s.Blobs, s.Blobs+"-lost"))
	out = s.done(ctx, "fulgurite", "restore", saved, "--verify")
	require.Regexp(t, `(?m)^  runs +2, 1 of them under way then$`, out)
	require.Regexp(t, `(?m)^  forgotten  run other, as `, out)
	require.NoError(t, s.Restart(ctx, processes.CPU1))
	<-s.Ended(processes.CPU1)
	log, err := os.ReadFile(s.Log(processes.CPU1))
	require.NoError(t, err)
	require.Contains(t, string(log), "`fulgurite-worker mend` lets them go on")
	require.Contains(t, s.done(ctx, "fulgurite-worker", "mend"), `"reset":["small"]`)
	s.start(ctx, s.workers()...)
	out, code = s.tool(ctx, "fulgurite-worker", "mend", "--wait", "100ms")
	require.Equal(t, 1, code)
	require.Contains(t, out, "stop all processes of the fleet first")
	want := s.weights(ctx, steps)
	require.Equal(t, undisturbed, want[2])
	out, code = s.tool(ctx, "fulgurite", "report", "other")
	require.Equal(t, 2, code)
	require.Contains(t, out, "asked to")
	require.Contains(t, s.done(ctx, "fulgurite", "report", "small"), "Every prompt is accounted for.")

	// What the backup was not told, the old store tells.
	s.kill(s.workers()...)
	told := forgetWhatItWasTold(t, saved)
	old := s.rename(ctx, "old")
	out = s.done(ctx, "fulgurite", "restore", saved, "--forgotten", old)
	require.Regexp(t, `(?m)^  forgotten  run other, as `, out)
	require.NoError(t, os.WriteFile(filepath.Join(saved, "forgotten.json"), told, 0o600))
	require.Contains(t, s.done(ctx, "fulgurite-worker", "mend"), `"reset":["small"]`)
	s.start(ctx, s.workers()...)
	require.Equal(t, want, s.weights(ctx, steps))

	s.kill(append(s.workers(), processes.Temporal)...)
	s.lose(ctx, "fulgurite", "temporal", "temporal_visibility")
	s.start(ctx, processes.Temporal)
	require.Regexp(t, `(?m)^  forgotten  run other, as `, s.done(ctx, "fulgurite", "restore", saved))
	s.done(ctx, "fulgurite-worker", "migrate")
	require.Contains(t, s.done(ctx, "fulgurite-worker", "mend"), `"started again":["small"]`)
	s.start(ctx, s.workers()...)
	require.Equal(t, want, s.weights(ctx, steps))
	require.NoError(t, s.Close())
}

// forgetWhatItWasTold leaves a backup without what was forgotten since, and returns what its
// file had.
func forgetWhatItWasTold(t *testing.T, saved string) []byte {
	t.Helper()
	path := filepath.Join(saved, "forgotten.json")
	told, err := os.ReadFile(path)
	require.NoError(t, err)
	var file map[string]any
	require.NoError(t, json.Unmarshal(told, &file))
	require.Len(t, file["forgotten"], 1)
	file["forgotten"] = []any{}
	text, err := json.Marshal(file)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, text, 0o600))
	return told
}

// named returns a spec with another name.
func named(t *testing.T, name string, text []byte) []byte {
	t.Helper()
	var fields map[string]any
	require.NoError(t, json.Unmarshal(text, &fields))
	fields["name"] = name
	text, err := json.Marshal(fields)
	require.NoError(t, err)
	return text
}
