// Package blob keeps content in a directory, under the name of its SHA-256: weights,
// optimizer moments, batches, snapshots of tasks, archived histories.
//
// A digest is "sha256:<64 hex digits>". Its file is <directory>/<first two digits>/<64
// digits>. The file is the plain content without a header, so that any tool can read and
// check it.
//
// Guarantees:
//
//   - Content that Put has stored survives kill -9 and loss of power: the file is synced
//     before it gets its name, and its directory afterwards.
//   - A named file is always complete, even while content is being written.
//   - Get never returns bytes that do not match the digest. The stream that Open returns
//     ends with an error if they do not match.
//   - Any number of processes may put the same content at the same time.
//   - A damaged file is replaced by the next Put of its content. A person may also put a
//     copy back under its name.
//   - A full disk returns ErrFull and changes nothing.
//
// Next to a content there may be files, named <64 digits>.<name>, that are derived from
// it and can be made again. They are removed with it, and this package never reads them.
//
// The package is not a cache: it deletes only content that Remove names, and the remains
// of interrupted writes. The directory must be on a file system with hard links.
package blob

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/fulgurite/fulgurite/internal/metrics"
	"github.com/fulgurite/fulgurite/record"
)

const (
	prefix = "sha256:"
	// temporary begins the names of files being written.
	temporary = ".put-"
	// stale is the age, by last modification, from which a temporary file is assumed to
	// be abandoned.
	stale = time.Hour
	// chunk is how many bytes are copied at a time.
	chunk = 1 << 18
)

// Errors of this package.
var (
	// ErrNotFound is record.ErrNotFound, too, and tells that it is a blob that is not there.
	ErrNotFound error = notFound{}
	// ErrCorrupt means that the content of a file does not match its name.
	ErrCorrupt = errors.New("blob is corrupt")
	// ErrFull means that the directory has no room for a blob. No part of the blob is
	// kept.
	ErrFull = errors.New("no room for the blob")
	// ErrDigest says that a string is no digest.
	ErrDigest = errors.New("bad digest")
)

// notFound is the type of ErrNotFound.
type notFound struct{}

func (notFound) Error() string { return record.ErrNotFound.Error() }

// Is reports that a blob that is not there is a thing that is not there.
func (notFound) Is(target error) bool { return target == record.ErrNotFound }

var digestForm = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

// Store is a directory of blobs. It is safe for concurrent use, by many
// processes at once. Make one with Open.
type Store struct {
	// Metrics counts what is read and written. Set it before the first use.
	Metrics *metrics.Metrics

	directory string
}

// Open creates the directory if it does not exist. It removes temporary files that were
// last written more than an hour ago, and files next to contents that are gone.
func Open(directory string) (*Store, error) {
	directory, err := filepath.Abs(directory)
	if err != nil {
		return nil, fmt.Errorf("open blobs %s: %w", directory, err)
	}
	if err := makeDirectory(directory); err != nil {
		return nil, fmt.Errorf("open blobs %s: %w", directory, err)
	}
	s := &Store{directory: directory}
	err = errors.Join(s.Sweep(), sweepBeside(directory))
	if err != nil && !errors.Is(err, fs.ErrPermission) && !errors.Is(err, syscall.EROFS) { // who can write sweeps
		return nil, fmt.Errorf("open blobs %s: %w", directory, err)
	}
	return s, nil
}

// Sweep removes temporary files that were last written more than an hour ago: their writers were
// killed.
func (s *Store) Sweep() error { return sweep(s.directory, time.Now().Add(-stale)) }

// Put keeps data and returns its digest.
func (s *Store) Put(ctx context.Context, data []byte) (string, error) {
	sum := sha256.Sum256(data)
	digest := prefix + hex.EncodeToString(sum[:])
	if s.intact(ctx, digest) {
		return digest, s.syncName(digest)
	}
	return s.PutFrom(ctx, bytes.NewReader(data))
}

// PutFrom stores what r returns until its end, and returns the digest. If r fails,
// nothing is stored. If the disk is full, nothing is stored either, and the error is
// ErrFull; the call may be repeated when there is space.
func (s *Store) PutFrom(ctx context.Context, r io.Reader) (string, error) {
	return s.PutRecorded(ctx, r, func(_ string, publish func() error) error { return publish() })
}

// PutRecorded is like PutFrom, and leaves to record when the content gets its name: record is
// called when all of the content is on the disk, with its digest, and calls publish. So a writer
// can note a file before there is one of that name, and let there be one only within the
// transaction that puts it on record. publish may be called more than once. If record does not
// call it, nothing is stored. An error of record is returned.
func (s *Store) PutRecorded(ctx context.Context, r io.Reader, record func(digest string, publish func() error) error) (string, error) {
	digest, err := s.put(ctx, r, record)
	if isFull(err) {
		return "", fmt.Errorf("put blob: %w: free space, or raise the quota, in %s: %w", ErrFull, s.directory, err)
	}
	if err != nil {
		return "", fmt.Errorf("put blob: %w", err)
	}
	return digest, nil
}

// Get returns the content of digest after verifying it. It returns ErrNotFound if there
// is none, and ErrCorrupt, with the file's name, if the content does not match.
func (s *Store) Get(ctx context.Context, digest string) ([]byte, error) {
	path, err := s.Path(digest)
	if err != nil {
		return nil, err
	}
	if err := context.Cause(ctx); err != nil {
		return nil, fmt.Errorf("get blob %s: %w", digest, err)
	}
	data, err := os.ReadFile(path)
	s.Metrics.BlobRead(int64(len(data)))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("get blob %s: %w", digest, ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("get blob %s: %w", digest, err)
	}
	if sum := sha256.Sum256(data); prefix+hex.EncodeToString(sum[:]) != digest {
		return nil, fmt.Errorf("get blob %s: %w: file %s has other content", digest, ErrCorrupt, path)
	}
	return data, nil
}

// Has reports whether there is a file of that digest, without reading it.
func (s *Store) Has(_ context.Context, digest string) (bool, error) {
	path, err := s.Path(digest)
	if err != nil {
		return false, err
	}
	_, err = os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look for blob %s: %w", digest, err)
	}
	return true, nil
}

// Size returns how many bytes the content of digest has, without reading it, or ErrNotFound.
func (s *Store) Size(digest string) (int64, error) {
	path, err := s.Path(digest)
	if err != nil {
		return 0, err
	}
	stat, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, fmt.Errorf("look for blob %s: %w", digest, ErrNotFound)
	}
	if err != nil {
		return 0, fmt.Errorf("look for blob %s: %w", digest, err)
	}
	return stat.Size(), nil
}

// Path returns the absolute path of the file that holds digest, or would hold it. The
// file must not be written to.
func (s *Store) Path(digest string) (string, error) {
	if !digestForm.MatchString(digest) {
		return "", fmt.Errorf("%w %q: want sha256: and 64 hex digits", ErrDigest, digest)
	}
	return s.path(digest), nil
}

// path is like Path, for a digest that is known to be valid.
func (s *Store) path(digest string) string {
	name := strings.TrimPrefix(digest, prefix)
	return filepath.Join(s.directory, name[:2], name)
}

// Open returns the content of digest as a stream, and its size in bytes. The content is
// verified only when Read reaches its end: if it does not match, that Read returns
// ErrCorrupt with the file's name instead of io.EOF. If there is no file, Open returns
// ErrNotFound. The caller has to close the stream.
func (s *Store) Open(ctx context.Context, digest string) (content io.ReadCloser, size int64, err error) {
	path, err := s.Path(digest)
	if err != nil {
		return nil, 0, err
	}
	if err := context.Cause(ctx); err != nil {
		return nil, 0, fmt.Errorf("open blob %s: %w", digest, err)
	}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, fmt.Errorf("open blob %s: %w", digest, ErrNotFound)
	}
	if err != nil {
		return nil, 0, fmt.Errorf("open blob %s: %w", digest, err)
	}
	stat, err := f.Stat()
	if err != nil {
		return nil, 0, fmt.Errorf("open blob %s: %w", digest, errors.Join(err, f.Close()))
	}
	return &verified{ctx: ctx, file: f, sum: sha256.New(), digest: digest, metrics: s.Metrics}, stat.Size(), nil
}

// verified is a file whose content is hashed while it is read.
type verified struct {
	ctx     context.Context
	file    *os.File
	sum     hash.Hash
	digest  string
	metrics *metrics.Metrics
}

// Read implements io.Reader.
func (v *verified) Read(p []byte) (int, error) {
	if err := context.Cause(v.ctx); err != nil {
		return 0, fmt.Errorf("read blob %s: %w", v.digest, err)
	}
	n, err := v.file.Read(p)
	_, _ = v.sum.Write(p[:n]) // a hash takes everything
	v.metrics.BlobRead(int64(n))
	if err == nil {
		return n, nil
	}
	if !errors.Is(err, io.EOF) {
		return n, fmt.Errorf("read blob %s: %w", v.digest, err)
	}
	if prefix+hex.EncodeToString(v.sum.Sum(nil)) != v.digest {
		return n, fmt.Errorf("read blob %s: %w: file %s has other content", v.digest, ErrCorrupt, v.file.Name())
	}
	return n, io.EOF
}

// Close implements io.Closer.
func (v *verified) Close() error { return v.file.Close() }

// intact reports whether digest's content is there already.
func (s *Store) intact(ctx context.Context, digest string) bool {
	content, _, err := s.Open(ctx, digest)
	if err != nil {
		return false
	}
	defer func() { _ = content.Close() }() // only read
	_, err = io.Copy(io.Discard, content)
	return err == nil
}

var besideForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9.-]*$`)

// Beside returns the path of a file that is derived from the content of digest and can be
// made again. The path is empty if digest or name is invalid. name has only letters,
// digits, '-' and '.'. Such files are removed with the content by Remove, or by Open if
// their content is gone.
func (s *Store) Beside(digest, name string) string {
	if !digestForm.MatchString(digest) || !besideForm.MatchString(name) {
		return ""
	}
	return s.path(digest) + "." + name
}

// sweepBeside removes files next to contents that are gone: such a file was made while
// its content was removed.
func sweepBeside(directory string) error {
	entries, err := os.ReadDir(directory)
	if err != nil {
		return fmt.Errorf("look for remains: %w", err)
	}
	for _, e := range entries {
		if !e.IsDir() || len(e.Name()) != 2 {
			continue
		}
		in := filepath.Join(directory, e.Name())
		err := removeBeside(in, func(content string) bool {
			_, err := os.Stat(filepath.Join(in, content))
			return errors.Is(err, fs.ErrNotExist)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// removeBeside removes the files in a directory that belong to contents for which gone
// returns true.
func removeBeside(directory string, gone func(content string) bool) error {
	entries, err := os.ReadDir(directory)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look for files beside contents: %w", err)
	}
	for _, e := range entries {
		content, _, beside := strings.Cut(e.Name(), ".")
		if !beside || !digestForm.MatchString(prefix+content) || !gone(content) {
			continue
		}
		if err := os.Remove(filepath.Join(directory, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove %s: %w", e.Name(), err)
		}
	}
	return nil
}
