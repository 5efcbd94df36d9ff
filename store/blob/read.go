package blob

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
)

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
	return &verified{ctx: ctx, file: f, sum: sha256.New(), digest: digest}, stat.Size(), nil
}

// verified is a file whose content is hashed while it is read.
type verified struct {
	ctx    context.Context
	file   *os.File
	sum    hash.Hash
	digest string
}

// Read implements io.Reader.
func (v *verified) Read(p []byte) (int, error) {
	if err := context.Cause(v.ctx); err != nil {
		return 0, fmt.Errorf("read blob %s: %w", v.digest, err)
	}
	n, err := v.file.Read(p)
	_, _ = v.sum.Write(p[:n]) // a hash takes everything
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
