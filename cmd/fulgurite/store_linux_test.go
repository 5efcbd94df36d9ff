package main

import (
	"bytes"
	"database/sql"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/terminal"
	"github.com/fulgurite/fulgurite/internal/devserver"
	"github.com/fulgurite/fulgurite/workers/stack"
)

// runTool executes a command line in this process.
func runTool(t *testing.T, args ...string) (code int, out, errs string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code = run(t.Context(), args, &terminal.Terminal{Out: &stdout, Err: &stderr})
	return code, stdout.String(), stderr.String()
}

func TestEveryCommandRefusesAStoreOfAnotherRelease(t *testing.T) {
	t.Parallel()
	dir := newUnaccountedRun(t)
	db, err := sql.Open("sqlite", stack.Layout(dir).Database())
	require.NoError(t, err)
	_, err = db.ExecContext(t.Context(), "UPDATE goose_db_version SET version_id = 9999 WHERE version_id > 0")
	require.NoError(t, err)
	require.NoError(t, db.Close())
	for _, command := range [][]string{
		{"runs"}, {"report", "demo"}, {"status", "demo"}, {"calls", "demo"}, {"promote", "demo", "1"}, {"retry", "demo"}, {"page", "--port", "0"},
		{"dev", "--port", "0", "--ui-port", "0", "--gateway-port", "0"},
	} {
		code, _, errs := runTool(t, append(command, "--dir", dir)...)
		require.NotZero(t, code, command)
		require.Contains(t, errs, "it has schema 9999, of a newer release, and this program needs schema", command)
		require.Contains(t, errs, "or another store for new ones (--dir", command)
	}
	_, out, _ := runTool(t, "doctor", "--dir", dir)
	require.Contains(t, out, "missing: open store "+stack.Layout(dir).Database())
}

func TestADamagedDatabaseIsNamedAtTheStart(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"fulgurite.db", "temporal/temporal.db"} {
		t.Run(filepath.Base(name), func(t *testing.T) {
			t.Parallel()
			dir := newUnaccountedRun(t)
			server, err := devserver.Start(t.Context(), devserver.Options{Dir: stack.Layout(dir).Temporal()})
			require.NoError(t, err)
			require.NoError(t, server.Stop())
			path := filepath.Join(dir, name)
			stat, err := os.Stat(path)
			require.NoError(t, err)
			require.NoError(t, os.Truncate(path, stat.Size()/2))
			code, out, errs := runTool(t, "dev", "--port", "0", "--ui-port", "0", "--gateway-port", "0", "--dir", dir)
			require.Equal(t, exitFailed, code)
			require.NotContains(t, out, "is up")
			require.Contains(t, errs, path)
			require.Contains(t, errs, "restore it from a backup, as docs/backup.md describes")
		})
	}
}

// A backup is often mounted for reading, and a user may read the directory of another.
func TestCommandsThatReadWorkWhereNothingCanBeWritten(t *testing.T) {
	t.Parallel()
	for _, logged := range []bool{false, true} {
		dir := newUnaccountedRun(t)
		if logged { // as a killed stack leaves it
			db, err := sql.Open("sqlite", stack.Layout(dir).Database())
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, db.Close()) })
			_, err = db.ExecContext(t.Context(), "UPDATE runs SET created = created + 1")
			require.NoError(t, err)
			require.FileExists(t, stack.Layout(dir).Database()+"-wal")
		}
		want := map[string]string{}
		commands := [][]string{{"runs", "--json"}, {"report", "demo"}, {"calls", "demo"}, {"export", "demo", "0", filepath.Join(t.TempDir(), "out")}}
		for _, command := range commands {
			_, out, errs := runTool(t, append(command, "--dir", dir)...)
			want[command[0]] = out + errs
		}
		protect(t, dir)
		for _, command := range commands {
			tool := newTool(append(command, "--dir", dir)...)
			tool.SysProcAttr = anotherUser()
			var out, errs bytes.Buffer
			tool.Stdout, tool.Stderr = &out, &errs
			err := tool.Run()
			var exit *exec.ExitError
			if err != nil && !errors.As(err, &exit) {
				t.Skipf("no other user id can be had here: %v", err)
			}
			require.Equal(t, want[command[0]], out.String()+errs.String(), "%v, logged %t", command, logged)
		}
		// What writes says why it can't.
		tool := newTool("promote", "demo", "1", "--dir", dir)
		tool.SysProcAttr = anotherUser()
		out, _ := tool.CombinedOutput() // it fails
		require.Contains(t, string(out), "can't be written here", "logged %t", logged)
	}
}

// protect takes away the right to write from a directory and all that is in it.
func protect(t *testing.T, dir string) {
	t.Helper()
	change := func(without, with fs.FileMode) {
		_ = filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			if stat, statErr := os.Stat(path); err == nil && statErr == nil {
				_ = os.Chmod(path, stat.Mode().Perm()&^without|with)
			}
			return nil
		})
	}
	change(0o222, 0o444)
	t.Cleanup(func() { change(0, 0o200) })
}

// anotherUser lets a process run with a user id that has no name and no rights beyond
// those of the files' owner.
func anotherUser() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 424242, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 424242, HostID: os.Getgid(), Size: 1}},
	}
}
