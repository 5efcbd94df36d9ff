package store_test

import (
	"database/sql"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/internal/pgtest"
	"github.com/fulgurite/fulgurite/store"
)

// setSchema makes a store claim to have another schema.
func setSchema(t *testing.T, db *sql.DB, number int) {
	t.Helper()
	_, err := db.ExecContext(t.Context(), "UPDATE goose_db_version SET version_id = $1 WHERE version_id > 0", number)
	require.NoError(t, err)
}

func TestAnotherSchemaIsRefusedWithBothNumbers(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store.db")
	open(t, path)
	file, err := sql.Open("sqlite", path)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, file.Close()) })
	url := pgtest.URL(t)
	server, err := sql.Open("pgx", url)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Close()) })
	for address, db := range map[string]*sql.DB{path: file, url: server} {
		for number, release := range map[int]string{7: "an older release", 9999: "a newer release"} {
			setSchema(t, db, number)
			_, err := store.Open(t.Context(), address, nil)
			require.ErrorIs(t, err, store.ErrUnusable)
			require.Regexp(t, `it has schema \d+, of `+release+`, and this program needs schema \d\d: use the program of that release .*--dir`, err.Error())
		}
	}
	other := filepath.Join(t.TempDir(), "other.db")
	db, err := sql.Open("sqlite", other)
	require.NoError(t, err)
	_, err = db.ExecContext(t.Context(), "CREATE TABLE customers (id INT)")
	require.NoError(t, err)
	require.NoError(t, db.Close())
	_, err = store.Open(t.Context(), other, nil)
	require.ErrorIs(t, err, store.ErrUnusable)
	require.ErrorContains(t, err, "tables of another program")
}

func TestAddressesThatAreNoneMakeNoFileAndShowNoPassword(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, address := range []string{
		"host=db.example port=5432 password=hunter22 dbname=f", " user=f password=hunter22", "mysql://f:hunter22@db/f", "postgress://f:hunter22@db/f",
		"jdbc:postgresql://db/f?user=f&password=hunter22", "sqlite:f.db?password=hunter22", "file:///tmp/f.db?password=hunter22", "POSTGRES://f:hunter22@db/f",
		"postgres://f:hunter22/x@db:5432/f", "postgres://f@db:hunter22/f", "postgres://f@127.0.0.1:1/f?password=hunter22&sslmode=nonsense", "postgres:f:hunter22@db",
		" postgres://f:hunter22@db/f", "postgres://f:hunter22@db/f ", "postgres://f:hunter22@db/f\r", `"postgres://f:hunter22@db/f"`, "'sqlite:///f.db'", "f.db ",
		"", "  ", "sqlite://", "sqlite://f.db", ":memory:",
	} {
		_, err := store.Open(t.Context(), address, nil)
		require.ErrorIs(t, err, store.ErrUnusable, address)
		require.NotContains(t, err.Error(), "hunter22", address)
		require.NotContains(t, store.Redacted(address), "hunter22", address)
	}
	_, err := store.Open(t.Context(), "postgres://f:hunter22@127.0.0.1:1/f?password=hunter22&connect_timeout=1", nil)
	require.Error(t, err)
	require.NotErrorIs(t, err, store.ErrUnusable, "the server may come up")
	require.NotContains(t, err.Error(), "hunter22")
	require.Equal(t, "postgres://f:xxxxx@db/f?passfile=xxxxx&sslmode=disable", store.Redacted("postgres://f:hunter22@db/f?sslmode=disable&passfile=hunter22"))
	left, err := os.ReadDir(".")
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestADamagedFileIsNamedWithWhatToDo(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store.db")
	s, err := store.Open(t.Context(), path, nil)
	require.NoError(t, err)
	require.NoError(t, s.Migrate(t.Context()))
	a := begin(t, s, rollout(0, 0))
	appendCalls(t, s, conversation(a, 3)...)
	require.NoError(t, s.Close())
	require.NoError(t, store.CheckFile(t.Context(), path))
	whole, err := os.ReadFile(path)
	require.NoError(t, err)
	for name, content := range map[string][]byte{
		"cut": whole[:len(whole)/2], "cut in a page": whole[:len(whole)-100], "another file": []byte("<html>Not found, says the server of the backup."),
		"a page is gone": append(append(append([]byte{}, whole[:4096]...), make([]byte, 4096)...), whole[8192:]...),
	} {
		require.NoError(t, os.WriteFile(path, content, 0o600))
		err := store.CheckFile(t.Context(), path)
		require.ErrorIs(t, err, store.ErrUnusable, name)
		require.ErrorContains(t, err, path)
		require.ErrorContains(t, err, "restore it from a backup")
	}
	require.NoError(t, store.CheckFile(t.Context(), filepath.Join(t.TempDir(), "absent.db")))
}
