package database_test

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/fulgurite/fulgurite/store/database"
)

// Here writers and readers never pause, so a copy in the background never reaches the end
// of the log. The log has to start again from its beginning all the same.
func TestLogBeginsAnewWhileWritersNeverPause(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "notes.db")
	db, err := database.Open(t.Context(), path, zap.NewNop())
	require.NoError(t, err)
	database.CopyLogEvery(db, 16)
	require.NoError(t, db.Write(t.Context(), database.SurvivesKill, func(tx database.Tx) error {
		_, err := tx.Exec("CREATE TABLE notes (id INTEGER PRIMARY KEY, text BLOB NOT NULL)")
		return err
	}))
	const most = 50000
	began := timesBegun(t, path)
	text := bytes.Repeat([]byte("note"), 1024)
	var next atomic.Int64
	var g errgroup.Group
	for range 4 {
		g.Go(func() error {
			for timesBegun(t, path) < began+3 {
				id := int(next.Add(1))
				if id > most {
					return nil
				}
				if err := put(t, db, database.SurvivesKill, id, text, nil); err != nil {
					return err
				}
				if _, err := database.List(t.Context(), db.Read(), database.Scalar[int], "SELECT id FROM notes WHERE id = $1", id); err != nil {
					return err
				}
			}
			return nil
		})
	}
	require.NoError(t, g.Wait())
	require.GreaterOrEqual(t, timesBegun(t, path), began+3)
	written := min(int(next.Load()), most)
	require.Len(t, ids(t, db), written)

	require.NoError(t, db.Close())
	_, err = os.Stat(path + "-wal")
	require.ErrorIs(t, err, os.ErrNotExist, "the last connection copies what is left")
}

// timesBegun returns how often SQLite started the log again: the "checkpoint sequence
// number" of https://sqlite.org/fileformat.html#the_wal_file_format. It may run in any
// goroutine.
func timesBegun(t *testing.T, path string) int {
	log, err := os.Open(path + "-wal")
	if err != nil {
		t.Error(err)
		return 0
	}
	defer func() { _ = log.Close() }()
	var header [16]byte
	if _, err := log.ReadAt(header[:], 0); err != nil {
		t.Error(err)
	}
	return int(binary.BigEndian.Uint32(header[12:]))
}
