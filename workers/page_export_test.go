package workers_test

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"html"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/internal/devserver"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/checkpoint"
	"github.com/fulgurite/fulgurite/model/files/hf"
	"github.com/fulgurite/fulgurite/page/access"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/store"
	"github.com/fulgurite/fulgurite/store/blob"
)

// tab is a person's browser on a page.
type tab struct {
	t    *testing.T
	url  string
	http http.Client
}

func newTab(t *testing.T, address, secret string) *tab {
	t.Helper()
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	out := &tab{t, address, http.Client{Jar: jar}}
	if secret != "" {
		code, body, _ := out.ask(http.MethodPost, "/login", url.Values{"secret": {secret}, "to": {"/"}})
		require.Equal(t, http.StatusOK, code, body)
	}
	return out
}

func (b *tab) ask(method, path string, form url.Values) (code int, body string, at *url.URL) {
	b.t.Helper()
	request, err := http.NewRequestWithContext(b.t.Context(), method, b.url+path, strings.NewReader(form.Encode()))
	require.NoError(b.t, err)
	request.Header.Set("Accept", "text/html")
	if form != nil {
		request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	reply, err := b.http.Do(request)
	require.NoError(b.t, err)
	text, err := io.ReadAll(reply.Body)
	require.NoError(b.t, errors.Join(err, reply.Body.Close()))
	return reply.StatusCode, string(text), reply.Request.URL
}

// trained puts a run with one version on record.
func trained(t *testing.T, s *store.Store, folder string) model.Weights {
	t.Helper()
	blobs, err := blob.Open(folder)
	require.NoError(t, err)
	text, err := json.Marshal(spec.Spec{Agent: spec.Agent{Command: []string{"agent"}}, Model: spec.Model{Codec: dialog.CompactName}}.WithDefaults())
	require.NoError(t, err)
	_, _, err = s.CreateRun(t.Context(), record.Run{Name: "fleet-run", WorkflowID: "fleet-run", Spec: text})
	require.NoError(t, err)
	a := model.Architecture{VocabSize: dialog.Compact().VocabSize(), HiddenSize: 8, Layers: 1, Heads: 2, KVHeads: 1, HeadDim: 4, FeedForward: 8, MaxPositions: 256, RopeTheta: 10000, NormEpsilon: 1e-6}
	c := model.Checkpoint{Architecture: a, Weights: a.Init(1)}
	manifest, weights, err := checkpoint.Save(t.Context(), blobs, c, model.Manifest{Policy: model.DefaultPolicy, Parent: -1, Codec: dialog.CompactName})
	require.NoError(t, err)
	_, _, err = s.PutVersion(t.Context(), model.Version{VersionID: model.VersionID{Run: "fleet-run", Policy: model.DefaultPolicy}, Parent: -1, Manifest: manifest, Weights: weights})
	require.NoError(t, err)
	require.NoError(t, s.Promote(t.Context(), record.Promotion{Run: "fleet-run", Policy: model.DefaultPolicy, DecisionID: "first", Previous: -1, Source: record.SourceGate}))
	return c.Weights
}

func TestTheFleetsPageGivesVersionsOut(t *testing.T) {
	t.Parallel()
	server, err := devserver.Start(t.Context(), devserver.Options{Log: zap.NewNop()})
	require.NoError(t, err)
	defer func() { require.NoError(t, server.Stop()) }()
	database, flags := state(t)
	s := open(t, database)
	weights := trained(t, s, flags[3])
	tokens := access.File(filepath.Join(t.TempDir(), "tokens.json"))
	secrets := map[access.Right]string{}
	for _, right := range []access.Right{access.Read, access.Operate} {
		secrets[right], err = tokens.Create(string(right), []access.Right{right}, time.Now(), time.Time{})
		require.NoError(t, err)
	}
	r := begin(t, append([]string{"page", "--listen", "127.0.0.1:0", "--tokens", string(tokens), "--temporal-address", server.Address()}, flags...)...)
	address := r.page(t)
	const form = "/runs/fleet-run/actions/export"

	stranger, reader, operator := newTab(t, address, ""), newTab(t, address, secrets[access.Read]), newTab(t, address, secrets[access.Operate])
	for _, path := range []string{"/", "/runs/fleet-run/versions/0", form + "?version=0"} {
		_, body, at := stranger.ask(http.MethodGet, path, nil)
		require.Equal(t, "/login", at.Path, path)
		require.NotContains(t, body, "Version 0")
	}
	code, body, _ := reader.ask(http.MethodGet, "/runs/fleet-run/versions/0", nil)
	require.Equal(t, http.StatusOK, code)
	require.Contains(t, body, "Version 0")
	require.NotContains(t, body, form)
	code, body, _ = operator.ask(http.MethodGet, "/runs/fleet-run/versions/0", nil)
	require.Equal(t, http.StatusOK, code)
	require.Contains(t, body, `href="`+form+`?version=0"`)
	require.Contains(t, body, `href="/runs/fleet-run/actions/pin?version=0"`)
	require.NotContains(t, body, "actions/promote?", "it is promoted")

	code, body, _ = operator.ask(http.MethodGet, form+"?version=0", nil)
	require.Equal(t, http.StatusOK, code)
	sent := url.Values{"version": {"0"}, "format": {"hf"}, "reason": {"for the colleagues"}}
	for _, m := range regexp.MustCompile(`name="(token|id)" value="([^"]*)"`).FindAllStringSubmatch(body, -1) {
		sent.Set(m[1], html.UnescapeString(m[2]))
	}
	for _, other := range []*tab{stranger, reader} {
		code, body, _ = other.ask(http.MethodPost, form, sent)
		require.Contains(t, []int{http.StatusUnauthorized, http.StatusForbidden}, code, body)
	}
	for want, change := range map[string]url.Values{
		"want hf or peft":           {"format": {"gguf"}},
		"trained as a whole":        {"format": {"peft"}},
		"not found":                 {"version": {"7"}},
		"which one is to be export": {"version": {""}},
	} {
		wrong := url.Values{"id": {"refused-" + regexp.MustCompile(`\W`).ReplaceAllString(want, "-")}, "token": sent["token"], "version": {"0"}, "format": {"hf"}}
		for key, v := range change {
			wrong[key] = v
		}
		code, body, _ = operator.ask(http.MethodPost, form, wrong)
		require.Equal(t, http.StatusUnprocessableEntity, code, want)
		require.Contains(t, body, want)
	}
	for range 2 { // a double click gets the files twice, and is on record once
		code, body, _ = operator.ask(http.MethodPost, form, sent)
		require.Equal(t, http.StatusOK, code, body)
	}
	folder := t.TempDir()
	untar(t, strings.NewReader(body), folder)
	_, written, err := hf.ReadDirectory(folder)
	require.NoError(t, err)
	require.Equal(t, weights, written)
	done := 0
	actions, err := s.Actions(t.Context(), "fleet-run", 20)
	require.NoError(t, err)
	for _, a := range actions {
		if a.Outcome == record.ActionDone {
			done++
			require.Equal(t, "operate", a.By)
			require.Equal(t, "for the colleagues", a.Reason)
			require.Equal(t, "version 0 was given out as hf", a.Result.Message)
		}
	}
	require.Equal(t, 1, done)
	_, body, _ = reader.ask(http.MethodGet, "/runs/fleet-run/actions", nil)
	require.Contains(t, body, "Export version 0 as hf")
	requireOnePolicyIsGivenOut(t, s, flags[3], operator)
	r.stop()
	require.Zero(t, <-r.code, r.log.String())
}

// requireOnePolicyIsGivenOut puts a run with two policies on record, and exports one of them.
func requireOnePolicyIsGivenOut(t *testing.T, s *store.Store, folder string, operator *tab) {
	t.Helper()
	blobs, err := blob.Open(folder)
	require.NoError(t, err)
	text, err := json.Marshal(spec.Spec{
		Agent: spec.Agent{Command: []string{"agent"}}, Model: spec.Model{Codec: dialog.CompactName},
		Policies: map[string]spec.Policy{"checker": {}, "writer": {Match: []spec.PolicyMatch{{Agent: "writer"}}}},
	}.WithDefaults())
	require.NoError(t, err)
	_, _, err = s.CreateRun(t.Context(), record.Run{Name: "pair", WorkflowID: "pair", Spec: text})
	require.NoError(t, err)
	a := model.Architecture{VocabSize: dialog.Compact().VocabSize(), HiddenSize: 8, Layers: 1, Heads: 2, KVHeads: 1, HeadDim: 4, FeedForward: 8, MaxPositions: 256, RopeTheta: 10000, NormEpsilon: 1e-6}
	weights := map[string]model.Weights{}
	for i, policy := range []string{"checker", "writer"} {
		c := model.Checkpoint{Architecture: a, Weights: a.Init(uint64(i + 2))}
		manifest, digest, err := checkpoint.Save(t.Context(), blobs, c, model.Manifest{Policy: policy, Parent: -1, Codec: dialog.CompactName})
		require.NoError(t, err)
		_, _, err = s.PutVersion(t.Context(), model.Version{VersionID: model.VersionID{Run: "pair", Policy: policy}, Parent: -1, Manifest: manifest, Weights: digest})
		require.NoError(t, err)
		weights[policy] = c.Weights
	}
	const form = "/runs/pair/actions/export"
	code, body, _ := operator.ask(http.MethodGet, form+"?version=0", nil)
	require.Equal(t, http.StatusOK, code)
	require.Contains(t, body, "<option>writer</option>")
	sent := url.Values{"version": {"0"}, "format": {"hf"}, "policy": {"writer"}}
	for _, m := range regexp.MustCompile(`name="(token|id)" value="([^"]*)"`).FindAllStringSubmatch(body, -1) {
		sent.Set(m[1], html.UnescapeString(m[2]))
	}
	for policy, want := range map[string]string{"": "has several policies", "author": "no policy"} {
		wrong := url.Values{"id": {"refused-" + policy}, "token": sent["token"], "version": {"0"}, "format": {"hf"}, "policy": {policy}}
		code, body, _ = operator.ask(http.MethodPost, form, wrong)
		require.Equal(t, http.StatusUnprocessableEntity, code, want)
		require.Contains(t, body, want)
	}
	code, body, _ = operator.ask(http.MethodPost, form, sent)
	require.Equal(t, http.StatusOK, code, body)
	directory := t.TempDir()
	untar(t, strings.NewReader(body), directory)
	_, written, err := hf.ReadDirectory(directory)
	require.NoError(t, err)
	require.Equal(t, weights["writer"], written)
}

// untar writes the files of an archive into a folder.
func untar(t *testing.T, r io.Reader, folder string) {
	t.Helper()
	archive := tar.NewReader(r)
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		require.NoError(t, err)
		data, err := io.ReadAll(archive)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(folder, filepath.Base(header.Name)), data, 0o600))
	}
}
