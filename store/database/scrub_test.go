package database_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/fulgurite/fulgurite/store/database"
)

// planted is what removed notes had.
const planted = "planted text"

// longLog makes an SQLite database whose log's file has some megabytes, as a reader leaves it
// that was long under way, and a note that was removed.
func longLog(t *testing.T, path string, megabytes int) database.DB {
	t.Helper()
	db, err := database.Open(t.Context(), path, zap.NewNop())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	require.NoError(t, db.Write(t.Context(), database.SurvivesKill, func(tx database.Tx) error {
		if _, err := tx.Exec("PRAGMA secure_delete = ON"); err != nil {
			return err
		}
		// A second table makes it a store that can be opened again.
		_, err := tx.Exec("CREATE TABLE notes (id INTEGER PRIMARY KEY, text BLOB NOT NULL); CREATE TABLE goose_db_version (version_id INTEGER, is_applied INTEGER)")
		return err
	}))
	require.NoError(t, put(t, db, database.SurvivesKill, 1, bytes.Repeat([]byte(planted), 1000), nil))
	reader, err := db.Read().QueryContext(t.Context(), "SELECT id FROM notes UNION ALL SELECT 2")
	require.NoError(t, err)
	require.True(t, reader.Next())
	for n := range megabytes {
		require.NoError(t, put(t, db, database.SurvivesKill, 10+n, make([]byte, 1<<20), nil))
	}
	require.NoError(t, db.Write(t.Context(), database.SurvivesKill, func(tx database.Tx) error {
		_, err := tx.Exec("DELETE FROM notes WHERE id = 1")
		return err
	}))
	require.NoError(t, reader.Close())
	require.Greater(t, size(t, path+"-wal"), int64(megabytes)<<20)
	return db
}

func size(t *testing.T, path string) int64 {
	t.Helper()
	stat, err := os.Stat(path)
	require.NoError(t, err)
	return stat.Size()
}

// requireGone reports removed notes that a file still has.
func requireGone(t *testing.T, path string) {
	t.Helper()
	for _, name := range []string{path, path + "-wal"} {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		require.False(t, bytes.Contains(text, []byte(planted)), filepath.Base(name))
	}
}

func TestALongLogIsEmptiedThoughNobodyWrites(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "notes.db")
	db := longLog(t, path, 20)
	require.NoError(t, db.Scrub(t.Context(), false))
	require.Zero(t, size(t, path+"-wal"))
	requireGone(t, path)
	require.Len(t, ids(t, db), 20)
}

func TestALogIsCutOnlyWhereNobodyReadsIt(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "notes.db")
	db := longLog(t, path, 20)
	before := size(t, path+"-wal")
	database.CutLog(t, db)
	require.Equal(t, before, size(t, path+"-wal"), "all of it is in use")
	require.NoError(t, put(t, db, database.SurvivesKill, 1000, []byte{1}, nil)) // the log begins anew
	database.CutLog(t, db)
	require.Equal(t, before-8<<20, size(t, path+"-wal"))
	require.Len(t, ids(t, db), 21)
}

func TestALongLogIsEmptiedBesideAWriterThatNeverPausesAndLosesNothing(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it writes for seconds")
	}
	path := filepath.Join(t.TempDir(), "notes.db")
	db := longLog(t, path, 40)
	other, err := database.Open(t.Context(), path, zap.NewNop())
	require.NoError(t, err)
	defer func() { require.NoError(t, other.Close()) }()
	const first = 1000
	var stop atomic.Bool
	written := 0
	var g errgroup.Group
	g.Go(func() error {
		for ; !stop.Load(); written++ {
			if err := put(t, other, database.SurvivesKill, first+written, []byte{1}, nil); err != nil {
				return err
			}
		}
		return nil
	})
	require.NoError(t, db.Scrub(t.Context(), false))
	after := size(t, path+"-wal")
	stop.Store(true)
	require.NoError(t, g.Wait())
	require.Less(t, after, int64(1<<20), "what was written since")
	requireGone(t, path)
	require.Len(t, ids(t, db), 40+written)
}

func TestALogThatAReaderNeedsIsLeftAloneUntilItEnds(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "notes.db")
	db := longLog(t, path, 1)
	reader, err := db.Read().QueryContext(t.Context(), "SELECT id FROM notes UNION ALL SELECT 2")
	require.NoError(t, err)
	require.True(t, reader.Next())
	began := time.Now()
	require.False(t, database.TruncateLog(t, db))
	require.Less(t, time.Since(began), 5*time.Second, "writers wait meanwhile, as long as other statements wait")

	ctx, cancel := context.WithCancel(t.Context())
	var g errgroup.Group
	g.Go(func() error { return db.Scrub(ctx, false) })
	for n := range 50 {
		require.NoError(t, put(t, db, database.SurvivesKill, 1000+n, []byte{1}, nil))
	}
	cancel()
	require.ErrorIs(t, g.Wait(), context.Canceled)
	require.NoError(t, reader.Close())
	require.NoError(t, db.Scrub(t.Context(), false))
	requireGone(t, path)
	require.Len(t, ids(t, db), 51)
}

// envScrub is the path of the file that a process scrubs until it is killed.
const envScrub = "FULGURITE_TEST_SCRUB"

// A process is killed at any moment while it empties the log, beside a writer, and the next one
// ends it.
func TestAScrubThatIsKilledLosesNothingAndIsEndedByTheNext(t *testing.T) {
	t.Parallel()
	if path := os.Getenv(envScrub); path != "" {
		db, err := database.Open(t.Context(), path, zap.NewNop())
		require.NoError(t, err)
		fmt.Println("begun")
		for {
			require.NoError(t, db.Scrub(t.Context(), false))
		}
	}
	if testing.Short() {
		t.Skip("it starts a process for each kill")
	}
	path := filepath.Join(t.TempDir(), "notes.db")
	db := longLog(t, path, 1)
	written := 0
	for kill := range 12 {
		reader, err := db.Read().QueryContext(t.Context(), "SELECT id FROM notes UNION ALL SELECT 2")
		require.NoError(t, err)
		require.True(t, reader.Next())
		for range 12 {
			require.NoError(t, put(t, db, database.SurvivesKill, 1000+written, make([]byte, 1<<20), nil))
			written++
		}
		c := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^"+t.Name()+"$")
		c.Env = append(os.Environ(), envScrub+"="+path)
		out, err := c.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, c.Start())
		_, err = out.Read(make([]byte, 1))
		require.NoError(t, err)
		require.NoError(t, reader.Close())
		for began := time.Now(); time.Since(began) < time.Duration(kill)*10*time.Millisecond; written++ {
			require.NoError(t, put(t, db, database.SurvivesKill, 1000+written, []byte{1}, nil))
		}
		require.NoError(t, c.Process.Signal(syscall.SIGKILL))
		require.ErrorContains(t, c.Wait(), "killed")
		require.Len(t, ids(t, db), 1+written)
	}
	require.NoError(t, database.CheckFile(t.Context(), path))
	require.NoError(t, db.Scrub(t.Context(), false))
	require.Zero(t, size(t, path+"-wal"))
	requireGone(t, path)
	require.Len(t, ids(t, db), 1+written)
}
