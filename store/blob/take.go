package blob

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// List calls visit with the digest and the size in bytes of each content, by digest. It
// leaves out what was removed meanwhile. It reads no content.
func (s *Store) List(ctx context.Context, visit func(digest string, size int64) error) error {
	directories, err := os.ReadDir(s.directory)
	if err != nil {
		return fmt.Errorf("list blobs: %w", err)
	}
	for _, d := range directories {
		if !d.IsDir() || len(d.Name()) != 2 {
			continue
		}
		files, err := os.ReadDir(filepath.Join(s.directory, d.Name()))
		if err != nil {
			return fmt.Errorf("list blobs: %w", err)
		}
		for _, f := range files {
			digest := prefix + f.Name()
			if !digestForm.MatchString(digest) || f.Name()[:2] != d.Name() {
				continue
			}
			info, err := f.Info()
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err == nil {
				err = context.Cause(ctx)
			}
			if err != nil {
				return fmt.Errorf("list blobs: %w", err)
			}
			if err := visit(digest, info.Size()); err != nil {
				return err
			}
		}
	}
	return nil
}

// Take makes the content of digest in another directory also a content of this one. Where
// the file system allows it, both have the same file, by a hard link, because the files of
// contents are never written to. Otherwise the content is copied and verified. A file of
// this directory with another size than that of the other directory is replaced. taken says
// whether anything had to be done. It returns ErrNotFound if the other directory has no such
// content. The new name of a link survives loss of power only after Sync.
func (s *Store) Take(ctx context.Context, from *Store, digest string) (taken bool, err error) {
	source, err := from.Path(digest)
	if err != nil {
		return false, err
	}
	stat, err := os.Stat(source)
	if errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("take blob %s: %w", digest, ErrNotFound)
	}
	if err != nil {
		return false, fmt.Errorf("take blob %s: %w", digest, err)
	}
	target := s.path(digest)
	if there, err := os.Stat(target); err == nil && there.Size() == stat.Size() {
		return false, nil
	}
	if err := makeDirectory(filepath.Dir(target)); err != nil {
		return false, fmt.Errorf("take blob %s: %w", digest, err)
	}
	err = os.Link(source, target)
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, fs.ErrNotExist):
		return false, fmt.Errorf("take blob %s: %w", digest, ErrNotFound) // it was removed just now
	case !isUnlinkable(err) && !errors.Is(err, fs.ErrExist):
		return false, fmt.Errorf("take blob %s: %w", digest, err)
	}
	content, _, err := from.Open(ctx, digest)
	if err != nil {
		return false, fmt.Errorf("take blob: %w", err)
	}
	_, err = s.PutFrom(ctx, content)
	if err := errors.Join(err, content.Close()); err != nil {
		return false, fmt.Errorf("take blob %s: %w", digest, err)
	}
	return true, nil
}

// isUnlinkable reports whether err means that a file can't have another name in a directory:
// on another file system, on one without hard links, if it has too many, or if it is another
// user's.
func isUnlinkable(err error) bool {
	for _, one := range []error{syscall.EXDEV, syscall.EPERM, syscall.EMLINK, syscall.ENOTSUP, syscall.ENOSYS, syscall.EACCES} {
		if errors.Is(err, one) {
			return true
		}
	}
	return false
}

// Sync makes all names of contents survive loss of power.
func (s *Store) Sync() error {
	entries, err := os.ReadDir(s.directory)
	if err != nil {
		return fmt.Errorf("sync blobs: %w", err)
	}
	for _, e := range entries {
		if !e.IsDir() || len(e.Name()) != 2 {
			continue
		}
		if err := syncDirectory(filepath.Join(s.directory, e.Name())); err != nil {
			return err
		}
	}
	return syncDirectory(s.directory)
}
