package processes_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
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
	addRun(ctx, t, records, "other")

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
	// The run does not end while the backup is made, however slow this machine is.
	s.kill(processes.GPU)
	saved := filepath.Join(t.TempDir(), "saved")
	var report struct {
		Manifest struct {
			Runs []struct{ Name, Status string }
		}
	}
	require.NoError(t, json.Unmarshal([]byte(s.done(ctx, "fulgurite", "backup", saved, "--json")), &report))
	require.Len(t, report.Manifest.Runs, 2)
	require.Equal(t, "running", report.Manifest.Runs[1].Status)
	s.start(ctx, processes.GPU)
	undisturbed := version(2)
	s.kill(processes.GPU)
	s.kill(slices.DeleteFunc(s.workers(), func(r processes.Role) bool { return r == processes.GPU })...)
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
	s.start(ctx, processes.Temporal) // again, so that it knows of no process that was killed
	out = s.done(ctx, "fulgurite", "restore", saved, "--verify")
	require.Regexp(t, `(?m)^  runs +2, 1 of them under way then$`, out)
	require.Regexp(t, `(?m)^  forgotten  run other, as `, out)
	require.NoError(t, s.Restart(ctx, processes.CPU1))
	<-s.Ended(processes.CPU1)
	log, err := os.ReadFile(s.Log(processes.CPU1))
	require.NoError(t, err)
	require.Contains(t, string(log), "`fulgurite-worker mend` lets them go on")
	// A Temporal from before the removal still has the run.
	_, err = temporal.ExecuteWorkflow(ctx, client.StartWorkflowOptions{ID: "other", TaskQueue: workflows.QueueTraining},
		"TrainingWorkflow", workflows.TrainingInput{Spec: named(t, "other", smallSpec(t, 1))})
	require.NoError(t, err)
	out = s.done(ctx, "fulgurite-worker", "mend")
	require.Contains(t, out, `"reset":["small"]`)
	require.Contains(t, out, `"forgotten runs removed from Temporal":["other"]`)
	left, err := temporal.DescribeWorkflowExecution(ctx, "other", "")
	require.True(t, err != nil || left.WorkflowExecutionInfo.Status != enums.WORKFLOW_EXECUTION_STATUS_RUNNING, left)
	s.start(ctx, s.workers()...)
	out, code = s.tool(ctx, "fulgurite-worker", "mend", "--wait", "5s")
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
	s.start(ctx, processes.Temporal)
	out, code = s.tool(ctx, "fulgurite", "restore", saved)
	require.Equal(t, 2, code)
	require.Contains(t, out, "give one that is empty or does not exist", "the blobs are those of the old store")
	require.NoError(t, os.Rename(s.Blobs, s.Blobs+"-old"))
	out = s.done(ctx, "fulgurite", "restore", saved, "--forgotten", old)
	require.Regexp(t, `(?m)^  forgotten  run other, as `, out)
	require.NoError(t, os.WriteFile(filepath.Join(saved, "forgotten.json"), told, 0o600))
	require.Contains(t, s.done(ctx, "fulgurite-worker", "mend"), `"reset":["small"]`)
	s.start(ctx, s.workers()...)
	require.Equal(t, want, s.weights(ctx, steps))

	s.kill(append(s.workers(), processes.Temporal)...)
	s.lose(ctx, "fulgurite", "temporal", "temporal_visibility")
	s.start(ctx, processes.Temporal)
	require.NoError(t, os.RemoveAll(s.Blobs))
	require.Regexp(t, `(?m)^  forgotten  run other, as `, s.done(ctx, "fulgurite", "restore", saved))
	s.done(ctx, "fulgurite-worker", "migrate")
	require.Contains(t, s.done(ctx, "fulgurite-worker", "mend"), `"started again":["small"]`)
	s.start(ctx, s.workers()...)
	require.Equal(t, want, s.weights(ctx, steps))
	require.NoError(t, s.Close())
}

// place is where a store is restored to: an empty database, and a directory that is absent.
type place struct {
	shipwreck
	store, blobs string
	conn         *pgx.Conn
}

// place makes an empty database.
func (s shipwreck) place(ctx context.Context, name string) place {
	s.t.Helper()
	server := strings.TrimSuffix(s.Store, "/fulgurite")
	admin, err := pgx.Connect(ctx, server+"/postgres")
	require.NoError(s.t, err)
	_, err = admin.Exec(ctx, "CREATE DATABASE "+name)
	require.NoError(s.t, err)
	require.NoError(s.t, admin.Close(ctx))
	conn, err := pgx.Connect(ctx, server+"/"+name)
	require.NoError(s.t, err)
	return place{s, server + "/" + name, filepath.Join(s.t.TempDir(), name), conn}
}

func (p place) exec(ctx context.Context, statement string) {
	p.t.Helper()
	_, err := p.conn.Exec(ctx, statement)
	require.NoError(p.t, err)
}

// await waits until a query returns true.
func (p place) await(ctx context.Context, query string) {
	p.t.Helper()
	require.Eventually(p.t, func() bool {
		var ok bool
		return p.conn.QueryRow(ctx, query).Scan(&ok) == nil && ok
	}, time.Minute, 5*time.Millisecond, query)
}

// restore restores a backup to its end, and returns what it has made then.
func (p place) restore(ctx context.Context, saved string) map[string]string {
	p.t.Helper()
	require.Regexp(p.t, `(?m)^  forgotten  run other, as `, p.done(ctx, "fulgurite", "restore", saved, "--store", p.store, "--blobs", p.blobs))
	require.NoFileExists(p.t, filepath.Join(p.blobs, "restoring"))
	return contents(ctx, p.t, p.store, p.blobs)
}

const (
	// makeWait makes functions that wait as long as the test has the lock.
	makeWait = `CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_advisory_xact_lock(1); RETURN COALESCE(NEW, OLD); END $$;
CREATE FUNCTION wait_to_move() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN IF current_query() LIKE '%"versions" SET SCHEMA%' THEN PERFORM pg_advisory_xact_lock(1); END IF; END $$;
SELECT pg_advisory_lock(1)`
	// waitAt makes statements wait at a row of a table of the store that is being made, once there
	// is that table.
	waitAt = `CREATE FUNCTION add_wait() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN
IF EXISTS (SELECT 1 FROM pg_event_trigger_ddl_commands() WHERE object_identity = 'fulgurite_restoring.%[1]s') THEN
CREATE TRIGGER wait BEFORE %[2]s ON fulgurite_restoring.%[1]s FOR EACH ROW EXECUTE FUNCTION public.wait(); END IF; END $$;
CREATE EVENT TRIGGER at_a_row ON ddl_command_end WHEN TAG IN ('CREATE TABLE') EXECUTE FUNCTION add_wait()`
	waitToMove = `CREATE EVENT TRIGGER at_the_end ON ddl_command_start WHEN TAG IN ('ALTER TABLE') EXECUTE FUNCTION wait_to_move()`
	// stopWaiting lets go what waits, and what comes later.
	stopWaiting = `SELECT pg_advisory_unlock(1); DROP EVENT TRIGGER IF EXISTS at_a_row; DROP EVENT TRIGGER IF EXISTS at_the_end`
	waitsIn     = `SELECT EXISTS (SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'advisory' AND query LIKE '%s')`
	isAlone     = `SELECT NOT EXISTS (SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend')`
)

// killedRestore begins to restore a backup, and kills that when a statement waits at a stage.
func (p place) killedRestore(ctx context.Context, saved, wait, statement string) {
	p.t.Helper()
	p.exec(ctx, makeWait)
	p.exec(ctx, wait)
	command := exec.CommandContext(ctx, filepath.Join(os.Getenv(binEnvironment), "fulgurite"), "restore", saved)
	command.Env = append(os.Environ(), "FULGURITE_STORE="+p.store, "FULGURITE_BLOBS="+p.blobs, "TEMPORAL_ADDRESS="+p.Temporal, "FULGURITE_DIR="+p.t.TempDir())
	require.NoError(p.t, command.Start())
	p.await(ctx, fmt.Sprintf(waitsIn, statement))
	require.NoError(p.t, command.Process.Kill())
	require.ErrorContains(p.t, command.Wait(), "killed")
	p.exec(ctx, stopWaiting)
	p.await(ctx, isAlone)
	p.await(ctx, "SELECT to_regclass('public.runs') IS NULL AND to_regclass('fulgurite_restoring.runs') IS NOT NULL")
	require.FileExists(p.t, filepath.Join(p.blobs, "restoring"))
}

// contents returns all rows of each table of a store that restores of one backup have in common,
// and all blobs of a directory.
func contents(ctx context.Context, t *testing.T, address, blobs string) map[string]string {
	t.Helper()
	conn, err := pgx.Connect(ctx, address)
	require.NoError(t, err)
	rows, err := conn.Query(ctx, "SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
	require.NoError(t, err)
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.Greater(t, len(names), 30)
	out := map[string]string{}
	for _, name := range names {
		if name == "goose_db_version" || name == "forgotten" { // they have times
			continue
		}
		var text string
		require.NoError(t, conn.QueryRow(ctx, "SELECT COALESCE(string_agg(r::text, E'\\n' ORDER BY r::text), '') FROM "+name+" r").Scan(&text))
		out[name] = text
	}
	require.NoError(t, conn.Close(ctx))
	files, err := filepath.Glob(filepath.Join(blobs, "??", "*"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		out[filepath.Base(file)] = "a blob"
	}
	return out
}

// addRun adds a run that has ended. It has no histories, because Temporal takes half a minute to
// remove one.
func addRun(ctx context.Context, t *testing.T, records *store.Store, name string) {
	t.Helper()
	_, _, err := records.CreateRun(ctx, record.Run{Name: name, WorkflowID: name, ExecutionID: "x", Spec: json.RawMessage("{}"), Status: record.Failed})
	require.NoError(t, err)
}

// A backup is made while others write. Its restore is killed in the middle of a table, in the
// middle of what it forgets again, and while the store gets its place.
func TestAKilledRestoreBeginsAgain(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	s := shipwreck{start(t, processes.Options{CPUs: 1}), t}
	train(ctx, t, s.Fleet, 1)
	s.weights(ctx, 1)
	s.kill(s.workers()...)
	conn, err := pgx.Connect(ctx, s.Store)
	require.NoError(t, err)
	records, err := store.Open(ctx, s.Store, nil)
	require.NoError(t, err)
	addRun(ctx, t, records, "other")
	_, err = conn.Exec(ctx, `INSERT INTO attempts SELECT (jsonb_populate_record(NULL::attempts, to_jsonb(a) || '{"run": "other"}')).* FROM attempts a WHERE run = 'small'`)
	require.NoError(t, err)

	// The backup waits for a table, as it would for a large one.
	_, err = conn.Exec(ctx, "BEGIN; LOCK TABLE rewards IN ACCESS EXCLUSIVE MODE")
	require.NoError(t, err)
	saved := filepath.Join(t.TempDir(), "saved")
	made := make(chan string)
	go func() { out, _ := s.tool(ctx, "fulgurite", "backup", saved); made <- out }()
	require.Eventually(t, func() bool {
		var waits bool
		return conn.QueryRow(ctx, "SELECT EXISTS (SELECT 1 FROM pg_locks WHERE NOT granted AND relation = 'rewards'::regclass)").Scan(&waits) == nil && waits
	}, 2*time.Minute, 10*time.Millisecond)
	for _, name := range []string{"written", "during", "the-copy"} {
		addRun(ctx, t, records, name)
	}
	require.NoError(t, records.Close())
	_, err = conn.Exec(ctx, "ROLLBACK")
	require.NoError(t, err)
	require.NoError(t, conn.Close(ctx))
	require.Contains(t, <-made, "Backup of")
	s.done(ctx, "fulgurite", "forget", "--run", "other", "--yes")

	calm := s.place(ctx, "calm")
	want := calm.restore(ctx, saved)
	require.NoError(t, calm.conn.Close(ctx))
	require.Contains(t, want["runs"], "small")
	require.NotContains(t, want["runs"], "written")
	for name, at := range map[string]struct{ wait, statement string }{
		"loading":    {fmt.Sprintf(waitAt, "versions", "INSERT"), `COPY %"versions"%`},
		"forgetting": {fmt.Sprintf(waitAt, "attempts", "DELETE"), `DELETE FROM attempts %`},
		"moving":     {waitToMove, `ALTER TABLE %"versions" SET SCHEMA%`},
	} {
		p := s.place(ctx, name)
		p.killedRestore(ctx, saved, at.wait, at.statement)
		require.Empty(t, cmp.Diff(want, p.restore(ctx, saved)), name)
		require.NoError(t, p.conn.Close(ctx))
	}
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
