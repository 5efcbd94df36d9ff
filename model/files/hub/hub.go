// Package hub downloads files of a model from the Hugging Face hub, or from a server with
// the same interface.
//
// It keeps no cache and does not know what the files contain; package convert makes a
// model from them. It asks the hub's API for the commit of a revision and for the size
// and digest of each file, and downloads the files of that commit.
//
// Guarantees: an interrupted download of a file continues where it stopped, both within
// one download and in the next one. A file gets its name only after its digest was
// checked. The token is sent only to the hub, not to the host to which the hub redirects.
package hub

import (
	"cmp"
	"context"
	"crypto/sha1" // git names small files by it
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// ErrRefused is wrapped when the hub refuses a request and would refuse it again.
var ErrRefused = errors.New("the hub refuses")

const publicHub = "https://huggingface.co"

// Hub is a server of models.
type Hub struct {
	Endpoint string // such as https://huggingface.co
	Token    string // empty for public models
	Client   *http.Client
	// Wait is the pause after an attempt that received nothing.
	Wait time.Duration
}

// FromEnvironment returns the hub that HF_ENDPOINT names, or the public hub if it is not
// set, with the token in HF_TOKEN.
func FromEnvironment() *Hub {
	return &Hub{
		Endpoint: strings.TrimRight(cmp.Or(os.Getenv("HF_ENDPOINT"), publicHub), "/"),
		Token:    os.Getenv("HF_TOKEN"), Client: http.DefaultClient, Wait: 2 * time.Second,
	}
}

// Name is a model's name on the hub.
type Name struct {
	Repository string // OWNER/NAME
	Revision   string // a branch, tag or commit
	File       string // one file; empty for all that a model needs
}

var nameForm = regexp.MustCompile(`^([\w.-]+/[\w.-]+?)(?:@([\w./-]+?))?(?::([\w./ -]+))?$`)

// ParseName reads OWNER/NAME[@REVISION][:FILE].
func ParseName(text string) (Name, error) {
	m := nameForm.FindStringSubmatch(text)
	if m == nil {
		return Name{}, fmt.Errorf("%q is not OWNER/NAME[@REVISION][:FILE]", text)
	}
	return Name{m[1], cmp.Or(m[2], "main"), m[3]}, nil
}

// File is a file of a commit.
type File struct {
	Path   string // with slashes
	Size   int64
	SHA256 string // for a large file, in hexadecimal
	Blob   string // for a small file: git's SHA-1, in hexadecimal
}

// Commit is one state of a model's repository.
type Commit struct {
	Repository, Hash string
	Files            []File
}

// Commit asks the hub for the commit of a revision and its files.
func (h *Hub) Commit(ctx context.Context, n Name) (Commit, error) {
	c, err := h.commit(ctx, n)
	if err != nil {
		return Commit{}, fmt.Errorf("read %s@%s from %s: %w", n.Repository, n.Revision, h.Endpoint, err)
	}
	return c, nil
}

func (h *Hub) commit(ctx context.Context, n Name) (Commit, error) {
	response, err := h.get(ctx, "/api/models/"+n.Repository+"/revision/"+url.PathEscape(n.Revision)+"?blobs=true", 0)
	if err != nil {
		return Commit{}, err
	}
	defer func() { _ = response.Body.Close() }() // only read
	var reply struct {
		SHA      string `json:"sha"`
		Siblings []struct {
			Name string `json:"rfilename"`
			Size int64  `json:"size"`
			Blob string `json:"blobId"`
			LFS  struct {
				SHA256 string `json:"sha256"`
			} `json:"lfs"`
		} `json:"siblings"`
	}
	const maxText = 64 << 20
	if err := json.NewDecoder(io.LimitReader(response.Body, maxText)).Decode(&reply); err != nil {
		return Commit{}, fmt.Errorf("its answer: %w", err)
	}
	if !regexp.MustCompile(`^[0-9a-f]{40}$`).MatchString(reply.SHA) {
		return Commit{}, fmt.Errorf("%w: its answer names the commit %q", ErrRefused, reply.SHA)
	}
	c := Commit{Repository: n.Repository, Hash: reply.SHA}
	for _, s := range reply.Siblings {
		// A name comes from elsewhere and must not reach out of the directory.
		if s.Name != path.Clean(s.Name) || !filepath.IsLocal(filepath.FromSlash(s.Name)) || strings.ContainsRune(s.Name, '\\') {
			return Commit{}, fmt.Errorf("%w: it has a file %q", ErrRefused, s.Name)
		}
		c.Files = append(c.Files, File{s.Name, s.Size, s.LFS.SHA256, s.Blob})
	}
	return c, nil
}

// get asks for a path, from a byte on.
func (h *Hub) get(ctx context.Context, at string, from int64) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, h.Endpoint+at, http.NoBody)
	if err != nil {
		return nil, err
	}
	if h.Token != "" {
		request.Header.Set("Authorization", "Bearer "+h.Token) // net/http drops it on a redirect to another host
	}
	request.Header.Set("Accept-Encoding", "identity")
	if from > 0 {
		request.Header.Set("Range", fmt.Sprintf("bytes=%d-", from))
	}
	response, err := h.Client.Do(request)
	if err != nil {
		return nil, err
	}
	switch code := response.StatusCode; {
	case code == http.StatusOK, code == http.StatusPartialContent:
		return response, nil
	case code == http.StatusUnauthorized || code == http.StatusForbidden:
		err = fmt.Errorf("%w: %s: there is no such model, or HF_TOKEN needs a token that may read it", ErrRefused, response.Status)
	case code == http.StatusNotFound:
		err = fmt.Errorf("%w: %s: it has no such model, revision or file", ErrRefused, response.Status)
	case code == http.StatusTooManyRequests || code >= http.StatusInternalServerError:
		err = errors.New(response.Status)
	default:
		err = fmt.Errorf("%w: %s", ErrRefused, response.Status)
	}
	return nil, errors.Join(err, response.Body.Close())
}

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
