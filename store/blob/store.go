package blob

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/fulgurite/fulgurite/trace"
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
	// ErrNotFound is trace.ErrNotFound, too, and tells that it is a blob that is not there.
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

func (notFound) Error() string { return trace.ErrNotFound.Error() }

// Is reports that a blob that is not there is a thing that is not there.
func (notFound) Is(target error) bool { return target == trace.ErrNotFound }

var digestForm = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

// Store is a directory of blobs. It is safe for concurrent use, by many
// processes at once. Make one with Open.
type Store struct {
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
	err = errors.Join(sweep(directory, time.Now().Add(-stale)), sweepBeside(directory))
	if err != nil && !errors.Is(err, fs.ErrPermission) && !errors.Is(err, syscall.EROFS) { // who can write sweeps

		return nil, fmt.Errorf("open blobs %s: %w", directory, err)
	}
	return &Store{directory}, nil
}

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
	digest, err := s.put(ctx, r)
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
