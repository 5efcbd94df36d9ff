package sqlmatch_test

import (
	"database/sql"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/tasks/sqlmatch"
)

// walDatabase makes a database in WAL mode. If kept is true, its last change is still
// beside it, as a process leaves it that writes or was killed.
func walDatabase(t *testing.T, kept bool) string {
	t.Helper()
	made := filepath.Join(t.TempDir(), "a #1? 100%.sqlite")
	db, err := sql.Open("sqlite", "file:"+filepath.Join(filepath.Dir(made), "made.sqlite"))
	require.NoError(t, err)
	db.SetMaxOpenConns(1)
	_, err = db.Exec("PRAGMA journal_mode=wal; CREATE TABLE animal (name TEXT); INSERT INTO animal VALUES ('owl'); PRAGMA wal_checkpoint(TRUNCATE); INSERT INTO animal VALUES ('cat')")
	require.NoError(t, err)
	from := filepath.Join(filepath.Dir(made), "made.sqlite")
	if !kept {
		require.NoError(t, db.Close())
	}
	folder := t.TempDir()
	path := filepath.Join(folder, filepath.Base(made))
	for _, suffix := range []string{"", "-wal"} {
		data, err := os.ReadFile(from + suffix)
		if !kept && suffix != "" {
			require.ErrorIs(t, err, os.ErrNotExist)
			continue
		}
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(path+suffix, data, 0o600))
	}
	if kept {
		require.NoError(t, db.Close())
	}
	return path
}

func TestReadingADatabaseInWALModeLeavesNoFiles(t *testing.T) {
	t.Parallel()
	path := walDatabase(t, false)
	// Where this is a link to nothing, no process can make the file, as in a folder that is
	// read-only.
	require.NoError(t, os.Symlink("nowhere/shm", path+"-shm"))
	var databases sqlmatch.Databases
	right, err := databases.Match(t.Context(), sqlmatch.Comparison{Database: path, Gold: "SELECT name FROM animal", Query: "SELECT name FROM animal WHERE name IN ('owl', 'cat')"})
	require.NoError(t, err)
	require.True(t, right.Right)
	require.NoError(t, os.Remove(path+"-shm"))
	_, err = databases.CheckGold(t.Context(), sqlmatch.Comparison{Database: path, Gold: "SELECT 1 FROM animal"})
	require.NoError(t, err)
	require.NoError(t, databases.Close())
	left, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	require.Len(t, left, 1)
}

func TestChangesOfADatabaseInWALModeAreRead(t *testing.T) {
	t.Parallel()
	path := walDatabase(t, true)
	var databases sqlmatch.Databases
	defer databases.Close()
	right, err := databases.Match(t.Context(), sqlmatch.Comparison{Database: path, Gold: "SELECT count(*) FROM animal", Query: "SELECT 2"})
	require.NoError(t, err)
	require.True(t, right.Right)
}

func TestChangesThatCantBeReadAreNamed(t *testing.T) {
	t.Parallel()
	path := walDatabase(t, true)
	require.NoError(t, os.Symlink("nowhere/shm", path+"-shm"))
	var databases sqlmatch.Databases
	defer databases.Close()
	_, err := databases.CheckGold(t.Context(), sqlmatch.Comparison{Database: path, Gold: "SELECT 1 FROM animal"})
	require.ErrorIs(t, err, sqlmatch.ErrDatabase)
	require.ErrorContains(t, err, "it is in WAL mode, and reading the changes in "+filepath.Base(path)+"-wal needs a file that can't be made or read in the folder "+filepath.Dir(path))
}
