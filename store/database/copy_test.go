package database_test

import (
	"context"
	"database/sql"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/store/database"
)

// file makes an SQLite file with a log and a table of one number.
func file(t *testing.T, name string) (path string, db *sql.DB) {
	t.Helper()
	path = filepath.Join(t.TempDir(), name)
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=journal_mode(wal)&_pragma=busy_timeout(10000)&_txlock=immediate")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	_, err = db.ExecContext(t.Context(), "CREATE TABLE n (n INTEGER); INSERT INTO n VALUES (1)")
	require.NoError(t, err)
	return path, db
}

// A writer that has written to one file and not yet to the other is waited for, without a
// lock on the first file meanwhile.
func TestCopiesOfOneMomentWaitForWriters(t *testing.T) {
	t.Parallel()
	first, one := file(t, "first.db")
	second, two := file(t, "second.db")
	writing, err := two.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = writing.ExecContext(t.Context(), "UPDATE n SET n = 2")
	require.NoError(t, err)

	to := t.TempDir()
	copies := []database.FileCopy{{From: first, To: filepath.Join(to, "first.db")}, {From: second, To: filepath.Join(to, "second.db")}}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	copied := make(chan error, 1)
	go func() { copied <- database.CopyTogether(ctx, copies...) }()
	for ctx.Err() == nil {
		_, err := one.ExecContext(t.Context(), "UPDATE n SET n = n + 1")
		require.NoError(t, err)
	}
	require.Error(t, <-copied)
	require.NoFileExists(t, copies[0].To)

	require.NoError(t, writing.Commit())
	require.NoError(t, database.CopyTogether(t.Context(), copies...))
	db, err := sql.Open("sqlite", copies[1].To)
	require.NoError(t, err)
	var n int
	require.NoError(t, db.QueryRowContext(t.Context(), "SELECT n FROM n").Scan(&n))
	require.NoError(t, db.Close())
	require.Equal(t, 2, n)
}

// What is copied is what was there at the beginning, however much is written meanwhile.
func TestACopyIsOfOneMoment(t *testing.T) {
	t.Parallel()
	path, db := file(t, "large.db")
	_, err := db.ExecContext(t.Context(), `CREATE TABLE filler (a INTEGER, data BLOB);
WITH RECURSIVE i(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM i WHERE i < 2000) INSERT INTO filler SELECT 0, randomblob(8000) FROM i`)
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	written := make(chan struct{})
	go func() {
		defer close(written)
		for ctx.Err() == nil {
			_, _ = db.ExecContext(ctx, "UPDATE filler SET a = a + 1") // ctx may have ended
		}
	}()
	to := filepath.Join(t.TempDir(), "copy.db")
	require.NoError(t, database.CopyTogether(t.Context(), database.FileCopy{From: path, To: to}))
	stop()
	<-written
	require.NoError(t, database.CheckFile(t.Context(), to))
	copied, err := sql.Open("sqlite", to)
	require.NoError(t, err)
	var values int
	require.NoError(t, copied.QueryRowContext(t.Context(), "SELECT COUNT(DISTINCT a) FROM filler").Scan(&values))
	require.NoError(t, copied.Close())
	require.Equal(t, 1, values)
}

// With the old journal, whoever reads a file for long would keep writers waiting.
func TestAFileWithoutALogIsNotCopied(t *testing.T) {
	t.Parallel()
	path, db := file(t, "old.db")
	_, err := db.ExecContext(t.Context(), "PRAGMA journal_mode = delete")
	require.NoError(t, err)
	to := filepath.Join(t.TempDir(), "copy.db")
	err = database.CopyTogether(t.Context(), database.FileCopy{From: path, To: to})
	require.ErrorContains(t, err, path)
	require.ErrorContains(t, err, `journal mode is "delete"`)
	_, err = os.Stat(to)
	require.ErrorIs(t, err, os.ErrNotExist)
}
