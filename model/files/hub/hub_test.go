package hub_test

import (
	"bytes"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/model/files/hub"
)

const (
	commit = "0123456789abcdef0123456789abcdef01234567"
	token  = "hf_secret"
)

// server is a hub with one model: a small file, and a large one that another host has.
type server struct {
	small, large []byte
	// cut is after how many bytes of an answer the connection ends; 0 is never.
	cut int
	// ignoreRange sends large files from their beginning, whatever is asked for.
	ignoreRange bool
	broken      atomic.Int32 // answers that are 503
	names       []string     // of additional files
	sha256      string       // reported for the large file; empty for its real digest
	asked       atomic.Int32 // how often for the large file
	resumed     atomic.Int32
	leaked      atomic.Bool // the token went to the other host
}

func newServer() *server {
	return &server{small: []byte(`{"model_type": "llama"}`), large: bytes.Repeat([]byte("weights "), 40_000)}
}

// start returns the hub as a client sees it.
func (s *server) start(t *testing.T) *hub.Hub {
	t.Helper()
	files := httptest.NewServer(http.HandlerFunc(s.serveLarge))
	t.Cleanup(files.Close)
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.broken.Add(-1) >= 0 {
			http.Error(w, "later", http.StatusServiceUnavailable)
			return
		}
		if r.Header.Get("Authorization") != "Bearer "+token {
			http.Error(w, "who are you?", http.StatusUnauthorized)
			return
		}
		switch r.URL.Path {
		case "/api/models/acme/tiny/revision/main", "/api/models/acme/tiny/revision/refs/pr/1":
			if r.URL.Query().Get("blobs") == "true" { // without this parameter, the hub sends no digests
				s.serveCommit(w)
			}
		case "/acme/tiny/resolve/" + commit + "/config.json":
			_, _ = w.Write(s.small)
		case "/acme/tiny/resolve/" + commit + "/model.safetensors":
			// Redirect to a host with another name, as the hub does.
			http.Redirect(w, r, strings.Replace(files.URL, "127.0.0.1", "localhost", 1)+"/blob", http.StatusFound)
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(api.Close)
	return &hub.Hub{Endpoint: api.URL, Token: token, Client: api.Client(), Wait: time.Millisecond}
}

func (s *server) serveCommit(w http.ResponseWriter) {
	blob := sha1.Sum(append(fmt.Appendf(nil, "blob %d\x00", len(s.small)), s.small...))
	large := sha256.Sum256(s.large)
	if s.sha256 == "" {
		s.sha256 = hex.EncodeToString(large[:])
	}
	siblings := []any{
		map[string]any{"rfilename": "config.json", "size": len(s.small), "blobId": hex.EncodeToString(blob[:])},
		map[string]any{
			"rfilename": "model.safetensors", "size": len(s.large), "blobId": strings.Repeat("0", 40),
			"lfs": map[string]any{"sha256": s.sha256, "size": len(s.large), "pointerSize": 134},
		},
	}
	for _, name := range s.names {
		siblings = append(siblings, map[string]any{"rfilename": name, "size": 1})
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"id": "acme/tiny", "sha": commit, "siblings": siblings})
}

func (s *server) serveLarge(w http.ResponseWriter, r *http.Request) {
	s.asked.Add(1)
	if r.Header.Get("Authorization") != "" {
		s.leaked.Store(true)
	}
	from := 0
	if n, err := fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-", &from); n == 1 && err == nil && !s.ignoreRange {
		s.resumed.Add(1)
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, len(s.large)-1, len(s.large)))
		w.Header().Set("Content-Length", fmt.Sprint(len(s.large)-from))
		w.WriteHeader(http.StatusPartialContent)
	} else {
		from = 0
		w.Header().Set("Content-Length", fmt.Sprint(len(s.large)))
	}
	body := s.large[from:]
	if s.cut > 0 && s.cut < len(body) {
		_, _ = w.Write(body[:s.cut])
		panic(http.ErrAbortHandler)
	}
	_, _ = w.Write(body)
}

func download(t *testing.T, h *hub.Hub, dir string) error {
	t.Helper()
	name, err := hub.ParseName("acme/tiny")
	require.NoError(t, err)
	c, err := h.Commit(t.Context(), name)
	if err != nil {
		return err
	}
	for _, f := range c.Files {
		last := int64(0)
		if err := h.Download(t.Context(), c, f, dir, func(done int64) { last = done }); err != nil {
			return err
		}
		require.Equal(t, f.Size, last, f.Path)
	}
	return nil
}

func requireFiles(t *testing.T, s *server, dir string) {
	t.Helper()
	for name, want := range map[string][]byte{"config.json": s.small, "model.safetensors": s.large} {
		got, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 2, "nothing partial is left")
	require.False(t, s.leaked.Load(), "the token stays with the hub")
}

func TestAModelIsDownloadedOnce(t *testing.T) {
	t.Parallel()
	s, dir := newServer(), t.TempDir()
	h := s.start(t)
	require.NoError(t, download(t, h, dir))
	requireFiles(t, s, dir)
	require.NoError(t, download(t, h, dir))
	require.Equal(t, int32(1), s.asked.Load())
}

func TestWhatWasCutOffGoesOn(t *testing.T) {
	t.Parallel()
	s, dir := newServer(), t.TempDir()
	s.cut = 100_000
	s.broken.Store(1)
	h := s.start(t)
	require.Error(t, download(t, h, dir), "the list of files is asked for once")
	require.NoError(t, download(t, h, dir))
	requireFiles(t, s, dir)
	require.Equal(t, int32(3), s.resumed.Load())
}

func TestTheNextDownloadGoesOnWhereTheLastOneEnded(t *testing.T) {
	t.Parallel()
	for name, ignore := range map[string]bool{"with ranges": false, "without": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, dir := newServer(), t.TempDir()
			s.ignoreRange = ignore
			require.NoError(t, os.WriteFile(filepath.Join(dir, "model.safetensors.part"), s.large[:200_000], 0o600))
			require.NoError(t, download(t, s.start(t), dir))
			requireFiles(t, s, dir)
		})
	}
}

func TestPartsOfSomethingElseAreNotKept(t *testing.T) {
	t.Parallel()
	s, dir := newServer(), t.TempDir()
	part := filepath.Join(dir, "model.safetensors.part")
	h := s.start(t)
	require.NoError(t, os.WriteFile(part, make([]byte, len(s.large)+1), 0o600)) // too long
	require.NoError(t, download(t, h, dir))
	require.NoError(t, os.Remove(filepath.Join(dir, "model.safetensors")))
	require.NoError(t, os.WriteFile(part, make([]byte, 1000), 0o600)) // other bytes
	require.ErrorContains(t, download(t, h, dir), "what came is deleted")
	require.NoError(t, download(t, h, dir))
	requireFiles(t, s, dir)
}

func TestWrongDigestsAreRefused(t *testing.T) {
	t.Parallel()
	s, dir := newServer(), t.TempDir()
	s.sha256 = strings.Repeat("0", 64)
	err := download(t, s.start(t), dir)
	require.ErrorContains(t, err, "download model.safetensors of acme/tiny@0123456789ab")
	require.ErrorContains(t, err, "the hub says 0000")
	require.NoFileExists(t, filepath.Join(dir, "model.safetensors"))
}

func TestAServerThatGivesNothingIsGivenUp(t *testing.T) {
	t.Parallel()
	s, dir := newServer(), t.TempDir()
	h := s.start(t)
	name, err := hub.ParseName("acme/tiny@refs/pr/1")
	require.NoError(t, err)
	c, err := h.Commit(t.Context(), name)
	require.NoError(t, err)
	s.broken.Store(1000)
	err = h.Download(t.Context(), c, c.Files[1], dir, func(int64) {})
	require.ErrorContains(t, err, "5 attempts got nothing, 0 of 320000 bytes are there")
	require.ErrorContains(t, err, "503")
}

func TestWhatTheHubMayNotSay(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"../secret", "/etc/passwd", "a/../../b", "", ".", `a\b`} {
		s := newServer()
		s.names = []string{name}
		require.ErrorIs(t, download(t, s.start(t), t.TempDir()), hub.ErrRefused, name)
	}
	s := newServer()
	s.names = []string{"no-digest"}
	require.ErrorContains(t, download(t, s.start(t), t.TempDir()), "names no digest")
	h := newServer().start(t)
	h.Token = ""
	require.ErrorContains(t, download(t, h, t.TempDir()), "HF_TOKEN")
	_, err := newServer().start(t).Commit(t.Context(), hub.Name{Repository: "acme/absent", Revision: "main"})
	require.ErrorIs(t, err, hub.ErrRefused)
	require.ErrorContains(t, err, "it has no such model, revision or file")
}

func TestNames(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]hub.Name{
		"a/b":                      {Repository: "a/b", Revision: "main"},
		"a/B-1.5@v2":               {Repository: "a/B-1.5", Revision: "v2"},
		"a/b@refs/pr/1:x y/m.gguf": {Repository: "a/b", Revision: "refs/pr/1", File: "x y/m.gguf"},
		"a/b_c:model.Q4_K_M.gguf":  {Repository: "a/b_c", Revision: "main", File: "model.Q4_K_M.gguf"},
	} {
		got, err := hub.ParseName(text)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	for _, text := range []string{"", "a", "a/b/c", "a/b@", "a/b:", "a b/c", "https://huggingface.co/a/b"} {
		_, err := hub.ParseName(text)
		require.Error(t, err, text)
	}
}
