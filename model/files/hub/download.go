package hub

import (
	"context"
	"crypto/sha1" // git names small files by it
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// part is the suffix of the name of an incomplete file.
const part = ".part"

// maxFailures is how many attempts in a row may get nothing.
const maxFailures = 5

// Download downloads a file of a commit into dir, unless it exists there. It calls
// progress with the number of bytes that are present so far.
func (h *Hub) Download(ctx context.Context, c Commit, f File, dir string, progress func(done int64)) error {
	err := h.download(ctx, c, f, filepath.Join(dir, filepath.FromSlash(f.Path)), progress)
	if err != nil {
		return fmt.Errorf("download %s of %s@%.12s from %s: %w", f.Path, c.Repository, c.Hash, h.Endpoint, err)
	}
	return nil
}

func (h *Hub) download(ctx context.Context, c Commit, f File, name string, progress func(done int64)) error {
	want, sum, err := f.digest()
	if err != nil {
		return err
	}
	if stat, err := os.Stat(name); err == nil && stat.Size() == f.Size {
		progress(f.Size)
		return nil // a file gets its name only after its digest was checked
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	out, err := os.OpenFile(name+part, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return err
	}
	err = h.fill(ctx, c, f, out, progress)
	var got string
	if err == nil {
		got, err = digestOf(out, sum)
	}
	if err = errors.Join(err, out.Close()); err != nil {
		return err
	}
	if got != want {
		return errors.Join(fmt.Errorf("its digest is %s, the hub says %s: what came is deleted, try again", got, want), os.Remove(name+part))
	}
	return os.Rename(name+part, name)
}

// digest returns the digest that the hub gives for f, and a hash that computes it.
func (f File) digest() (string, hash.Hash, error) {
	switch {
	case len(f.SHA256) == 64:
		return f.SHA256, sha256.New(), nil
	case len(f.Blob) == 40:
		sum := sha1.New()
		fmt.Fprintf(sum, "blob %d\x00", f.Size)
		return f.Blob, sum, nil
	}
	return "", nil, fmt.Errorf("%w: it names no digest", ErrRefused)
}

func digestOf(f *os.File, sum hash.Hash) (string, error) {
	if err := f.Sync(); err != nil {
		return "", err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return "", err
	}
	if _, err := io.Copy(sum, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// fill appends to out until it has the size of f.
func (h *Hub) fill(ctx context.Context, c Commit, f File, out *os.File, progress func(done int64)) error {
	at, err := out.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	if at > f.Size { // of another commit
		if at, err = 0, errors.Join(out.Truncate(0), rewind(out)); err != nil {
			return err
		}
	}
	for failures := 0; at < f.Size; {
		before := at
		progress(at)
		at, err = h.more(ctx, c, f, out, at, progress)
		var path *fs.PathError
		switch {
		case errors.Is(err, ErrRefused), errors.As(err, &path), ctx.Err() != nil:
			return err
		case at > before:
			failures = 0
			continue
		case err == nil:
			err = io.ErrUnexpectedEOF
		}
		if failures++; failures == maxFailures {
			return fmt.Errorf("%d attempts got nothing, %d of %d bytes are there for the next download: %w", failures, at, f.Size, err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(h.Wait):
		}
	}
	progress(at)
	return nil
}

func rewind(f *os.File) error {
	_, err := f.Seek(0, io.SeekStart)
	return err
}

// more makes one attempt to download the rest, and returns how many bytes out then has.
func (h *Hub) more(ctx context.Context, c Commit, f File, out *os.File, at int64, progress func(done int64)) (int64, error) {
	response, err := h.get(ctx, "/"+c.Repository+"/resolve/"+c.Hash+"/"+escaped(f.Path), at)
	if err != nil {
		return at, err
	}
	defer func() { _ = response.Body.Close() }()        // only read
	if response.StatusCode == http.StatusOK && at > 0 { // the server ignored the range and sends the whole file
		if at, err = 0, errors.Join(out.Truncate(0), rewind(out)); err != nil {
			return at, err
		}
	} else if from := response.Header.Get("Content-Range"); at > 0 && !strings.HasPrefix(from, fmt.Sprintf("bytes %d-", at)) {
		return at, fmt.Errorf("%w: asked from byte %d on it sends %q", ErrRefused, at, from)
	}
	w := &written{f: out, at: at, progress: progress}
	_, err = io.Copy(w, io.LimitReader(response.Body, f.Size-at))
	return w.at, err
}

// written is an io.Writer that counts the bytes that a file receives.
type written struct {
	f        *os.File
	at       int64
	progress func(done int64)
}

func (w *written) Write(b []byte) (int, error) {
	n, err := w.f.Write(b)
	w.at += int64(n)
	w.progress(w.at)
	return n, err
}

func escaped(path string) string {
	parts := strings.Split(path, "/")
	for i := range parts {
		parts[i] = url.PathEscape(parts[i])
	}
	return strings.Join(parts, "/")
}
