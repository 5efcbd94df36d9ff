package backup_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver by which tests look at tables
	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/internal/pgtest"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/backup"
	"github.com/fulgurite/fulgurite/store"
	"github.com/fulgurite/fulgurite/store/blob"
	"github.com/fulgurite/fulgurite/store/database"
)

// fleet has the records of a fleet: a store in PostgreSQL and its blobs.
type fleet struct {
	t     testing.TB
	at    backup.Fleet
	store *store.Store
	blobs *blob.Store
	db    *sql.DB
	id    string
}

func openFleet(t testing.TB, at backup.Fleet) fleet {
	t.Helper()
	s, err := store.Open(t.Context(), at.Store, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	b, err := blob.Open(at.Blobs)
	require.NoError(t, err)
	id, err := b.Owner()
	require.NoError(t, err)
	if id == "" {
		id = filepath.Base(filepath.Dir(at.Blobs))
		require.NoError(t, b.Claim(id))
		require.NoError(t, s.SetID(t.Context(), id))
	}
	return fleet{t, at, s, b, tablesAt(t, at.Store), id}
}

func newFleet(t testing.TB) fleet {
	t.Helper()
	return openFleet(t, backup.Fleet{Store: pgtest.URL(t), Blobs: filepath.Join(t.TempDir(), "blobs")})
}

func tablesAt(t testing.TB, address string) *sql.DB {
	t.Helper()
	db, err := sql.Open("pgx", address)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

// emptyPlace returns an empty database and a directory that does not exist.
func emptyPlace(t testing.TB) backup.Fleet {
	t.Helper()
	address := pgtest.URL(t)
	_, err := tablesAt(t, address).ExecContext(t.Context(), "DROP SCHEMA public CASCADE; CREATE SCHEMA public")
	require.NoError(t, err)
	return backup.Fleet{Store: address, Blobs: filepath.Join(t.TempDir(), "restored")}
}

// run adds a run that has one task file.
func (f fleet) run(name string) (tasks string) {
	f.t.Helper()
	return directory{t: f.t, store: f.store, blobs: f.blobs}.run(name)
}

func (f fleet) backup(to string) backup.Report {
	f.t.Helper()
	r, err := backup.WriteFleet(f.t.Context(), to, f.at, options)
	require.NoError(f.t, err)
	return r
}

// restoreFleet restores a backup to a place.
func restoreFleet(t testing.TB, from string, to backup.Fleet) error {
	t.Helper()
	source, err := backup.Open(from)
	if err != nil {
		return err
	}
	defer func() { require.NoError(t, source.Close()) }()
	if err := source.CheckFleetTarget(t.Context(), to); err != nil {
		return err
	}
	if err := source.Check(t.Context(), true); err != nil {
		return err
	}
	made, err := source.StageFleet(t.Context(), to, nil)
	if err != nil {
		return err
	}
	defer func() { require.NoError(t, made.Close()) }()
	if err := made.TakeBlobs(t.Context()); err != nil {
		return err
	}
	return made.Commit(t.Context())
}

// restored restores a backup to an empty place and opens it.
func restored(t testing.TB, from string) fleet {
	t.Helper()
	to := emptyPlace(t)
	require.NoError(t, restoreFleet(t, from, to))
	return openFleet(t, to)
}

// contents returns a text with all rows of each table that is found first by an address.
func contents(t testing.TB, address string) map[string]string {
	t.Helper()
	db := tablesAt(t, address)
	names := strings.Fields(scalar[string](t, db, `SELECT string_agg(tablename, ' ') FROM pg_tables WHERE schemaname = current_schema()`))
	require.Greater(t, len(names), 30)
	out := map[string]string{}
	for _, name := range names {
		if name != "goose_db_version" { // it has times
			out[name] = scalar[string](t, db, `SELECT COALESCE(string_agg(r::text, E'\n' ORDER BY r::text), '') FROM `+name+` r`)
		}
	}
	return out
}

func scalar[T any](t testing.TB, db *sql.DB, query string) (v T) {
	t.Helper()
	require.NoError(t, db.QueryRowContext(t.Context(), query).Scan(&v))
	return v
}

// fill adds two rows with unusual values to each table but those that the store has to be able
// to read for a backup.
func (f fleet) fill() {
	f.t.Helper()
	rows, err := f.db.QueryContext(f.t.Context(), `SELECT table_name, string_agg(column_name, ', ' ORDER BY ordinal_position),
string_agg(CASE data_type WHEN 'text' THEN 'E''ä\t\\N "\n\\\\. '' || i' WHEN 'bigint' THEN '9223372036854775805 + i' WHEN 'integer' THEN '2147483645 + i'
WHEN 'bytea' THEN '''\x00ff0a5c0d''::bytea' WHEN 'double precision' THEN CASE is_nullable WHEN 'YES' THEN 'NULL' ELSE '(ARRAY[''NaN'', 0.1 + 0.2, -5e-324])[i]' END END, ', ' ORDER BY ordinal_position)
FROM information_schema.columns WHERE table_schema = 'public' AND table_name NOT IN ('goose_db_version', 'identity', 'runs') GROUP BY table_name`)
	require.NoError(f.t, err)
	var statements []string
	for rows.Next() {
		var table, columns, values string
		require.NoError(f.t, rows.Scan(&table, &columns, &values))
		statements = append(statements, fmt.Sprintf(`INSERT INTO %s (%s) SELECT %s FROM generate_series(1, 2) i`, table, columns, values))
	}
	require.NoError(f.t, errors.Join(rows.Err(), rows.Close()))
	require.Greater(f.t, len(statements), 30)
	for _, one := range statements {
		_, err := f.db.ExecContext(f.t.Context(), one)
		require.NoError(f.t, err, one)
	}
}

func TestAFleetComesBackAsItWas(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	tasks := f.run("first")
	f.fill()
	was := contents(t, f.at.Store)
	for table, rows := range was {
		require.NotEmpty(t, rows, table)
	}
	to := filepath.Join(t.TempDir(), "backup")
	m := f.backup(to).Manifest
	require.Equal(t, backup.KindFleet, m.Kind)
	require.Equal(t, []backup.Run{{Name: "first", Status: record.Running}}, m.Runs)
	require.Equal(t, len(was), m.Tables)
	require.EqualValues(t, 2*len(was)-2, m.Rows, "one each of the store's id and the run")
	f.run("later")

	source, err := backup.Open(to)
	require.NoError(t, err)
	defer func() { require.NoError(t, source.Close()) }()
	place := emptyPlace(t)
	made, err := source.StageFleet(t.Context(), place, nil)
	require.NoError(t, err)
	require.Empty(t, cmp.Diff(was, contents(t, made.Store)))
	require.NoError(t, made.TakeBlobs(t.Context()))
	empty, err := store.Open(t.Context(), place.Store, nil)
	require.NoError(t, err)
	require.Error(t, empty.Ready(t.Context()), "nobody finds it before it has its place")
	require.NoError(t, empty.Close())
	require.NoError(t, made.Commit(t.Context()))
	require.NoError(t, made.Close())

	r := openFleet(t, place)
	is := contents(t, place.Store)
	for _, changed := range []string{"identity", "leases"} {
		delete(was, changed)
		delete(is, changed)
	}
	require.Empty(t, cmp.Diff(was, is))
	id, err := r.store.ID(t.Context())
	require.NoError(t, err)
	require.Equal(t, f.id, id)
	text, err := r.blobs.Get(t.Context(), tasks)
	require.NoError(t, err)
	require.Equal(t, "the tasks of first", string(text))
	// It is one like others: with all indexes, and another migration finds nothing to do.
	require.Equal(t, scalar[string](t, f.db, indexes), scalar[string](t, r.db, indexes))
	require.NoError(t, r.store.Migrate(t.Context()))
	r.run("later")
	require.Zero(t, scalar[int](t, r.db, `SELECT COUNT(*) FROM pg_namespace WHERE nspname LIKE 'fulgurite%'`))
}

const indexes = `SELECT string_agg(indexdef, E'\n' ORDER BY indexdef) FROM pg_indexes WHERE schemaname = 'public'`

func TestARestoredStoreHasNoLeasesAndWaitsToBeMended(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	held, err := f.store.AcquireLease(t.Context(), record.Lease{Role: record.Gateway, Name: "g", URL: "http://g"}, time.Hour, true)
	require.NoError(t, err)
	to := filepath.Join(t.TempDir(), "backup")
	f.backup(to)
	r := restored(t, to)
	leases, err := r.store.Leases(t.Context(), record.Gateway)
	require.NoError(t, err)
	require.Empty(t, leases)
	next, err := r.store.AcquireLease(t.Context(), record.Lease{Role: record.Gateway, Name: "h", URL: "http://h"}, time.Hour, true)
	require.NoError(t, err)
	require.Greater(t, next.Epoch, held.Epoch)

	mended := func(s *store.Store) bool {
		t.Helper()
		ok, err := s.Mended(t.Context())
		require.NoError(t, err)
		return ok
	}
	require.True(t, mended(f.store))
	require.False(t, mended(r.store))
	require.NoError(t, r.store.SetMended(t.Context()))
	require.True(t, mended(r.store))
	require.NoError(t, f.store.SetMark(t.Context(), 7))
	require.NoError(t, f.store.SetMended(t.Context()))
	mark, err := f.store.Mark(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 7, mark)
}

// A transaction that adds rows to the first and to the last table commits while the tables are
// copied, after each of them.
func TestABackupOfAFleetIsOfOneMomentAndLetsNobodyWait(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.run("first")
	write := func(n int) {
		t.Helper()
		ctx, stop := context.WithTimeout(t.Context(), 10*time.Second)
		defer stop()
		_, err := f.db.ExecContext(ctx, fmt.Sprintf(`SET lock_timeout = '1s'; BEGIN; LOCK TABLE versions, progress IN SHARE ROW EXCLUSIVE MODE;
INSERT INTO actions VALUES ('%[1]d', 'first', '', '', '', '', 0, '', ''); UPDATE runs SET result = '%[1]d';
INSERT INTO versions (run, policy, number, parent, manifest, weights, batch, fingerprint, metrics, created, collected, scores) VALUES ('x', 'p', %[1]d, 0, '', '', '', '', '{}', 0, 1, ''); COMMIT`, n))
		require.NoError(t, err)
	}
	const before = 5
	for n := range before {
		write(n)
	}
	n := before
	to := filepath.Join(t.TempDir(), "backup")
	report, err := backup.WriteFleet(t.Context(), to, f.at, options.Until(func(stage string) error {
		if stage == "a table" {
			write(n)
			n++
		}
		return nil
	}))
	require.NoError(t, err)
	require.Equal(t, before+report.Manifest.Tables, n)
	r := restored(t, to)
	require.Equal(t, before, scalar[int](t, r.db, `SELECT COUNT(*) FROM actions`))
	require.Equal(t, before, scalar[int](t, r.db, `SELECT COUNT(*) FROM versions`))
	require.Equal(t, fmt.Sprint(before-1), scalar[string](t, r.db, `SELECT result FROM runs`))
}

func TestTheNextBackupOfAFleetCopiesOnlyNewBlobs(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.run("first")
	to := filepath.Join(t.TempDir(), "backup")
	f.backup(to)
	was := files(t, to)
	f.run("second")
	report := f.backup(to)
	require.Equal(t, 1, report.NewFiles)
	require.Len(t, files(t, to), len(was)+1, "the tables of the backup before are gone")
	r := restored(t, to)
	require.Equal(t, []string{"first", "second"}, directory{t: t, store: r.store}.names())
}

func TestAKilledBackupOfAFleetLeavesTheOneBeforeIt(t *testing.T) {
	t.Parallel()
	for _, stage := range []string{"a blob", "first blobs", "moment", "blobs", "a table", "description", "manifest"} {
		t.Run(stage, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			f.run("first")
			to := filepath.Join(t.TempDir(), "backup")
			kill := func(reached string) error {
				if reached == stage {
					return errKilled
				}
				return nil
			}
			_, err := backup.WriteFleet(t.Context(), to, f.at, options.Until(kill))
			require.ErrorIs(t, err, errKilled)
			if stage != "manifest" {
				require.ErrorIs(t, restoreFleet(t, to, emptyPlace(t)), backup.ErrNone)
			}
			f.backup(to)
			f.run("second")
			_, err = backup.WriteFleet(t.Context(), to, f.at, options.Until(kill))
			require.ErrorIs(t, err, errKilled)
			want := []string{"first"}
			if stage == "manifest" {
				want = append(want, "second")
			}
			r := restored(t, to)
			require.Equal(t, want, directory{t: t, store: r.store}.names())
			f.backup(to)
			left, err := filepath.Glob(filepath.Join(to, "databases-*"))
			require.NoError(t, err)
			require.Len(t, left, 1)
		})
	}
}

func TestABackupOfAFleetBeginsAgainIfBlobsThatItNeedsWereRemoved(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	to := filepath.Join(t.TempDir(), "backup")
	n := 0
	var brief string
	report, err := backup.WriteFleet(t.Context(), to, f.at, options.Until(func(stage string) error {
		switch {
		case stage == "first blobs" && n == 0:
			n++
			brief = f.run("brief")
		case stage == "moment" && n == 1:
			n++
			require.NoError(t, f.store.SetSplits(t.Context(), "brief", nil))
			require.NoError(t, f.blobs.Remove(t.Context(), brief))
		}
		return nil
	}))
	require.NoError(t, err)
	require.Equal(t, 2, report.Tries)
	r := restored(t, to)
	run, err := r.store.Run(t.Context(), "brief")
	require.NoError(t, err)
	require.Empty(t, run.Splits)
	// The blob of a run that is still there was lost.
	require.NoError(t, f.blobs.Remove(t.Context(), f.run("second")))
	_, err = backup.WriteFleet(t.Context(), to, f.at, options)
	require.ErrorIs(t, err, backup.ErrDamaged)
	require.ErrorContains(t, err, "the tasks of run second")
}

// What is forgotten later must not be in a backup whose store does not know it.
func TestABackupOfAFleetHasTheBlobsOfItsMomentAndNoOthers(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.run("first")
	before, collected := f.run("before"), f.run("collected")
	to := filepath.Join(t.TempDir(), "backup")
	forget := func(run, tasks string) {
		t.Helper()
		require.NoError(t, f.store.SetSplits(t.Context(), run, nil))
		require.NoError(t, f.blobs.Remove(t.Context(), tasks))
	}
	var later []string
	report, err := backup.WriteFleet(t.Context(), to, f.at, options.Until(func(stage string) error {
		switch stage {
		case "first blobs":
			forget("before", before)
		case "moment":
			forget("collected", collected)
		case "blobs":
			later = append(later, f.run("later"))
		case "a table":
			later = append(later, f.run(fmt.Sprint("later", len(later))))
		}
		return nil
	}))
	require.NoError(t, err)
	require.Equal(t, 1, report.Tries, "the blob was taken before it was removed")
	require.Greater(t, len(later), 30)
	r := restored(t, to)
	require.Equal(t, []string{"first", "before", "collected"}, directory{t: t, store: r.store}.names())
	has := func(digest string) bool {
		t.Helper()
		ok, err := r.blobs.Has(t.Context(), digest)
		require.NoError(t, err)
		return ok
	}
	require.True(t, has(collected))
	require.False(t, has(before))
	for _, digest := range later {
		require.False(t, has(digest))
	}
}

func TestOnlyTheOwnerReadsTheTablesOfABackup(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	to := filepath.Join(t.TempDir(), "backup")
	in := filepath.Join(to, f.backup(to).Manifest.Databases)
	stat, err := os.Stat(in)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o700), stat.Mode().Perm())
	stat, err = os.Stat(filepath.Join(in, "runs.copy"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), stat.Mode().Perm())
}

// Otherwise a rewrite would wait for the backup, and everybody who writes for the rewrite.
func TestTablesAreNotRewrittenWhileABackupIsMade(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.run("first")
	to := filepath.Join(t.TempDir(), "backup")
	refused := 0
	_, err := backup.WriteFleet(t.Context(), to, f.at, options.Until(func(stage string) error {
		if stage == "moment" {
			require.ErrorContains(t, f.store.Scrub(t.Context(), true), "a backup runs")
			require.NoError(t, f.store.Scrub(t.Context(), false))
			refused++
		}
		return nil
	}))
	require.NoError(t, err)
	require.Equal(t, 1, refused)
	require.NoError(t, f.store.Scrub(t.Context(), true))

	held := tablesAt(t, f.at.Store)
	held.SetMaxOpenConns(1)
	_, err = held.ExecContext(t.Context(), `SELECT pg_advisory_lock($1)`, int64(database.RewriteLock))
	require.NoError(t, err)
	_, err = backup.WriteFleet(t.Context(), to, f.at, options)
	require.ErrorIs(t, err, backup.ErrBusy)
	require.ErrorContains(t, err, "are being rewritten")
}

func TestARestoredFleetKnowsWhatWasForgottenSince(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.run("first")
	to := filepath.Join(t.TempDir(), "backup")
	f.backup(to)
	stone := record.Forgotten{Run: "first", What: record.ForgottenUser, Task: "ab12/1", By: "ann", Begun: time.Now().Add(time.Minute).UTC()}
	run, err := f.store.Run(t.Context(), "first")
	require.NoError(t, err)
	_, _, err = f.store.BeginForgetting(t.Context(), run, stone)
	require.NoError(t, err)
	id, stones, err := backup.Tombstones(t.Context(), f.at.Store)
	require.NoError(t, err)
	require.Equal(t, f.id, id)
	require.NoError(t, backup.Note(to, backup.Forgotten{Store: id, Forgotten: stones}))

	source, err := backup.Open(to)
	require.NoError(t, err)
	defer func() { require.NoError(t, source.Close()) }()
	r := restored(t, to)
	again, err := backup.ToRepeat(t.Context(), r.store, append(source.Forgotten, stones...))
	require.NoError(t, err)
	require.Len(t, again, 1)
	require.Equal(t, "ab12/1", again[0].Task)
}

// A backup hears of what is forgotten from the moment on at which its directory is known, and a
// restore until its end.
func TestWhatIsForgottenMeanwhileIsNotedByABackupAndByARestore(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.run("first")
	to := filepath.Join(t.TempDir(), "backup")
	note := func(user string) {
		t.Helper()
		require.NoError(t, backup.Note(to, backup.Forgotten{Store: f.id, Forgotten: []record.Forgotten{{Run: "first", What: record.ForgottenUser, Task: user, By: "ann", Begun: time.Now().Add(time.Minute).UTC()}}}))
	}
	with := options
	with.Begun = func(directory string) ([]string, error) {
		require.Equal(t, to, directory)
		note("ab12/1")
		return nil, nil
	}
	_, err := backup.WriteFleet(t.Context(), to, f.at, with)
	require.NoError(t, err)
	source, err := backup.Open(to)
	require.NoError(t, err)
	defer func() { require.NoError(t, source.Close()) }()
	require.Len(t, source.Forgotten, 1)
	note("ab12/2")
	require.NoError(t, source.ReadForgotten())
	require.Len(t, source.Forgotten, 2)
	with.Begun = func(string) ([]string, error) { return nil, errKilled }
	_, err = backup.WriteFleet(t.Context(), filepath.Join(t.TempDir(), "other"), f.at, with)
	require.ErrorIs(t, err, errKilled)
}

// A restored store has to tell all backups what is forgotten of it.
func TestEachBackupKnowsTheOthers(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.run("first")
	in := t.TempDir()
	file := filepath.Join(in, "backups.json")
	with := options
	with.Begun = func(directory string) ([]string, error) {
		if err := backup.AddDirectories(file, directory); err != nil {
			return nil, err
		}
		return backup.Directories(file)
	}
	gone := filepath.Join(in, "gone")
	require.NoError(t, backup.AddDirectories(file, gone))
	all := []string{gone, filepath.Join(in, "a"), filepath.Join(in, "b")}
	for _, to := range all[1:] {
		_, err := backup.WriteFleet(t.Context(), to, f.at, with)
		require.NoError(t, err)
	}
	for _, to := range all[1:] {
		source, err := backup.Open(to)
		require.NoError(t, err)
		require.Equal(t, all, source.Backups, to)
		require.NoError(t, source.Close())
	}
	require.NoDirExists(t, gone)
}

// Who forgets may not know the directory of a backup that is being made.
func TestABackupKnowsWhatWasForgottenWhileItWasMade(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.run("first")
	to := filepath.Join(t.TempDir(), "backup")
	_, err := backup.WriteFleet(t.Context(), to, f.at, options.Until(func(stage string) error {
		if stage != "moment" {
			return nil
		}
		run, err := f.store.Run(t.Context(), "first")
		require.NoError(t, err)
		_, _, err = f.store.BeginForgetting(t.Context(), run, record.Forgotten{Run: "first", What: record.ForgottenUser, Task: "ab12/1", By: "ann"})
		return err
	}))
	require.NoError(t, err)
	source, err := backup.Open(to)
	require.NoError(t, err)
	defer func() { require.NoError(t, source.Close()) }()
	require.Len(t, source.Forgotten, 1)
	r := restored(t, to)
	again, err := backup.ToRepeat(t.Context(), r.store, source.Forgotten)
	require.NoError(t, err)
	require.Len(t, again, 1)
}
