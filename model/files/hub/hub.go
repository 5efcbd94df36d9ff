package hub

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
