package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/store"
	"github.com/fulgurite/fulgurite/store/blob"
)

// Source is a complete backup that is being read. Meanwhile nobody makes another one in its
// directory; only what is forgotten may be added.
type Source struct {
	Manifest Manifest
	// Forgotten is what was forgotten of the store, before the backup and after it, as far
	// as the directory was told.
	Forgotten []record.Forgotten
	// Backups are the directories of all backups of the store, as far as the directory was told.
	Backups []string

	directory string
	lock      *os.File
	blobs     *blob.Store
}

// Open opens the backup in a directory. It refuses one that this program can't restore.
func Open(directory string) (_ *Source, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("open backup %s: %w", directory, err)
		}
	}()
	lock, err := lockDirectory(directory, false)
	if err != nil {
		return nil, err
	}
	s := &Source{directory: directory, lock: lock}
	if err := s.open(); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return s, nil
}

func (s *Source) open() (err error) {
	if s.Manifest, err = readManifest(s.directory); err != nil {
		return err
	}
	if err := s.Manifest.checkSchema(); err != nil {
		return err
	}
	if err := s.ReadForgotten(); err != nil {
		return err
	}
	path := filepath.Join(s.directory, blobDirectory)
	if _, err := os.Stat(path); err != nil {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	s.blobs, err = blob.Open(path)
	return err
}

// ReadForgotten reads again what was forgotten: others may add to it at any time.
func (s *Source) ReadForgotten() error {
	f, err := ReadForgotten(filepath.Join(s.directory, forgottenFile))
	if err != nil {
		return fmt.Errorf("%w: read what was forgotten: %w", ErrDamaged, err)
	}
	if f.Store != s.Manifest.Store {
		return fmt.Errorf("%w: %s is of another store (%s, and the backup is of %s)", ErrDamaged, forgottenFile, f.Store, s.Manifest.Store)
	}
	s.Forgotten, s.Backups = f.Forgotten, f.Backups
	return nil
}

// Close ends the reading.
func (s *Source) Close() error { return s.lock.Close() }

// path returns where a file of the backup is.
func (s *Source) path(name string) string {
	return filepath.Join(s.directory, s.Manifest.Databases, name)
}

// Check compares the backup with its manifest: the digests of databases or tables, and the sizes
// of all blobs, or their digests, too, if whole is true.
func (s *Source) Check(ctx context.Context, whole bool) error {
	if err := s.check(ctx, whole); err != nil {
		return fmt.Errorf("check backup %s: %w", s.directory, err)
	}
	return nil
}

func (s *Source) check(ctx context.Context, whole bool) error {
	for _, name := range s.Manifest.Kind.files() {
		if err := s.checkFile(ctx, name, s.Manifest.Files[name]); err != nil {
			return err
		}
	}
	if err := s.checkTables(ctx); err != nil {
		return err
	}
	files, bytes := 0, int64(0)
	err := readList(s.path(listFile), func(digest string, size int64) error {
		files, bytes = files+1, bytes+size
		return s.checkBlob(ctx, digest, size, whole)
	})
	if err != nil {
		return err
	}
	if files != s.Manifest.BlobFiles || bytes != s.Manifest.BlobBytes {
		return fmt.Errorf("%w: %s lists %d blobs with %d bytes, and the manifest says %d with %d", ErrDamaged, s.path(listFile), files, bytes, s.Manifest.BlobFiles, s.Manifest.BlobBytes)
	}
	return nil
}

// checkFile compares a file with what was noted of it.
func (s *Source) checkFile(ctx context.Context, name string, want File) error {
	got, err := fileOf(ctx, s.path(name))
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if err == nil && got != want {
		err = fmt.Errorf("%w: %s has %d bytes and digest %.12s…, and the manifest says %d and %.12s…", ErrDamaged, s.path(name), got.Bytes, got.SHA256, want.Bytes, want.SHA256)
	}
	return err
}

func (s *Source) checkBlob(ctx context.Context, digest string, size int64, whole bool) error {
	has, err := s.blobs.Size(digest)
	switch {
	case errors.Is(err, blob.ErrNotFound):
		return fmt.Errorf("%w: blob %s is missing", ErrDamaged, digest)
	case err != nil:
		return err
	case has != size:
		return fmt.Errorf("%w: blob %s has %d bytes, and the manifest says %d", ErrDamaged, digest, has, size)
	case !whole:
		return context.Cause(ctx)
	}
	content, _, err := s.blobs.Open(ctx, digest)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, content)
	if err := errors.Join(err, content.Close()); err != nil {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return nil
}

// staged ends the name of the directory in which a restored directory is made.
const staged = ".restoring"

// Restored is a directory that was made from a backup and has not its name yet.
type Restored struct {
	// Directory is where it is now.
	Directory string

	name string
}

// Stage makes a stack's directory out of the backup, beside the directory that it will be. in
// says where the parts of a directory are. What an interrupted call left is removed. The
// directory must not exist, or be empty.
func (s *Source) Stage(ctx context.Context, directory string, in func(directory string) Places) (Restored, error) {
	if s.Manifest.Kind != KindStack {
		return Restored{}, fmt.Errorf("restore backup %s to %s: %w: it is of a %s", s.directory, directory, ErrPlace, s.Manifest.Kind)
	}
	if err := CheckTarget(directory); err != nil {
		return Restored{}, err
	}
	directory, err := filepath.Abs(directory)
	if err != nil {
		return Restored{}, fmt.Errorf("find %s: %w", directory, err)
	}
	r := Restored{Directory: directory + staged, name: directory}
	if err := s.stage(ctx, r.Directory, in(r.Directory)); err != nil {
		return Restored{}, fmt.Errorf("restore backup %s to %s: %w", s.directory, directory, err)
	}
	return r, nil
}

// CheckTarget refuses a directory that has something, because a backup can't be restored
// there.
func CheckTarget(directory string) error {
	name, err := firstEntry(directory, "")
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil && name != "" {
		err = fmt.Errorf("%w: it has %q: give one that is empty or does not exist", ErrPlace, name)
	}
	if err != nil {
		return fmt.Errorf("restore to %s: %w", directory, err)
	}
	return nil
}

func (s *Source) stage(ctx context.Context, directory string, to Places) error {
	if err := os.RemoveAll(directory); err != nil {
		return err
	}
	for _, path := range []string{filepath.Dir(to.Store), filepath.Dir(to.Temporal), to.Blobs} {
		if err := os.MkdirAll(path, 0o755); err != nil {
			return err
		}
	}
	blobs, err := blob.Open(to.Blobs)
	if err != nil {
		return err
	}
	if err := s.takeBlobs(ctx, blobs, func(int64) error { return nil }); err != nil {
		return err
	}
	if err := blobs.Claim(s.Manifest.Store); err != nil {
		return err
	}
	for name, path := range map[string]string{storeFile: to.Store, temporalFile: to.Temporal} {
		if err := s.copyFile(ctx, name, path); err != nil {
			return err
		}
	}
	return s.complete(ctx, to.Store, blobs, func(context.Context) error { return nil })
}

// takeBlobs makes all blobs of the backup also those of a directory. It calls taken after each.
func (s *Source) takeBlobs(ctx context.Context, to *blob.Store, taken func(size int64) error) error {
	err := readList(s.path(listFile), func(digest string, size int64) error {
		if _, err := to.Take(ctx, s.blobs, digest); err != nil {
			return err
		}
		return taken(size)
	})
	return errors.Join(err, to.Sync())
}

// copyFile copies a file of the backup and compares the copy with the manifest.
func (s *Source) copyFile(ctx context.Context, name, to string) error {
	from, err := os.Open(s.path(name))
	if err != nil {
		return err
	}
	defer func() { _ = from.Close() }() // it is only read
	f, err := os.Create(to)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, &reader{ctx, from})
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", to, err)
	}
	got, err := fileOf(ctx, to)
	if err == nil && got != s.Manifest.Files[name] {
		err = fmt.Errorf("%w: %s is not as the manifest says", ErrDamaged, s.path(name))
	}
	return errors.Join(err, syncPath(filepath.Dir(to)))
}

// complete checks that the restored store is the one of the manifest and has its blobs. It calls
// each for each of them.
func (s *Source) complete(ctx context.Context, address string, blobs *blob.Store, each func(context.Context) error) (err error) {
	db, err := store.Open(ctx, address, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	id, err := db.ID(ctx)
	if err != nil {
		return err
	}
	if id != s.Manifest.Store {
		return fmt.Errorf("%w: the store is %s, and the manifest says %s", ErrDamaged, id, s.Manifest.Store)
	}
	lacks, err := findMissing(ctx, db, blobs, each)
	if err == nil && lacks != nil {
		err = fmt.Errorf("%w: blob %s of %s is missing", ErrDamaged, lacks.Digest, lacks.For)
	}
	return err
}

// Commit gives a restored directory its name.
func (r Restored) Commit() error {
	err := os.Remove(r.name) // only if it is empty
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err == nil {
		err = os.Rename(r.Directory, r.name)
	}
	if err == nil {
		err = syncPath(filepath.Dir(r.name))
	}
	if errors.Is(err, syscall.EBUSY) {
		return fmt.Errorf("name %s: %w: other files are mounted there: restore to a directory below it (%s has what was restored)", r.name, ErrPlace, r.Directory)
	}
	if err != nil {
		return fmt.Errorf("name %s, which %s has: %w", r.name, strings.TrimSuffix(filepath.Base(r.Directory), "/"), err)
	}
	return nil
}
