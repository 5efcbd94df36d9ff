// Package backup copies what a stack or a fleet keeps, also while it works, and makes it again.
//
// A backup of a stack is a directory with the store's and Temporal's databases, both as they
// were at one moment, the blobs, and a manifest that says what they are. A directory that is
// restored is like that of a stack that was killed at that moment: the next start goes on from
// there. A backup of a fleet has the tables of its store in PostgreSQL, as they were at one
// moment, and the blobs; Temporal's database is backed up by who runs it.
//
// Guarantees:
//
//   - Write changes nothing in the directory of the stack, and nobody there waits longer
//     than for another writer. WriteFleet takes no lock that a writer waits for.
//   - A backup counts from the moment at which its manifest is there. If Write is killed, the
//     backup before it stays usable, and the next Write removes what is left.
//   - The next backup to the same directory copies only blobs that it lacks. It removes those
//     that the new backup does not have.
//   - A restore writes only below a directory that does not exist or is empty, or into an empty
//     database, which gets its content at once, when everything is there and matches the
//     manifest.
//
// Where the file system allows it, a blob is not copied but gets another name (a hard link).
// Such a backup protects from mistakes, and not from the loss of the disk.
//
// The package knows files and the store. It starts no server: what was forgotten since a
// backup is removed by the caller of Stage or StageFleet, who gets a directory or a store that
// nobody uses yet.
package backup

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/store"
	"github.com/fulgurite/fulgurite/store/blob"
)

// origin is what the rows of a backup are copied from.
type origin interface {
	kind() Kind
	// address returns where the store can be opened.
	address() string
	// paths returns the files and directories that have to be there.
	paths() []string
	// begin takes the rows as they are at one moment. What it writes goes into a directory.
	begin(ctx context.Context, in string) (moment, error)
}

// moment is what an origin was at one moment.
type moment interface {
	// read notes in the manifest what the rows are, and returns the blobs that they need. It
	// is called after the blobs were taken.
	read(ctx context.Context, m *Manifest) (neededFiles, error)
	// copy writes what is not in the directory yet.
	copy(ctx context.Context, m *Manifest) error
	// ping is called from time to time while blobs are taken.
	ping(ctx context.Context) error
	close() error
}

// Errors of this package. None of them gets better by waiting.
var (
	// ErrPlace means that a directory can't be used for what was asked.
	ErrPlace = errors.New("this directory can't be used")
	// ErrDatabase means that a database can't be restored to.
	ErrDatabase = errors.New("this database can't be used")
	// ErrDamaged means that a backup is not as its manifest says, or that the stack's own
	// directory lacks files.
	ErrDamaged = errors.New("it is not complete")
	// ErrRelease means that another release has written a backup.
	ErrRelease = errors.New("it is of another release")
	// ErrBusy means that another process writes to a backup's directory.
	ErrBusy = errors.New("another process uses it")
	// ErrNone means that a directory has no complete backup.
	ErrNone = errors.New("there is no complete backup in it")
)

// The names of a backup's directory.
const (
	lockFile      = "fulgurite-backup" // also says that the directory is one of backups
	manifestFile  = "manifest.json"
	forgottenFile = "forgotten.json"
	forgottenLock = "forgotten.lock"
	blobDirectory = "blobs"
	databases     = "databases-" // begins the names of directories
	storeFile     = "fulgurite.db"
	temporalFile  = "temporal.db"
	tablesFile    = "tables.json"
	listFile      = "blobs.txt"
)

// format is the number of the layout of a backup's directory.
const format = 1

// tries is how often a backup is begun again because blobs that it needs were removed while
// it was made.
const tries = 5

// Report says what Write did. The keys of its JSON are a public contract.
type Report struct {
	Directory string   `json:"directory"`
	Manifest  Manifest `json:"manifest"`
	// NewFiles and NewBytes are the blobs that the directory did not have yet.
	NewFiles int   `json:"new_files"`
	NewBytes int64 `json:"new_bytes"`
	// RemovedFiles are the blobs of the backup before this one that this one does not have.
	RemovedFiles int `json:"removed_files"`
	// Tries is how often the databases were copied.
	Tries   int     `json:"tries"`
	Seconds float64 `json:"seconds"`
}

// Options are what Write and WriteFleet are told besides where. All may be left out.
type Options struct {
	// Release names the program that makes the backup.
	Release string
	// Begun is called with the absolute path of the directory once it is one of backups, before
	// anything is copied. Who notes the path there can tell the backup all that is forgotten
	// from then on. It returns the directories of all backups of the same records that are known,
	// which each of these that can be reached notes. An error ends the backup.
	Begun func(directory string) (all []string, err error)
	// Tell is called from time to time.
	Tell func(Progress)
	// reached is called after each stage. If it fails, all is left as after a kill.
	reached func(stage string) error
}

// writer makes one backup.
type writer struct {
	Options

	directory string
	from      origin
	fromBlobs string // the directory of the source
	source    *blob.Store
	target    *blob.Store
	store     string           // the id of the origin's store
	earlier   map[string]int64 // the size of each blob that the source had before the moment
	blobs     map[string]int64 // that it had directly after it
	progress  *progress
	report    Report
}

// Write makes a backup of a stack's directory in another directory, which is made if it is
// absent.
func Write(ctx context.Context, directory string, from Places, o Options) (Report, error) {
	return newWriter(directory, from, from.Blobs, o).run(ctx)
}

func newWriter(directory string, from origin, blobs string, o Options) writer {
	if o.reached == nil {
		o.reached = func(string) error { return nil }
	}
	return writer{Options: o, directory: directory, from: from, fromBlobs: blobs, progress: newProgress(o.Tell)}
}

// run makes the backup.
func (w writer) run(ctx context.Context) (_ Report, err error) {
	began := time.Now()
	directory, err := filepath.Abs(w.directory)
	if err != nil {
		return Report{}, fmt.Errorf("find %s: %w", w.directory, err)
	}
	w.directory, w.report.Directory = directory, directory
	lock, err := w.prepare(ctx)
	if err != nil {
		return Report{}, fmt.Errorf("back up to %s: %w", directory, err)
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	if err = w.begin(); err == nil {
		err = w.write(ctx)
	}
	if err != nil {
		return Report{}, fmt.Errorf("back up to %s: %w", directory, err)
	}
	w.report.Seconds = time.Since(began).Seconds()
	return w.report, nil
}

// begin lets the caller note the directory, and tells all backups of each other.
func (w *writer) begin() error {
	if w.Begun == nil {
		return nil
	}
	all, err := w.Begun(w.directory)
	if err != nil {
		return err
	}
	known := Forgotten{Store: w.store, Backups: all}
	for _, one := range all {
		if one != w.directory {
			_ = Note(one, known) // one that can't be reached now is told by the next backup, or the next to forget
		}
	}
	return addForgotten(w.directory, known)
}

// prepare locks the directory, removes what an interrupted backup left, and notes what was
// forgotten.
func (w *writer) prepare(ctx context.Context) (_ *os.File, err error) {
	for _, path := range append(w.from.paths(), w.fromBlobs) {
		if _, err := os.Stat(path); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
		}
	}
	if err := w.claim(); err != nil {
		return nil, err
	}
	lock, err := lockDirectory(w.directory, true)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, lock.Close())
		}
	}()
	last, err := readManifest(w.directory)
	switch {
	case errors.Is(err, ErrNone):
	case err != nil:
		return nil, err
	}
	if err := w.removeDatabases(last.Databases); err != nil {
		return nil, err
	}
	if w.source, err = blob.Open(w.fromBlobs); err != nil {
		return nil, err
	}
	if w.target, err = blob.Open(filepath.Join(w.directory, blobDirectory)); err != nil {
		return nil, err
	}
	return lock, w.noteForgotten(ctx, last.Store)
}

// claim makes the directory one of backups. It refuses a directory with other files.
func (w *writer) claim() error {
	if err := os.MkdirAll(w.directory, 0o755); err != nil {
		return err
	}
	for _, path := range append(w.from.paths(), w.fromBlobs) {
		if beside, err := isSame(filepath.Dir(path), w.directory); err != nil {
			return err
		} else if beside {
			return fmt.Errorf("%w: it is the directory that is backed up: give another one", ErrPlace)
		}
	}
	if _, err := os.Stat(filepath.Join(w.directory, lockFile)); err == nil {
		return nil
	}
	if name, err := firstEntry(w.directory, ""); err != nil {
		return err
	} else if name != "" {
		return fmt.Errorf("%w: it has %q and was not made by a backup: give one that is empty or does not exist", ErrPlace, name)
	}
	f, err := os.OpenFile(filepath.Join(w.directory, lockFile), os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), syncPath(w.directory))
}

func isSame(a, b string) (bool, error) {
	first, err := os.Stat(a)
	if err != nil {
		return false, err
	}
	second, err := os.Stat(b)
	return err == nil && os.SameFile(first, second), err
}

// firstEntry returns the first name in a directory other than except, "" if there is none.
func firstEntry(directory, except string) (string, error) {
	entries, err := os.ReadDir(directory)
	if err != nil {
		return "", err
	}
	for _, e := range entries {
		if e.Name() != except {
			return e.Name(), nil
		}
	}
	return "", nil
}

// removeDatabases removes the copies of databases of all backups but one.
func (w *writer) removeDatabases(except string) error {
	entries, err := os.ReadDir(w.directory)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() && strings.HasPrefix(e.Name(), databases) && e.Name() != except {
			if err := os.RemoveAll(filepath.Join(w.directory, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// noteForgotten writes what was forgotten up to now, also if the backup fails later. known
// is the id of the store of the backups in the directory, "" if it has none.
func (w *writer) noteForgotten(ctx context.Context, known string) error {
	id, stones, err := Tombstones(ctx, w.from.address())
	if err != nil {
		return err
	}
	if known != "" && known != id {
		return fmt.Errorf("%w: it has a backup of another store (%s, and this one is %s): give another directory", ErrPlace, known, id)
	}
	w.store = id
	return addForgotten(w.directory, Forgotten{Store: id, Forgotten: stones})
}

func (w *writer) write(ctx context.Context) error {
	for w.report.Tries < tries {
		w.report.Tries++
		done, err := w.try(ctx)
		if err != nil || done {
			return err
		}
	}
	return fmt.Errorf("blobs that a copy of the store needs were removed %d times while it was made: try again", tries)
}

// try makes a backup. It returns false if blobs were removed meanwhile that it needs.
func (w *writer) try(ctx context.Context) (done bool, err error) {
	// Most blobs are copied before the moment. So few can go between the moment and the copy of
	// the rest.
	if w.earlier, err = w.takeBlobs(ctx, "first blobs", nil); err != nil {
		return false, err
	}
	m := Manifest{Format: format, Kind: w.from.kind(), Release: w.Release, Databases: databases + time.Now().UTC().Format("20060102-150405-") + rand.Text()[:8], Began: time.Now().UTC()}
	in := filepath.Join(w.directory, m.Databases)
	if err := os.Mkdir(in, 0o700); err != nil {
		return false, err
	}
	complete, err := w.copy(ctx, in, &m)
	if err != nil {
		return false, err
	}
	if !complete {
		return false, os.RemoveAll(in)
	}
	if err := w.describe(ctx, in, &m); err != nil {
		return false, err
	}
	// What was forgotten while the backup was made may still be in it.
	if err := w.noteForgotten(ctx, m.Store); err != nil {
		return false, err
	}
	if err := w.commit(m); err != nil {
		return false, err
	}
	w.report.Manifest = m
	return true, w.clean(ctx, m)
}

// copy writes the rows of one moment, and the blobs that there were directly after it: a blob of
// a later run would stay in a restored directory when that run was forgotten. complete is false
// if a blob is missing that the source had at the moment.
func (w *writer) copy(ctx context.Context, in string, m *Manifest) (complete bool, err error) {
	now, err := w.from.begin(ctx, in)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, now.close()) }()
	if err := w.reached("moment"); err != nil {
		return false, err
	}
	if w.blobs, err = w.takeBlobs(ctx, "blobs", now.ping); err != nil {
		return false, err
	}
	files, err := now.read(ctx, m)
	if err != nil {
		return false, err
	}
	if complete, err := w.hasAll(ctx, files); err != nil || !complete {
		return false, err
	}
	return true, now.copy(ctx, m)
}

// takeBlobs copies all blobs that there are now and that the directory lacks. Those that are
// added or removed meanwhile it leaves out. It returns the sizes of those that it took or had.
func (w *writer) takeBlobs(ctx context.Context, stage string, ping func(context.Context) error) (map[string]int64, error) {
	listed := map[string]int64{}
	err := w.source.List(ctx, func(digest string, size int64) error {
		listed[digest] = size
		return nil
	})
	if err != nil {
		return nil, err
	}
	w.progress.begin(Progress{Blobs: len(listed)}, ping)
	for _, digest := range slices.Sorted(maps.Keys(listed)) {
		taken, err := w.target.Take(ctx, w.source, digest)
		if errors.Is(err, blob.ErrNotFound) {
			delete(listed, digest)
			continue
		}
		if err == nil && taken {
			w.report.NewFiles, w.report.NewBytes = w.report.NewFiles+1, w.report.NewBytes+listed[digest]
			err = w.reached("a blob")
		}
		if err == nil {
			err = w.progress.add(ctx, listed[digest])
		}
		if err != nil {
			return nil, err
		}
	}
	if err := w.target.Sync(); err != nil {
		return nil, err
	}
	return listed, w.reached(stage)
}

// hasAll reports whether the blobs that rows need were taken. One that was removed after the
// moment may have been taken before it.
func (w *writer) hasAll(ctx context.Context, files neededFiles) (bool, error) {
	missing, err := firstMissing(ctx, files, w.target, func(digest string) (bool, error) {
		if err := w.progress.keep(ctx); err != nil {
			return false, err
		}
		if _, ok := w.blobs[digest]; ok {
			return true, nil
		}
		size, ok := w.earlier[digest]
		if ok {
			w.blobs[digest] = size
		}
		return ok, nil
	})
	if err != nil || missing == nil {
		return err == nil, err
	}
	now, err := missingNow(ctx, w.from.address(), w.source)
	if err == nil && now != nil && now.Digest == missing.Digest {
		err = fmt.Errorf("%w: %s lacks %s of %s: put the file back, from an earlier backup perhaps, or remove what needs it with prune or forget", ErrDamaged, w.fromBlobs, missing.Digest, missing.For)
	}
	return false, err
}

// describe writes down what the backup has.
func (w *writer) describe(ctx context.Context, in string, m *Manifest) (err error) {
	if err := w.writeList(filepath.Join(in, listFile), m); err != nil {
		return err
	}
	m.Files = map[string]File{}
	for _, name := range m.Kind.files() {
		if m.Files[name], err = fileOf(ctx, filepath.Join(in, name)); err != nil {
			return err
		}
	}
	m.Ended = time.Now().UTC()
	return errors.Join(syncPath(in), w.reached("description"))
}

// readStore reads what the manifest says of a copy of the store, and the blobs that the copy
// needs.
func readStore(ctx context.Context, s *store.Store, m *Manifest) (files neededFiles, err error) {
	if m.Store, err = s.ID(ctx); err != nil {
		return nil, err
	}
	if m.Schema, err = s.Schema(ctx); err != nil {
		return nil, err
	}
	if m.Mark, err = s.Mark(ctx); err != nil {
		return nil, err
	}
	runs, err := s.Runs(ctx)
	if err != nil {
		return nil, err
	}
	m.Runs = []Run{}
	for _, r := range slices.Backward(runs) {
		m.Runs = append(m.Runs, Run{r.Name, r.Status})
	}
	err = s.NeededFiles(ctx, func(f store.NeededFile) error {
		files = append(files, f)
		return nil
	})
	return files, err
}

// writeList writes the digest and the size of each blob.
func (w *writer) writeList(path string, m *Manifest) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	out := bufio.NewWriter(f)
	m.BlobFiles = len(w.blobs)
	for _, digest := range slices.Sorted(maps.Keys(w.blobs)) {
		m.BlobBytes += w.blobs[digest]
		_, _ = fmt.Fprintf(out, "%s %d\n", digest, w.blobs[digest]) // Flush returns the error
	}
	return errors.Join(out.Flush(), f.Sync(), f.Close())
}

// commit writes the manifest, from which on the backup counts.
func (w *writer) commit(m Manifest) error {
	if err := writeJSON(filepath.Join(w.directory, manifestFile), m); err != nil {
		return err
	}
	return w.reached("manifest")
}

// clean removes what only earlier backups had.
func (w *writer) clean(ctx context.Context, m Manifest) error {
	if err := w.removeDatabases(m.Databases); err != nil {
		return err
	}
	return w.target.List(ctx, func(digest string, _ int64) error {
		if _, ok := w.blobs[digest]; ok {
			return nil
		}
		w.report.RemovedFiles++
		return w.target.Remove(ctx, digest)
	})
}

// Run is a run of a backup, as it was then.
type Run struct {
	Name   string        `json:"name"`
	Status record.Status `json:"status"`
}

// fileOf returns the size and the digest of a file.
func fileOf(ctx context.Context, path string) (File, error) {
	f, err := os.Open(path)
	if err != nil {
		return File{}, err
	}
	sum := sha256.New()
	n, err := io.Copy(sum, &reader{ctx, f})
	if err := errors.Join(err, f.Close()); err != nil {
		return File{}, fmt.Errorf("read %s: %w", path, err)
	}
	return File{Bytes: n, SHA256: hex.EncodeToString(sum.Sum(nil))}, nil
}

// reader ends when its context does.
type reader struct {
	ctx context.Context
	io.Reader
}

// Read implements io.Reader.
func (r *reader) Read(p []byte) (int, error) {
	if err := context.Cause(r.ctx); err != nil {
		return 0, err
	}
	return r.Reader.Read(p)
}

// readList calls visit with each line of a list of blobs.
func readList(path string, visit func(digest string, size int64) error) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // it was only read
	lines := bufio.NewScanner(f)
	for n := 1; lines.Scan(); n++ {
		digest, text, _ := strings.Cut(lines.Text(), " ")
		size, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return fmt.Errorf("%w: %s line %d is no digest and size", ErrDamaged, path, n)
		}
		if err := visit(digest, size); err != nil {
			return err
		}
	}
	return lines.Err()
}

// writeJSON replaces a file, which survives loss of power.
func writeJSON(path string, v any) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("encode %s: %w", path, err)
	}
	part := path + ".part"
	if err := os.WriteFile(part, append(data, '\n'), 0o644); err != nil {
		return err
	}
	if err := syncPath(part); err != nil {
		return err
	}
	if err := os.Rename(part, path); err != nil {
		return err
	}
	return syncPath(filepath.Dir(path))
}

// syncPath makes a file or a directory survive loss of power.
func syncPath(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil && !errors.Is(err, fs.ErrInvalid) {
		return fmt.Errorf("sync %s: %w", path, err)
	}
	return nil
}
