package backup_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/run/backup"
	"github.com/fulgurite/fulgurite/store"
	"github.com/fulgurite/fulgurite/store/blob"
)

func TestADatabaseThatIsNotEmptyIsNotRestoredTo(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.run("first")
	to := filepath.Join(t.TempDir(), "backup")
	f.backup(to)
	other := newFleet(t)
	other.run("kept")
	for _, c := range []struct {
		to   backup.Fleet
		want error
		text string
	}{
		{backup.Fleet{Store: other.at.Store, Blobs: filepath.Join(t.TempDir(), "new")}, backup.ErrDatabase, `it is not empty: its schema public has "actions"`},
		{f.at, backup.ErrDatabase, "it is not empty"},
		{backup.Fleet{Store: emptyPlace(t).Store, Blobs: other.at.Blobs}, backup.ErrPlace, "give one that is empty"},
		{backup.Fleet{Store: emptyPlace(t).Store, Blobs: f.at.Blobs}, backup.ErrPlace, "give one that is empty"},
		{backup.Fleet{Store: emptyPlace(t).Store, Blobs: unowned(t)}, backup.ErrPlace, "give one that is empty"},
	} {
		err := restoreFleet(t, to, c.to)
		require.ErrorIs(t, err, c.want)
		require.ErrorContains(t, err, c.text)
	}
	require.Equal(t, []string{"kept"}, directory{t: t, store: other.store}.names())
	source, err := backup.Open(to)
	require.NoError(t, err)
	defer func() { require.NoError(t, source.Close()) }()
	_, err = source.Stage(t.Context(), filepath.Join(t.TempDir(), "stack"), places)
	require.ErrorIs(t, err, backup.ErrPlace, "it has no Temporal")
	_, err = source.StageFleet(t.Context(), backup.Fleet{Store: "postgres://ada:secret@127.0.0.1:1/none", Blobs: filepath.Join(t.TempDir(), "blobs")}, nil)
	require.Error(t, err)
	require.NotContains(t, err.Error(), "secret")
}

func TestAUserWithoutARightIsTold(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.run("first")
	to := filepath.Join(t.TempDir(), "backup")
	f.backup(to)
	err := restoreFleet(t, to, backup.Fleet{Store: withoutRight(t), Blobs: filepath.Join(t.TempDir(), "new")})
	require.ErrorIs(t, err, backup.ErrDatabase)
	require.ErrorContains(t, err, "it may not make schemas in the database")
}

// withoutRight returns the address of an empty database in which its user may not make schemas.
func withoutRight(t testing.TB) string {
	t.Helper()
	address := emptyPlace(t).Store
	db := tablesAt(t, address)
	if !scalar[bool](t, db, "SELECT rolsuper OR rolcreaterole FROM pg_roles WHERE rolname = current_user") {
		t.Skip("skipped: the user of TEST_DATABASE_URL may not create roles")
	}
	role, password := "weak_"+strings.ToLower(rand.Text()), rand.Text()
	_, err := db.ExecContext(t.Context(), "CREATE ROLE "+role+" LOGIN PASSWORD '"+password+"'; GRANT CREATE, USAGE ON SCHEMA public TO "+role)
	require.NoError(t, err)
	t.Cleanup(func() {
		_, err := db.ExecContext(context.Background(), "DROP OWNED BY "+role+"; DROP ROLE "+role)
		require.NoError(t, err)
	})
	u, err := url.Parse(address)
	require.NoError(t, err)
	query := u.Query()
	query.Set("user", role)
	query.Set("password", password)
	u.User, u.RawQuery = url.UserPassword(role, password), query.Encode()
	return u.String()
}

// unowned returns a directory with a blob that does not say whose it is.
func unowned(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "blobs")
	b, err := blob.Open(path)
	require.NoError(t, err)
	_, err = b.Put(t.Context(), []byte("of somebody"))
	require.NoError(t, err)
	return path
}

func TestOneRestoreAtATimeAndWhatAKilledOneLeftIsReplaced(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.run("first")
	to := filepath.Join(t.TempDir(), "backup")
	f.backup(to)
	place := emptyPlace(t)
	source, err := backup.Open(to)
	require.NoError(t, err)
	defer func() { require.NoError(t, source.Close()) }()
	made, err := source.StageFleet(t.Context(), place, nil)
	require.NoError(t, err)
	require.ErrorIs(t, restoreFleet(t, to, place), backup.ErrDatabase)
	require.ErrorContains(t, restoreFleet(t, to, place), "another process restores to it")
	require.NoError(t, made.TakeBlobs(t.Context()))
	// The connection of a killed process ends, and its schema stays.
	_, err = tablesAt(t, place.Store).ExecContext(t.Context(), `SELECT pg_terminate_backend(pid, 10000) FROM pg_locks WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`)
	require.NoError(t, err)
	require.Error(t, made.Close())
	// Nobody else gets what it left.
	err = restoreFleet(t, to, backup.Fleet{Store: emptyPlace(t).Store, Blobs: place.Blobs})
	require.ErrorIs(t, err, backup.ErrPlace)
	require.ErrorContains(t, err, "is of another restore")
	require.NoError(t, restoreFleet(t, to, place), "the blobs that it took are its own")
	require.Equal(t, []string{"first"}, directory{t: t, store: openFleet(t, place).store}.names())
	require.NoFileExists(t, filepath.Join(place.Blobs, "restoring"))
}

// The blobs of one backup are not those of the next one in the same directory.
func TestARestoreOfAnotherBackupDoesNotUseWhatAnInterruptedOneLeft(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.run("first")
	to := filepath.Join(t.TempDir(), "backup")
	f.backup(to)
	place := emptyPlace(t)
	require.ErrorIs(t, stopRestore(t, to, place, "a blob"), errKilled)
	f.backup(to)
	require.ErrorContains(t, restoreFleet(t, to, place), "is of another restore")
	require.NoError(t, os.RemoveAll(place.Blobs))
	require.NoError(t, restoreFleet(t, to, place))
}

// stopRestore ends a restore with errKilled after a stage.
func stopRestore(t testing.TB, from string, to backup.Fleet, stage string) error {
	t.Helper()
	source, err := backup.Open(from)
	require.NoError(t, err)
	defer func() { require.NoError(t, source.Close()) }()
	made, err := backup.StageFleetUntil(source, t.Context(), to, nil, func(reached string) error {
		if reached == stage {
			return errKilled
		}
		return nil
	})
	if err != nil {
		return err
	}
	defer func() { require.NoError(t, made.Close()) }()
	if err := made.TakeBlobs(t.Context()); err != nil {
		return err
	}
	return made.Commit(t.Context())
}

func TestAnInterruptedRestoreOfAFleetBeginsAgain(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.run("first")
	f.run("second")
	to := filepath.Join(t.TempDir(), "backup")
	f.backup(to)
	for _, stage := range []string{"label", "part", "mark", "a table", "a blob", "restored"} {
		place := emptyPlace(t)
		require.ErrorIs(t, stopRestore(t, to, place, stage), errKilled, stage)
		empty, err := store.Open(t.Context(), place.Store, nil)
		require.NoError(t, err)
		require.Error(t, empty.Ready(t.Context()), stage)
		require.NoError(t, empty.Close())
		require.NoError(t, restoreFleet(t, to, place), stage)
		r := openFleet(t, place)
		require.Equal(t, []string{"first", "second"}, directory{t: t, store: r.store}.names(), stage)
		missing, err := backup.Missing(t.Context(), r.store, r.blobs)
		require.NoError(t, err)
		require.Nil(t, missing, stage)
		left, err := filepath.Glob(filepath.Join(place.Blobs, "restoring*"))
		require.NoError(t, err)
		require.Empty(t, left, stage)
	}
}

// Both find the directory empty before one of them has marked it.
func TestOfTwoRestoresToOneDirectoryOneIsRefused(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.run("first")
	to := filepath.Join(t.TempDir(), "backup")
	f.backup(to)
	place := emptyPlace(t)
	slow, err := backup.Open(to)
	require.NoError(t, err)
	defer func() { require.NoError(t, slow.Close()) }()
	_, err = backup.StageFleetUntil(slow, t.Context(), backup.Fleet{Store: emptyPlace(t).Store, Blobs: place.Blobs}, nil, func(stage string) error {
		if stage == "label" {
			require.ErrorIs(t, stopRestore(t, to, place, "mark"), errKilled)
		}
		return nil
	})
	require.ErrorIs(t, err, backup.ErrPlace)
	require.ErrorContains(t, err, "is of another restore")
	require.NoError(t, restoreFleet(t, to, place))
}

func TestADirectoryThatCannotBeMadeIsFoundBeforeTablesAreLoaded(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.run("first")
	to := filepath.Join(t.TempDir(), "backup")
	f.backup(to)
	place := emptyPlace(t)
	link := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink(filepath.Join(t.TempDir(), "absent"), link))
	source, err := backup.Open(to)
	require.NoError(t, err)
	defer func() { require.NoError(t, source.Close()) }()
	place.Blobs = filepath.Join(link, "blobs")
	_, err = backup.StageFleetUntil(source, t.Context(), place, nil, func(stage string) error {
		require.NotEqual(t, "a table", stage)
		return nil
	})
	require.ErrorContains(t, err, "link: file exists")
}

func TestADamagedBackupOfAFleetIsRefused(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	tasks := f.run("first")
	damage := map[string]func(to, in string){
		"runs.copy": func(_, in string) {
			path := filepath.Join(in, "runs.copy")
			data, err := os.ReadFile(path)
			require.NoError(t, err)
			data[len(data)-3] ^= 1
			require.NoError(t, os.WriteFile(path, data, 0o600))
		},
		"versions.copy": func(_, in string) { require.NoError(t, os.Remove(filepath.Join(in, "versions.copy"))) },
		"tables.json": func(_, in string) {
			require.NoError(t, os.WriteFile(filepath.Join(in, "tables.json"), []byte("[]"), 0o600))
		},
		"blob " + tasks: func(to, _ string) {
			hexadecimal := strings.TrimPrefix(tasks, "sha256:")
			require.NoError(t, os.Remove(filepath.Join(to, "blobs", hexadecimal[:2], hexadecimal)))
		},
	}
	for name, change := range damage {
		to := filepath.Join(t.TempDir(), "backup")
		m := f.backup(to).Manifest
		change(to, filepath.Join(to, m.Databases))
		place := emptyPlace(t)
		err := restoreFleet(t, to, place)
		require.ErrorIs(t, err, backup.ErrDamaged, name)
		require.ErrorContains(t, err, name)
		require.NoDirExists(t, place.Blobs)
	}
	to := filepath.Join(t.TempDir(), "backup")
	f.backup(to)
	changeManifest(t, to, func(m *backup.Manifest) { m.Rows++ })
	require.ErrorContains(t, restoreFleet(t, to, emptyPlace(t)), "rows")
}

func changeManifest(t *testing.T, directory string, change func(*backup.Manifest)) {
	t.Helper()
	path := filepath.Join(directory, "manifest.json")
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	var m backup.Manifest
	require.NoError(t, json.Unmarshal(data, &m))
	change(&m)
	data, err = json.Marshal(m)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, data, 0o600))
}

func TestABackupOfAFleetOfAnotherReleaseIsRefused(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.run("first")
	to := filepath.Join(t.TempDir(), "backup")
	f.backup(to)
	place := emptyPlace(t)
	for name, change := range map[string]func(*backup.Manifest){
		"schema 9999":   func(m *backup.Manifest) { m.Schema = 9999 },
		`kind "flock"`:  func(m *backup.Manifest) { m.Kind = "flock" },
		"reads format ": func(m *backup.Manifest) { m.Format = 9 },
	} {
		f.backup(to)
		changeManifest(t, to, change)
		err := restoreFleet(t, to, place)
		require.ErrorIs(t, err, backup.ErrRelease)
		require.ErrorContains(t, err, name)
		require.NoError(t, os.Remove(filepath.Join(to, "manifest.json")))
	}
	// Nor is a store of another release backed up.
	_, err := f.db.ExecContext(t.Context(), "UPDATE goose_db_version SET version_id = 9999 WHERE version_id > 0")
	require.NoError(t, err)
	_, err = backup.WriteFleet(t.Context(), to, f.at, options)
	require.ErrorIs(t, err, store.ErrUnusable)
	require.ErrorContains(t, err, "it has schema 9999, of a newer release")
}
