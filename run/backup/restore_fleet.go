package backup

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/fulgurite/fulgurite/store"
	"github.com/fulgurite/fulgurite/store/blob"
	"github.com/fulgurite/fulgurite/store/database"
)

// markFile is in a directory of blobs that belongs to a store that is being restored, and has
// the label of that store.
const markFile = "restoring"

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
// directory of its blobs. Its methods are called one after the other.
type RestoredFleet struct {
	Fleet // Store is where the store can be opened until Commit

	source   *Source
	staged   *database.Staged
	progress *progress
	reached  func(stage string) error
}

// CheckFleetTarget returns the error with which StageFleet would refuse a place now. It reads
// nothing of the backup and changes nothing.
func (s *Source) CheckFleetTarget(ctx context.Context, to Fleet) error {
	err := s.checkKind()
	if err == nil {
		var label string
		if label, err = database.CheckStage(ctx, to.Store); err == nil {
			err = s.checkBlobs(to.Blobs, label)
		}
	}
	return s.refused(to, err)
}

// StageFleet makes a store out of the backup's tables in a PostgreSQL database, which has to be
// empty, and compares it with what was noted. The directory of blobs has to be empty or absent,
// or be left from an interrupted restore of the same backup to the same database. It is marked
// before tables are loaded. What such a restore left is removed or used. The caller calls
// TakeBlobs, then Commit, and in any case Close. It hears of progress by tell, unless that is nil.
func (s *Source) StageFleet(ctx context.Context, to Fleet, tell func(Progress)) (*RestoredFleet, error) {
	return s.stageFleet(ctx, to, tell, func(string) error { return nil })
}

// stageFleet is StageFleet with a function that is called after each stage. If it fails, all is
// left as after an error.
func (s *Source) stageFleet(ctx context.Context, to Fleet, tell func(Progress), reached func(stage string) error) (*RestoredFleet, error) {
	if err := s.checkKind(); err != nil {
		return nil, s.refused(to, err)
	}
	staged, err := database.Stage(ctx, to.Store)
	if err != nil {
		return nil, s.refused(to, err)
	}
	r := &RestoredFleet{Fleet{Store: staged.URL, Blobs: to.Blobs}, s, staged, newProgress(tell), reached}
	if err = r.mark(ctx); err == nil {
		err = r.load(ctx)
	}
	if err != nil {
		return nil, errors.Join(s.refused(to, err), r.Close())
	}
	return r, nil
}

func (s *Source) checkKind() error {
	if s.Manifest.Kind != KindFleet {
		return fmt.Errorf("%w: it is of a %s", ErrPlace, s.Manifest.Kind)
	}
	return nil
}

// refused says in an error what was to be restored where.
func (s *Source) refused(to Fleet, err error) error {
	if err == nil {
		return nil
	}
	for _, one := range []error{database.ErrOccupied, database.ErrStaging, database.ErrRight} {
		if errors.Is(err, one) {
			err = fmt.Errorf("%w: %w", ErrDatabase, err)
		}
	}
	return fmt.Errorf("restore backup %s to %s: %w", s.directory, store.Redacted(to.Store), err)
}

// checkBlobs refuses a directory that is not empty, unless it has the mark of a restore of this
// backup that was interrupted. label is that of what is staged in the database: another database
// has another, and a store that has its place has none. So no store can have the directory.
func (s *Source) checkBlobs(directory, label string) error {
	name, err := firstEntry(directory, s.markPart(label))
	if errors.Is(err, fs.ErrNotExist) || err == nil && name == "" {
		return nil
	}
	if err != nil {
		return fmt.Errorf("use %s: %w", directory, err)
	}
	err = s.checkMark(directory, label)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("use %s: %w: it has %q: give one that is empty or does not exist", directory, ErrPlace, name)
	}
	return err
}

// checkMark returns an error if a directory has no mark, or that of another restore.
func (s *Source) checkMark(directory, label string) error {
	mark, err := os.ReadFile(filepath.Join(directory, markFile))
	if err != nil {
		return fmt.Errorf("use %s: %w", directory, err)
	}
	if string(mark) != label || !s.isOwn(label) {
		return fmt.Errorf("use %s: %w: its file %q is of another restore, which may have ended: give one that is empty or does not exist", directory, ErrPlace, markFile)
	}
	return nil
}

// isOwn reports whether a label is that of a restore of this backup.
func (s *Source) isOwn(label string) bool { return strings.HasPrefix(label, s.Manifest.Databases+" ") }

// markPart returns the name of a file that becomes the mark, which a killed restore of this
// backup may leave. It is empty if the label is that of another one.
func (s *Source) markPart(label string) string {
	if !s.isOwn(label) {
		return ""
	}
	return markFile + "." + strings.TrimPrefix(label, s.Manifest.Databases+" ")
}

// mark makes a directory that of what is staged, until Commit. The mark is whole or absent, and
// of two restores to one directory only one makes it.
func (r *RestoredFleet) mark(ctx context.Context) error {
	if !r.source.isOwn(r.staged.Label()) {
		if err := r.staged.SetLabel(ctx, r.source.Manifest.Databases+" "+rand.Text()); err != nil {
			return err
		}
	}
	label := r.staged.Label()
	if err := r.source.checkBlobs(r.Blobs, label); err != nil {
		return err
	}
	if err := r.reached("label"); err != nil {
		return err
	}
	if err := os.MkdirAll(r.Blobs, 0o755); err != nil {
		return err
	}
	part := filepath.Join(r.Blobs, r.source.markPart(label))
	if err := os.WriteFile(part, []byte(label), 0o644); err != nil {
		return err
	}
	if err := errors.Join(syncPath(part), r.reached("part")); err != nil {
		return err
	}
	err := os.Link(part, filepath.Join(r.Blobs, markFile))
	if errors.Is(err, fs.ErrExist) {
		err = r.source.checkMark(r.Blobs, label)
	}
	if err := errors.Join(err, os.Remove(part), syncPath(r.Blobs)); err != nil {
		return err
	}
	return r.reached("mark")
}

// load fills the tables of a staged store and compares them with what was noted.
func (r *RestoredFleet) load(ctx context.Context) error {
	tables, err := r.source.readTables()
	if err != nil {
		return err
	}
	names := make([]database.CopiedTable, len(tables))
	for i, t := range tables {
		names[i] = t.CopiedTable
	}
	if err := r.staged.CheckTables(ctx, names); err != nil {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	r.progress.begin(Progress{Tables: len(tables)}, nil)
	for _, t := range tables {
		r.progress.table(t.Name)
		if err := r.loadTable(ctx, t); err != nil {
			return err
		}
		if err := r.reached("a table"); err != nil {
			return err
		}
	}
	return nil
}

func (r *RestoredFleet) loadTable(ctx context.Context, t table) error {
	f, err := os.Open(r.source.path(t.file()))
	if err != nil {
		return err
	}
	counted := &counter{sum: sha256.New(), added: func(bytes int64) error { return r.progress.add(ctx, bytes) }}
	rows, err := r.staged.Load(ctx, t.CopiedTable, io.TeeReader(bufio.NewReaderSize(f, 1<<20), counted))
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	if got := counted.file(); got != t.File || rows != t.Rows {
		return fmt.Errorf("%w: table %s has %d rows and its file digest %.12s…, and the backup says %d and %.12s…", ErrDamaged, t.Name, rows, got.SHA256, t.Rows, t.SHA256)
	}
	return nil
}

// TakeBlobs fills the directory of blobs and checks that the store has all that it needs.
func (r *RestoredFleet) TakeBlobs(ctx context.Context) error {
	if err := r.takeBlobs(ctx); err != nil {
		return fmt.Errorf("restore the blobs of backup %s to %s: %w", r.source.directory, r.Blobs, err)
	}
	return nil
}

func (r *RestoredFleet) takeBlobs(ctx context.Context) error {
	blobs, err := blob.Open(r.Blobs)
	if err != nil {
		return err
	}
	if err := blobs.Claim(r.source.Manifest.Store); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	r.progress.begin(Progress{Blobs: r.source.Manifest.BlobFiles}, r.staged.Ping)
	err = r.source.takeBlobs(ctx, blobs, func(size int64) error {
		return errors.Join(r.progress.add(ctx, size), r.reached("a blob"))
	})
	if err != nil {
		return err
	}
	return r.source.complete(ctx, r.Store, blobs, r.progress.keep)
}

// Ping keeps the connection to the database in use while the caller works for long.
func (r *RestoredFleet) Ping(ctx context.Context) error { return r.staged.Ping(ctx) }

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
	if err := r.reached("restored"); err != nil {
		return err
	}
	if err := r.staged.Commit(ctx); err != nil {
		return err
	}
	// If it stays, it harms nothing: no restore has its label any more.
	if err := os.Remove(filepath.Join(r.Blobs, markFile)); err != nil {
		return fmt.Errorf("the store is restored, and nobody needs %s any more: %w", filepath.Join(r.Blobs, markFile), err)
	}
	return syncPath(r.Blobs)
}

// Close removes the store, unless Commit has succeeded. Blobs stay, for the next restore of the
// same backup to the same database.
func (r *RestoredFleet) Close() error { return r.staged.Close() }
