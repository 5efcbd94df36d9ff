package backup_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite" // the driver of the file that stands for Temporal's

	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/backup"
	"github.com/fulgurite/fulgurite/store"
	"github.com/fulgurite/fulgurite/store/blob"
)

var options = backup.Options{Release: "test"}

// directory is one as a stack has it, but that an SQLite file with a counter stands for
// Temporal's database.
type directory struct {
	t        testing.TB
	path     string
	store    *store.Store
	blobs    *blob.Store
	temporal *sql.DB
	id       string
}

func places(path string) backup.Places {
	return backup.Places{Store: filepath.Join(path, "fulgurite.db"), Temporal: filepath.Join(path, "temporal", "temporal.db"), Blobs: filepath.Join(path, "blobs")}
}

func open(t testing.TB, path string) directory {
	t.Helper()
	ctx := t.Context()
	p := places(path)
	require.NoError(t, os.MkdirAll(filepath.Dir(p.Temporal), 0o755))
	s, err := store.Open(ctx, p.Store, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	require.NoError(t, s.Migrate(ctx))
	b, err := blob.Open(p.Blobs)
	require.NoError(t, err)
	id, err := b.Owner()
	require.NoError(t, err)
	if id == "" {
		id = filepath.Base(filepath.Dir(path))
		require.NoError(t, b.Claim(id))
		require.NoError(t, s.SetID(ctx, id))
	}
	db, err := sql.Open("sqlite", "file:"+p.Temporal+"?_pragma=journal_mode(wal)&_pragma=busy_timeout(10000)")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	_, err = db.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS marks (mark INTEGER)")
	require.NoError(t, err)
	return directory{t, path, s, b, db, id}
}

// run adds a run that has one task file.
func (d directory) run(name string) (tasks string) {
	d.t.Helper()
	tasks, err := d.blobs.Put(d.t.Context(), []byte("the tasks of "+name))
	require.NoError(d.t, err)
	_, _, err = d.store.CreateRun(d.t.Context(), record.Run{
		Name: name, WorkflowID: name, ExecutionID: "x", Spec: json.RawMessage("{}"), Splits: map[record.Kind]record.Split{record.Train: {Digest: tasks, Count: 1}},
	})
	require.NoError(d.t, err)
	return tasks
}

func (d directory) remove(digest string) {
	d.t.Helper()
	require.NoError(d.t, d.blobs.Remove(d.t.Context(), digest))
}

func (d directory) backup(to string) backup.Report {
	d.t.Helper()
	r, err := backup.Write(d.t.Context(), to, places(d.path), options)
	require.NoError(d.t, err)
	return r
}

// restore makes a directory of a backup and opens it.
func restore(t *testing.T, from string) (directory, error) {
	t.Helper()
	source, err := backup.Open(from)
	if err != nil {
		return directory{}, err
	}
	defer func() { require.NoError(t, source.Close()) }()
	if err := source.Check(t.Context(), true); err != nil {
		return directory{}, err
	}
	to := filepath.Join(t.TempDir(), "restored")
	made, err := source.Stage(t.Context(), to, places)
	if err != nil {
		return directory{}, err
	}
	require.NoError(t, made.Commit())
	return open(t, to), nil
}

// names returns the names of the runs, the oldest first.
func (d directory) names() (out []string) {
	d.t.Helper()
	runs, err := d.store.Runs(d.t.Context())
	require.NoError(d.t, err)
	for _, r := range slices.Backward(runs) {
		out = append(out, r.Name)
	}
	return out
}

// files returns the paths of all files below a directory.
func files(t *testing.T, path string) (out []string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(path, func(file string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			file, err = filepath.Rel(path, file)
			out = append(out, file)
		}
		return err
	}))
	return out
}

func TestADirectoryComesBackAsItWas(t *testing.T) {
	t.Parallel()
	d := open(t, filepath.Join(t.TempDir(), "state"))
	tasks := d.run("first")
	require.NoError(t, d.store.SetMark(t.Context(), 7))
	to := filepath.Join(t.TempDir(), "backup")
	report := d.backup(to)
	require.Equal(t, []backup.Run{{Name: "first", Status: record.Running}}, report.Manifest.Runs)
	require.Equal(t, int64(7), report.Manifest.Mark)
	require.Equal(t, "test", report.Manifest.Release)
	d.run("later")

	r, err := restore(t, to)
	require.NoError(t, err)
	require.Equal(t, []string{"first"}, r.names())
	text, err := r.blobs.Get(t.Context(), tasks)
	require.NoError(t, err)
	require.Equal(t, "the tasks of first", string(text))
	id, err := r.store.ID(t.Context())
	require.NoError(t, err)
	require.Equal(t, d.id, id)
	mark, err := r.store.Mark(t.Context())
	require.NoError(t, err)
	require.Equal(t, int64(7), mark)
}

// Both databases are of one moment: what is written to one and then to the other is never
// only in the second.
func TestBothDatabasesAreOfOneMoment(t *testing.T) {
	t.Parallel()
	d := open(t, filepath.Join(t.TempDir(), "state"))
	ctx, stop := context.WithCancel(t.Context())
	var writer sync.WaitGroup
	writer.Go(func() {
		for mark := int64(1); ctx.Err() == nil; mark++ {
			if d.store.SetMark(ctx, mark) == nil {
				_, _ = d.temporal.ExecContext(ctx, "INSERT INTO marks VALUES (?)", mark) // ctx may have ended
			}
		}
	})
	to := filepath.Join(t.TempDir(), "backup")
	for range 10 {
		m := d.backup(to).Manifest
		db, err := sql.Open("sqlite", filepath.Join(to, m.Databases, "temporal.db"))
		require.NoError(t, err)
		var mark int64
		require.NoError(t, db.QueryRowContext(t.Context(), "SELECT COALESCE(MAX(mark), 0) FROM marks").Scan(&mark))
		require.NoError(t, db.Close())
		require.LessOrEqual(t, mark, m.Mark)
		require.GreaterOrEqual(t, mark, m.Mark-1)
	}
	stop()
	writer.Wait()
}

func TestTheNextBackupCopiesOnlyWhatIsNewAndRemovesWhatIsGone(t *testing.T) {
	t.Parallel()
	d := open(t, filepath.Join(t.TempDir(), "state"))
	first := d.run("first")
	old, err := d.blobs.Put(t.Context(), []byte("not needed"))
	require.NoError(t, err)
	to := filepath.Join(t.TempDir(), "backup")
	report := d.backup(to)
	require.Equal(t, 2, report.NewFiles)
	was := files(t, to)

	d.remove(old)
	d.run("second")
	report = d.backup(to)
	require.Equal(t, 1, report.NewFiles)
	require.Equal(t, int64(len("the tasks of second")), report.NewBytes)
	require.Equal(t, 1, report.RemovedFiles)
	require.Len(t, files(t, to), len(was), "the databases of the backup before are gone")
	kept, err := blob.Open(filepath.Join(to, "blobs"))
	require.NoError(t, err)
	has, err := kept.Has(t.Context(), old)
	require.NoError(t, err)
	require.False(t, has)
	has, err = kept.Has(t.Context(), first)
	require.NoError(t, err)
	require.True(t, has)
	r, err := restore(t, to)
	require.NoError(t, err)
	require.Equal(t, []string{"first", "second"}, r.names())
}

var errKilled = errors.New("killed")

func TestAKilledBackupLeavesTheOneBeforeIt(t *testing.T) {
	t.Parallel()
	for _, stage := range []string{"a blob", "first blobs", "moment", "blobs", "description", "manifest"} {
		t.Run(stage, func(t *testing.T) {
			t.Parallel()
			d := open(t, filepath.Join(t.TempDir(), "state"))
			d.run("first")
			gone, err := d.blobs.Put(t.Context(), []byte("soon not needed"))
			require.NoError(t, err)
			to := filepath.Join(t.TempDir(), "backup")
			kill := func(reached string) error {
				if reached == stage {
					return errKilled
				}
				return nil
			}
			for range 3 {
				_, err = backup.Write(t.Context(), to, places(d.path), options.Until(kill))
				if !errors.Is(err, errKilled) {
					require.Equal(t, "a blob", stage, "each blob is taken once")
				}
			}
			left, err := filepath.Glob(filepath.Join(to, "databases-*"))
			require.NoError(t, err)
			require.LessOrEqual(t, len(left), 2, "kills leave no more than one kill does")
			if stage != "manifest" && stage != "a blob" {
				_, err = restore(t, to)
				require.ErrorIs(t, err, backup.ErrNone)
			}

			d.backup(to)
			whole := len(files(t, to))
			d.remove(gone)
			d.run("second")
			_, err = backup.Write(t.Context(), to, places(d.path), options.Until(kill))
			require.ErrorIs(t, err, errKilled)
			r, err := restore(t, to)
			require.NoError(t, err)
			want := []string{"first"}
			if stage == "manifest" {
				want = append(want, "second")
			}
			require.Equal(t, want, r.names())

			d.backup(to)
			require.Len(t, files(t, to), whole, "one blob came and one went, and nothing else is left")
			r, err = restore(t, to)
			require.NoError(t, err)
			require.Equal(t, []string{"first", "second"}, r.names())
		})
	}
}

// A blob may be made, put on record and removed with its row between two steps of a backup.
func TestABackupBeginsAgainIfBlobsThatItNeedsWereRemoved(t *testing.T) {
	t.Parallel()
	d := open(t, filepath.Join(t.TempDir(), "state"))
	to := filepath.Join(t.TempDir(), "backup")
	n := 0
	var brief string
	report, err := backup.Write(t.Context(), to, places(d.path), options.Until(func(stage string) error {
		switch {
		case stage == "first blobs" && n == 0:
			n++
			brief = d.run("brief")
		case stage == "moment" && n == 1:
			n++
			require.NoError(t, d.store.SetSplits(t.Context(), "brief", nil))
			d.remove(brief)
		}
		return nil
	}))
	require.NoError(t, err)
	require.Equal(t, 2, report.Tries)
	r, err := restore(t, to)
	require.NoError(t, err)
	run, err := r.store.Run(t.Context(), "brief")
	require.NoError(t, err)
	require.Empty(t, run.Splits)
}

func TestABackupOfADirectoryThatLacksBlobsIsRefused(t *testing.T) {
	t.Parallel()
	d := open(t, filepath.Join(t.TempDir(), "state"))
	d.run("first")
	to := filepath.Join(t.TempDir(), "backup")
	d.backup(to)
	lost := d.run("second")
	d.remove(lost)
	_, err := backup.Write(t.Context(), to, places(d.path), options)
	require.ErrorIs(t, err, backup.ErrDamaged)
	require.ErrorContains(t, err, lost)
	require.ErrorContains(t, err, "the tasks of run second")
	r, err := restore(t, to)
	require.NoError(t, err)
	require.Equal(t, []string{"first"}, r.names(), "the backup before it stays")
}

func TestADamagedBackupIsRefused(t *testing.T) {
	t.Parallel()
	d := open(t, filepath.Join(t.TempDir(), "state"))
	tasks := d.run("first")
	other, err := d.blobs.Put(t.Context(), []byte("another blob"))
	require.NoError(t, err)
	blobFile := func(digest string) string {
		hexadecimal := strings.TrimPrefix(digest, "sha256:")
		return filepath.Join("blobs", hexadecimal[:2], hexadecimal)
	}
	for name, one := range map[string]struct {
		damage func(t *testing.T, dir string, m backup.Manifest)
		want   string
		is     error
	}{
		"no manifest": {func(t *testing.T, dir string, _ backup.Manifest) {
			t.Helper()
			require.NoError(t, os.Remove(filepath.Join(dir, "manifest.json")))
		}, "no complete backup", backup.ErrNone},
		"half a manifest": {func(t *testing.T, dir string, _ backup.Manifest) {
			t.Helper()
			require.NoError(t, os.WriteFile(filepath.Join(dir, "manifest.json"), []byte(`{"format": 1,`), 0o644))
		}, "manifest.json can't be read", backup.ErrDamaged},
		"a manifest that leads elsewhere": {func(t *testing.T, dir string, m backup.Manifest) {
			t.Helper()
			m.Databases = "databases-/../.."
			writeManifest(t, dir, m)
		}, "does not name the databases", backup.ErrDamaged},
		"another format": {func(t *testing.T, dir string, m backup.Manifest) {
			t.Helper()
			m.Format = 2
			writeManifest(t, dir, m)
		}, "has format 2, and this program reads format 1", backup.ErrRelease},
		"another schema": {func(t *testing.T, dir string, m backup.Manifest) {
			t.Helper()
			m.Schema++
			writeManifest(t, dir, m)
		}, fmt.Sprintf("has schema %d (release test), and this program needs schema %d", schema(t)+1, schema(t)), backup.ErrRelease},
		"another store": {func(t *testing.T, dir string, m backup.Manifest) {
			t.Helper()
			m.Store = "another"
			writeManifest(t, dir, m)
		}, "is of another store", backup.ErrDamaged},
		"a byte of the store": {func(t *testing.T, dir string, m backup.Manifest) {
			t.Helper()
			flip(t, filepath.Join(dir, m.Databases, "fulgurite.db"))
		}, "fulgurite.db has", backup.ErrDamaged},
		"a byte of Temporal's database": {func(t *testing.T, dir string, m backup.Manifest) {
			t.Helper()
			flip(t, filepath.Join(dir, m.Databases, "temporal.db"))
		}, "temporal.db has", backup.ErrDamaged},
		"no database of Temporal": {func(t *testing.T, dir string, m backup.Manifest) {
			t.Helper()
			require.NoError(t, os.Remove(filepath.Join(dir, m.Databases, "temporal.db")))
		}, "temporal.db", backup.ErrDamaged},
		"a line of the list": {func(t *testing.T, dir string, m backup.Manifest) {
			t.Helper()
			flip(t, filepath.Join(dir, m.Databases, "blobs.txt"))
		}, "blobs.txt has", backup.ErrDamaged},
		"no blob": {func(t *testing.T, dir string, _ backup.Manifest) {
			t.Helper()
			require.NoError(t, os.Remove(filepath.Join(dir, blobFile(tasks))))
		}, "blob " + tasks + " is missing", backup.ErrDamaged},
		"a blob that is cut": {func(t *testing.T, dir string, _ backup.Manifest) {
			t.Helper()
			replace(t, filepath.Join(dir, blobFile(tasks)), "the")
		}, "has 3 bytes, and the manifest says 18", backup.ErrDamaged},
		"a blob with another content": {func(t *testing.T, dir string, _ backup.Manifest) {
			t.Helper()
			replace(t, filepath.Join(dir, blobFile(other)), "ANOTHER BLOB")
		}, "has other content", backup.ErrDamaged},
		"no blobs": {func(t *testing.T, dir string, _ backup.Manifest) {
			t.Helper()
			require.NoError(t, os.RemoveAll(filepath.Join(dir, "blobs")))
		}, "blobs", backup.ErrDamaged},
		"no list of what was forgotten": {func(t *testing.T, dir string, _ backup.Manifest) {
			t.Helper()
			require.NoError(t, os.Remove(filepath.Join(dir, "forgotten.json")))
		}, "forgotten.json", backup.ErrDamaged},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			to := filepath.Join(t.TempDir(), "backup")
			report, err := backup.Write(t.Context(), to, places(d.path), options)
			require.NoError(t, err)
			one.damage(t, to, report.Manifest)
			_, err = restore(t, to)
			require.ErrorIs(t, err, one.is)
			require.ErrorContains(t, err, one.want)
		})
	}
}

func schema(t *testing.T) int {
	t.Helper()
	n, err := store.SchemaNumber()
	require.NoError(t, err)
	return n
}

func writeManifest(t *testing.T, dir string, m backup.Manifest) {
	t.Helper()
	text, err := json.Marshal(m)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "manifest.json"), text, 0o644))
}

// flip changes the last byte of a file.
func flip(t *testing.T, path string) {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	data[len(data)-1] ^= 1
	require.NoError(t, os.WriteFile(path, data, 0o644))
}

// replace gives a file another content, and leaves its other names alone.
func replace(t *testing.T, path, text string) {
	t.Helper()
	require.NoError(t, os.Remove(path))
	require.NoError(t, os.WriteFile(path, []byte(text), 0o444))
}

func TestOnlyDirectoriesWithNothingElseAreUsed(t *testing.T) {
	t.Parallel()
	d := open(t, filepath.Join(t.TempDir(), "state"))
	d.run("first")
	other := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(other, "thesis.tex"), nil, 0o644))
	_, err := backup.Write(t.Context(), other, places(d.path), options)
	require.ErrorIs(t, err, backup.ErrPlace)
	require.ErrorContains(t, err, "thesis.tex")
	_, err = backup.Write(t.Context(), d.path, places(d.path), options)
	require.ErrorIs(t, err, backup.ErrPlace)

	to := filepath.Join(t.TempDir(), "backup")
	d.backup(to)
	stranger := open(t, filepath.Join(t.TempDir(), "state"))
	stranger.run("another")
	_, err = backup.Write(t.Context(), to, places(stranger.path), options)
	require.ErrorIs(t, err, backup.ErrPlace)
	require.ErrorContains(t, err, d.id)
	require.ErrorContains(t, err, stranger.id)

	source, err := backup.Open(to)
	require.NoError(t, err)
	_, err = source.Stage(t.Context(), other, places)
	require.ErrorIs(t, err, backup.ErrPlace)
	require.ErrorContains(t, err, "thesis.tex")
	_, err = backup.Write(t.Context(), to, places(d.path), options)
	require.ErrorIs(t, err, backup.ErrBusy, "while it is read")

	empty := t.TempDir()
	require.NoError(t, os.MkdirAll(empty+".restoring/remains", 0o755), "of an interrupted restore")
	made, err := source.Stage(t.Context(), empty, places)
	require.NoError(t, err)
	require.NoError(t, made.Commit())
	require.NoError(t, source.Close())
	require.Equal(t, []string{"first"}, open(t, empty).names())
	require.NoDirExists(t, filepath.Join(empty, "remains"))
}

func TestWhatWasForgottenAfterABackupIsFoundByAnyRestore(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	d := open(t, filepath.Join(t.TempDir(), "state"))
	d.run("first")
	d.run("second")
	to := filepath.Join(t.TempDir(), "backup")
	d.backup(to)
	later := time.Now().Add(time.Second)
	stones := []record.Forgotten{
		{Run: "first", What: record.ForgottenRun, By: "ann", Begun: later, Ended: later, Report: json.RawMessage(`{"run": "first"}`)},
		{Run: "second", What: record.ForgottenTask, Task: "mine", By: "ann", Begun: later, Ended: later},
		{Run: "unknown", What: record.ForgottenRun, By: "ann", Begun: later, Ended: later},
	}
	require.NoError(t, backup.Note(to, backup.Forgotten{Store: d.id, Forgotten: stones[:1]}))
	require.NoError(t, backup.Note(to, backup.Forgotten{Store: d.id, Forgotten: stones}))
	require.ErrorIs(t, backup.Note(to, backup.Forgotten{Store: "another", Forgotten: stones}), backup.ErrPlace)
	require.ErrorIs(t, backup.Note(t.TempDir(), backup.Forgotten{Store: d.id, Forgotten: stones}), backup.ErrNone)

	source, err := backup.Open(to)
	require.NoError(t, err)
	require.NoError(t, source.Close())
	want := slices.Clone(stones)
	want[0].Report = nil
	require.Empty(t, cmp.Diff(want, source.Forgotten))
	todo, err := backup.ToRepeat(ctx, d.store, append(source.Forgotten, source.Forgotten...))
	require.NoError(t, err)
	require.Empty(t, cmp.Diff(want[:2], todo))

	// A run that was made after the removal of another with its name stays.
	earlier := want[0]
	earlier.Begun = time.Now().Add(-time.Hour)
	todo, err = backup.ToRepeat(ctx, d.store, []record.Forgotten{earlier})
	require.NoError(t, err)
	require.Empty(t, todo)

	// A backup keeps what it was told, also if its store does not know it.
	d.backup(to)
	source, err = backup.Open(to)
	require.NoError(t, err)
	require.NoError(t, source.Close())
	require.Empty(t, cmp.Diff(want, source.Forgotten))
}

// Releases before the first with backups of fleets wrote none.
func TestAManifestWithoutKindIsOfAStack(t *testing.T) {
	t.Parallel()
	d := open(t, filepath.Join(t.TempDir(), "state"))
	d.run("first")
	to := filepath.Join(t.TempDir(), "backup")
	d.backup(to)
	changeManifest(t, to, func(m *backup.Manifest) { m.Kind = "" })
	r, err := restore(t, to)
	require.NoError(t, err)
	require.Equal(t, []string{"first"}, r.names())
}
