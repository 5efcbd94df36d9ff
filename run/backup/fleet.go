package backup

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/fulgurite/fulgurite/store"
	"github.com/fulgurite/fulgurite/store/blob"
	"github.com/fulgurite/fulgurite/store/database"
)

// Fleet says where the records of a fleet are.
type Fleet struct {
	Store string // the address of a store in PostgreSQL
	Blobs string // the directory of blobs
}

// Progress says how far a backup or a restore of tables has come.
type Progress struct {
	Table  string // that is being copied
	Number int    // of the table, from 1
	Tables int
	Bytes  int64 // of all tables so far
}

// tellEvery is how often the caller hears of progress within a table.
const tellEvery = 5 * time.Second

// table is a table of a backup. The file with its rows has the name of the table and .copy.
type table struct {
	database.CopiedTable
	File
}

func (t table) file() string { return t.Name + ".copy" }

// WriteFleet makes a backup of a fleet's records in a directory, as Write does of a stack's. It
// calls tell, unless it is nil, from time to time.
func WriteFleet(ctx context.Context, directory string, from Fleet, release string, tell func(Progress)) (Report, error) {
	return writeFleet(ctx, directory, from, release, tell, func(string) error { return nil })
}

// writeFleet is WriteFleet with a function that is called after each stage, as in write.
func writeFleet(ctx context.Context, directory string, from Fleet, release string, tell func(Progress), reached func(stage string) error) (Report, error) {
	o := &fleetOrigin{Fleet: from, tell: tell, reached: reached}
	return writer{directory: directory, from: o, fromBlobs: from.Blobs, release: release, reached: reached}.run(ctx)
}

// fleetOrigin copies the tables of a store in PostgreSQL.
type fleetOrigin struct {
	Fleet

	tell    func(Progress)
	reached func(stage string) error
	files   neededFiles // of the snapshot that was copied last
}

func (f *fleetOrigin) kind() Kind { return KindFleet }

func (f *fleetOrigin) address() string { return f.Store }

func (f *fleetOrigin) paths() []string { return nil }

// copy closes the snapshot before blobs are copied, which may take long, because the server
// keeps all removed rows until then.
func (f *fleetOrigin) copy(ctx context.Context, in string, m *Manifest) (err error) {
	s, err := store.Open(ctx, f.Store, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	snapshot, err := s.Snapshot(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, snapshot.Close()) }()
	if f.files, err = readStore(ctx, snapshot.Store, m); err != nil {
		return err
	}
	listed, err := snapshot.Tables(ctx)
	if err != nil {
		return err
	}
	tables := make([]table, len(listed))
	for i, one := range listed {
		tables[i].CopiedTable = one
		p := Progress{Table: one.Name, Number: i + 1, Tables: len(listed), Bytes: m.TableBytes}
		if err := copyTable(ctx, snapshot, in, &tables[i], telling(f.tell, p)); err != nil {
			return err
		}
		m.Tables, m.Rows, m.TableBytes = i+1, m.Rows+tables[i].Rows, m.TableBytes+tables[i].Bytes
		if err := f.reached("a table"); err != nil {
			return err
		}
	}
	return writeJSON(filepath.Join(in, tablesFile), tables)
}

// copyTable writes the rows of a table into its file, and notes how many and what they are.
func copyTable(ctx context.Context, from *store.Snapshot, in string, t *table, report func(bytes int64)) error {
	path := filepath.Join(in, t.file())
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	out := bufio.NewWriterSize(f, 1<<20)
	counted := &counter{sum: sha256.New(), report: report}
	t.Rows, err = from.Copy(ctx, t.CopiedTable, io.MultiWriter(out, counted))
	if err := errors.Join(err, out.Flush(), f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	t.File = counted.file()
	return nil
}

// read checks nothing: the digests are those of what the server sent.
func (f *fleetOrigin) read(context.Context, string, *Manifest) (neededFiles, error) {
	return f.files, nil
}

// telling returns a function that tells progress within a table. p is where the table begins.
func telling(tell func(Progress), p Progress) func(bytes int64) {
	before, last := p.Bytes, time.Now()
	return func(bytes int64) {
		if now := time.Now(); tell != nil && now.Sub(last) >= tellEvery {
			last, p.Bytes = now, before+bytes
			tell(p)
		}
	}
}

// counter counts bytes and hashes them.
type counter struct {
	sum    hash.Hash
	n      int64
	report func(bytes int64) // how many so far
}

// Write implements io.Writer.
func (c *counter) Write(p []byte) (int, error) {
	_, _ = c.sum.Write(p) // a hash takes everything
	c.n += int64(len(p))
	c.report(c.n)
	return len(p), nil
}

func (c *counter) file() File {
	return File{Bytes: c.n, SHA256: hex.EncodeToString(c.sum.Sum(nil))}
}

// readTables reads the list of a backup's tables.
func (s *Source) readTables() (out []table, err error) {
	data, err := os.ReadFile(s.path(tablesFile))
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(data, &out); err != nil {
		return nil, fmt.Errorf("%w: %s can't be read: %w", ErrDamaged, s.path(tablesFile), err)
	}
	for _, t := range out {
		if t.file() != filepath.Base(t.file()) {
			return nil, fmt.Errorf("%w: %s names the table %q", ErrDamaged, s.path(tablesFile), t.Name)
		}
	}
	return out, nil
}

// checkTables compares the files of tables with the list, and the list with the manifest. A
// stack's backup has none.
func (s *Source) checkTables(ctx context.Context) error {
	if s.Manifest.Kind != KindFleet {
		return nil
	}
	tables, err := s.readTables()
	if err != nil {
		return err
	}
	rows, bytes := int64(0), int64(0)
	for _, t := range tables {
		if err := s.checkFile(ctx, t.file(), t.File); err != nil {
			return err
		}
		rows, bytes = rows+t.Rows, bytes+t.Bytes
	}
	if m := s.Manifest; len(tables) != m.Tables || rows != m.Rows || bytes != m.TableBytes {
		return fmt.Errorf("%w: %s lists %d tables with %d rows and %d bytes, and the manifest says %d with %d and %d",
			ErrDamaged, s.path(tablesFile), len(tables), rows, bytes, m.Tables, m.Rows, m.TableBytes)
	}
	return nil
}

// RestoredFleet is a store that was made from a backup and has not its place yet, and the
// directory of its blobs.
type RestoredFleet struct {
	Fleet // Store is where the store can be opened until Commit

	staged *database.Staged
}

// StageFleet makes a store out of the backup in a PostgreSQL database, which has to be empty,
// and completes a directory of blobs, which has to be empty, absent, or the store's own. What an
// interrupted call left is removed or used. It calls tell, unless it is nil, from time to time.
// The caller has to call Close.
func (s *Source) StageFleet(ctx context.Context, to Fleet, tell func(Progress)) (_ *RestoredFleet, err error) {
	at := store.Redacted(to.Store)
	if s.Manifest.Kind != KindFleet {
		return nil, fmt.Errorf("restore backup %s to %s: %w: it is of a %s", s.directory, at, ErrPlace, s.Manifest.Kind)
	}
	staged, err := database.Stage(ctx, to.Store)
	if errors.Is(err, database.ErrOccupied) || errors.Is(err, database.ErrStaging) {
		err = fmt.Errorf("%w: %w", ErrDatabase, err)
	}
	if err != nil {
		return nil, fmt.Errorf("restore backup %s to %s: %w", s.directory, at, err)
	}
	r := &RestoredFleet{Fleet: Fleet{Store: staged.URL, Blobs: to.Blobs}, staged: staged}
	if err := s.fill(ctx, r, tell); err != nil {
		return nil, errors.Join(fmt.Errorf("restore backup %s to %s: %w", s.directory, at, err), r.Close())
	}
	return r, nil
}

// fill gives a staged store its rows and its blobs.
func (s *Source) fill(ctx context.Context, r *RestoredFleet, tell func(Progress)) error {
	blobs, err := s.claimBlobs(r.Blobs)
	if err != nil {
		return fmt.Errorf("use %s: %w", r.Blobs, err)
	}
	if err := s.load(ctx, r.staged, tell); err != nil {
		return err
	}
	if err := s.takeBlobs(ctx, blobs); err != nil {
		return err
	}
	return s.complete(ctx, r.Store, blobs)
}

// claimBlobs opens a directory of blobs and gives it the id of the store, unless it has it. It
// refuses a directory with other blobs.
func (s *Source) claimBlobs(directory string) (*blob.Store, error) {
	b, err := blob.Open(directory)
	if err != nil {
		return nil, err
	}
	owner, err := b.Owner()
	if err != nil {
		return nil, err
	}
	empty, err := b.Empty()
	switch {
	case err != nil:
		return nil, err
	case owner == s.Manifest.Store:
		return b, nil
	case owner != "":
		return nil, fmt.Errorf("%w: it has the blobs of another store (%s, and the backup is of %s): give an empty directory", ErrPlace, owner, s.Manifest.Store)
	case !empty:
		return nil, fmt.Errorf("%w: it has blobs, and no file says whose they are: give an empty directory", ErrPlace)
	}
	return b, b.Claim(s.Manifest.Store)
}

// load fills the tables of a staged store and compares them with what was noted.
func (s *Source) load(ctx context.Context, to *database.Staged, tell func(Progress)) error {
	tables, err := s.readTables()
	if err != nil {
		return err
	}
	names := make([]database.CopiedTable, len(tables))
	for i, t := range tables {
		names[i] = t.CopiedTable
	}
	if err := to.CheckTables(ctx, names); err != nil {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	bytes := int64(0)
	for i, t := range tables {
		if err := s.loadTable(ctx, to, t, telling(tell, Progress{t.Name, i + 1, len(tables), bytes})); err != nil {
			return err
		}
		bytes += t.Bytes
	}
	return nil
}

func (s *Source) loadTable(ctx context.Context, to *database.Staged, t table, report func(bytes int64)) error {
	f, err := os.Open(s.path(t.file()))
	if err != nil {
		return err
	}
	counted := &counter{sum: sha256.New(), report: report}
	rows, err := to.Load(ctx, t.CopiedTable, io.TeeReader(bufio.NewReaderSize(f, 1<<20), counted))
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	if got := counted.file(); got != t.File || rows != t.Rows {
		return fmt.Errorf("%w: table %s has %d rows and its file digest %.12s…, and the backup says %d and %.12s…", ErrDamaged, t.Name, rows, got.SHA256, t.Rows, t.SHA256)
	}
	return nil
}

// Commit gives the store its place, after it has recorded that Temporal may know more or less
// of its runs. Nobody may have the store open any more.
func (r *RestoredFleet) Commit(ctx context.Context) error {
	s, err := store.Open(ctx, r.Store, nil)
	if err != nil {
		return err
	}
	if err := errors.Join(s.SetRestored(ctx), s.Close()); err != nil {
		return err
	}
	return r.staged.Commit(ctx)
}

// Close removes the store, unless Commit has succeeded. Blobs stay.
func (r *RestoredFleet) Close() error { return r.staged.Close() }
