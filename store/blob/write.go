package blob

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// put writes a temporary file. When all of it is on the disk, it calls record with a function
// that gives the file its name.
func (s *Store) put(ctx context.Context, r io.Reader, record func(digest string, publish func() error) error) (digest string, err error) {
	f, err := os.CreateTemp(s.directory, temporary+"*")
	if err != nil {
		return "", fmt.Errorf("create temporary file: %w", err)
	}
	defer func() {
		// The temporary name is removed in either case. If it stays, a later sweep
		// removes it.
		err = errors.Join(err, f.Close(), os.Remove(f.Name()))
	}()
	sum := sha256.New()
	size, err := io.CopyBuffer(io.MultiWriter(f, sum), &reader{ctx, r}, make([]byte, chunk))
	if err != nil {
		return "", fmt.Errorf("write %s: %w", f.Name(), err)
	}
	if err := f.Chmod(0o444); err != nil {
		return "", fmt.Errorf("protect %s: %w", f.Name(), err)
	}
	if err := f.Sync(); err != nil {
		return "", fmt.Errorf("sync %s: %w", f.Name(), err)
	}
	digest = prefix + hex.EncodeToString(sum.Sum(nil))
	known := s.intact(ctx, digest) // before record, because others may wait in it
	var published atomic.Bool      // record may return while another goroutine still publishes
	err = record(digest, func() error {
		err := s.name(ctx, f.Name(), digest, known)
		if err == nil {
			published.Store(true)
		}
		return err
	})
	if published.Load() {
		s.Metrics.BlobWritten(size)
	}
	return digest, err
}

// isFull reports whether err means that there is no room: on the disk, within a
// quota, or within a limit on the size of files.
func isFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG)
}

// name gives a finished file the name of its content. known says that a file of that name was
// seen to be intact.
func (s *Store) name(ctx context.Context, file, digest string, known bool) error {
	target := s.path(digest)
	if err := makeDirectory(filepath.Dir(target)); err != nil {
		return err
	}
	err := os.Link(file, target)
	if errors.Is(err, fs.ErrExist) && !known && !s.intact(ctx, digest) {
		err = s.replace(file, target)
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("name %s: %w", target, err)
	}
	return s.syncName(digest)
}

// replace replaces a damaged file by a good one. The file also keeps its temporary name,
// which put removes.
func (s *Store) replace(file, target string) error {
	second := file + "-whole"
	if err := os.Link(file, second); err != nil {
		return err
	}
	return os.Rename(second, target)
}

// Remove deletes the files next to the content of digest, and then the content. It is no
// error if the content does not exist. Processes that have the content or such a file
// open may continue to read. The caller has to know that the content is not needed.
func (s *Store) Remove(_ context.Context, digest string) error {
	path, err := s.Path(digest)
	if err != nil {
		return err
	}
	if err := removeBeside(filepath.Dir(path), func(content string) bool { return content == filepath.Base(path) }); err != nil {
		return fmt.Errorf("remove blob %s: %w", digest, err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove blob %s: %w", digest, err)
	}
	return nil
}

// syncName makes sure that digest's name and its directory survive loss of power,
// whichever process created them.
func (s *Store) syncName(digest string) error {
	if err := syncDirectory(filepath.Dir(s.path(digest))); err != nil {
		return err
	}
	return syncDirectory(s.directory)
}

// makeDirectory creates a directory, and those above it, so that they survive loss of
// power.
func makeDirectory(path string) error {
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	if err := makeDirectory(filepath.Dir(path)); err != nil {
		return err
	}
	if err := os.Mkdir(path, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("make directory: %w", err)
	}
	return syncDirectory(filepath.Dir(path))
}

func syncDirectory(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("open directory: %w", err)
	}
	if err := d.Sync(); err != nil {
		return errors.Join(fmt.Errorf("sync directory %s: %w", path, err), d.Close())
	}
	return d.Close()
}

// sweep removes temporary files that were last written before a time.
func sweep(directory string, before time.Time) error {
	entries, err := os.ReadDir(directory)
	if err != nil {
		return fmt.Errorf("look for remains: %w", err)
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), temporary) {
			continue
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue // its writer has just finished
		}
		if err != nil {
			return fmt.Errorf("look at remains: %w", err)
		}
		if !info.ModTime().Before(before) {
			continue
		}
		if err := os.Remove(filepath.Join(directory, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove remains: %w", err)
		}
	}
	return nil
}

// reader is an io.Reader that fails when its context ends, so that a copy ends, too.
type reader struct {
	ctx context.Context
	io.Reader
}

func (r *reader) Read(p []byte) (int, error) {
	if err := context.Cause(r.ctx); err != nil {
		return 0, err
	}
	return r.Reader.Read(p)
}

// ownerFile has the id of the store whose blobs a directory keeps.
const ownerFile = "store"

// Owner returns the id of the store whose blobs this directory keeps, "" if none has
// claimed it.
func (s *Store) Owner() (string, error) {
	text, err := os.ReadFile(filepath.Join(s.directory, ownerFile))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read whose blobs these are: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}

// Claim writes the id of a store into a directory that nobody has claimed. It returns
// fs.ErrExist if somebody has, at the same time perhaps.
func (s *Store) Claim(id string) (err error) {
	f, err := os.CreateTemp(s.directory, temporary+"*")
	if err != nil {
		return fmt.Errorf("claim blobs: %w", err)
	}
	defer func() { err = errors.Join(err, os.Remove(f.Name())) }()
	_, err = f.WriteString(id + "\n")
	if err = errors.Join(err, f.Chmod(0o644), f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("claim blobs: %w", err)
	}
	if err := os.Link(f.Name(), filepath.Join(s.directory, ownerFile)); err != nil {
		return fmt.Errorf("claim blobs: %w", err)
	}
	return syncDirectory(s.directory)
}

// Empty reports whether the directory has no content.
func (s *Store) Empty() (bool, error) {
	entries, err := os.ReadDir(s.directory)
	if err != nil {
		return false, fmt.Errorf("look for blobs: %w", err)
	}
	for _, e := range entries {
		if e.IsDir() && len(e.Name()) == 2 {
			return false, nil
		}
	}
	return true, nil
}

// Directory returns the absolute path of the directory.
func (s *Store) Directory() string { return s.directory }
