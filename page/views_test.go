package page_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap/zaptest"
	"golang.org/x/net/html"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/gateway"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/engine/native"
	"github.com/fulgurite/fulgurite/model/files/checkpoint"
	"github.com/fulgurite/fulgurite/model/sampler/serve"
	"github.com/fulgurite/fulgurite/page"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/catalog"
)

// beside is a fake of the processes around a page: a gateway, if it has an address, and
// queues.
type beside struct {
	gateway string
	queues  []page.Queue
	loaded  []model.VersionID
	here    []model.VersionID // nil if the page's process does not sample
	err     error
}

func (b beside) Queues(context.Context) ([]page.Queue, error) { return b.queues, b.err }

func (b beside) Gateway(context.Context) (string, error) {
	if b.gateway == "" {
		return "", errors.New("no stack runs here")
	}
	return b.gateway, nil
}

func (b beside) Here() ([]model.VersionID, bool) { return b.here, b.here != nil }

func (b beside) Loaded(context.Context, record.Lease) ([]model.VersionID, error) {
	return b.loaded, b.err
}

// serveWith serves the page of the store, with fleet as the processes around it.
func (r *recorded) serveWith(fleet page.Fleet) *httptest.Server {
	r.t.Helper()
	p, err := page.New(page.Options{Records: r.store, Blobs: r.blobs, Codecs: dialog.Named, Fleet: fleet, Poll: time.Millisecond, Patience: time.Hour})
	require.NoError(r.t, err)
	server := httptest.NewServer(p)
	r.t.Cleanup(func() {
		p.Close()
		server.Close()
	})
	return server
}

// secondRun adds another run to the store, without attempts.
func (r *recorded) secondRun(name, spec string) {
	r.t.Helper()
	_, _, err := r.store.CreateRun(r.t.Context(), record.Run{Name: name, Spec: json.RawMessage(spec)})
	require.NoError(r.t, err)
	for step := 1; step <= 3; step++ {
		require.NoError(r.t, r.store.PutStep(r.t.Context(), record.Step{Run: name, Policy: model.DefaultPolicy, Step: step, Metrics: map[string]float64{"reward/mean": 0.25 * float64(step)}}))
	}
}

// savedVersion puts a version with files on record. Its canary is of no model.
func (r *recorded) savedVersion(number int, withCanary bool) model.Version {
	r.t.Helper()
	a := model.Architecture{VocabSize: dialog.Compact().VocabSize(), HiddenSize: 8, Layers: 1, Heads: 2, KVHeads: 1, HeadDim: 4, FeedForward: 8, MaxPositions: 256, RopeTheta: 10000, NormEpsilon: 1e-6}
	c := model.Checkpoint{Architecture: a, Weights: a.Init(uint64(number))}
	canary := model.Canary{Format: model.CanaryFormat, Fingerprint: "f", Exact: true, Tolerance: 0.001, Rows: []model.CanaryRow{{Prompt: []int32{1}, Tokens: []int32{2, 3}, Logprobs: []float32{-1, -2}}}}
	m := model.Manifest{Policy: model.DefaultPolicy, Number: number, Parent: number - 1, Codec: dialog.CompactName}
	manifest, weights, err := checkpoint.Save(r.t.Context(), r.blobs, c, m)
	if withCanary {
		manifest, weights, err = checkpoint.SaveVersion(r.t.Context(), r.blobs, c, m, canary)
	}
	require.NoError(r.t, err)
	v, _, err := r.store.PutVersion(r.t.Context(), model.Version{VersionID: model.VersionID{Run: "demo", Policy: model.DefaultPolicy, Number: number}, Parent: number - 1, Manifest: manifest, Weights: weights})
	require.NoError(r.t, err)
	return v
}

func TestAVersionShowsItsFilesAndItsCanary(t *testing.T) {
	t.Parallel()
	shown := goldenOf(t, "version_files")
	r := newRecorded(t, "plain")
	v := r.savedVersion(3, true)
	server := r.serve(nil)
	body := shown.get(server.URL, "/runs/demo/versions/3")
	for _, want := range []string{v.Weights, v.Manifest, model.WeightsFile, model.CanaryFile, "−1.500", `href="/runs/demo/versions/2"`, "the start"} {
		require.Contains(t, body, want)
	}
	body = shown.get(server.URL, "/runs/demo/versions/1")
	require.Contains(t, body, `<span class="tag good">promoted</span>`)
	for _, path := range []string{"/runs/demo/versions/99", "/runs/demo/versions/01", "/runs/demo/versions/x"} {
		_, reply := get(t, server.URL+path)
		require.Equal(t, http.StatusNotFound, reply.StatusCode, path)
	}
}

func TestTheFleetShowsWhoDoesWhat(t *testing.T) {
	t.Parallel()
	r := newRecorded(t, hostile)
	_, err := r.store.AcquireLease(t.Context(), record.Lease{Role: record.Sampler, Name: "s1", URL: "http://sampler:1"}, time.Hour, false)
	require.NoError(t, err)
	server := r.serveWith(beside{
		queues: []page.Queue{{Name: "training", Kind: "workflows", Backlog: 7, Pollers: []page.Poller{{Identity: "9@<host>", Last: time.Now()}}}, {Name: "gpu", Kind: "activities", Backlog: -1}},
		loaded: []model.VersionID{{Run: "demo", Policy: model.DefaultPolicy, Number: 2}},
	})
	body, _ := get(t, server.URL+"/fleet")
	for _, want := range []string{"9@&lt;host&gt;", `<td class="n" data-label="Waiting">7</td>`, "nobody", "http://sampler:1", "demo@2", "/runs/demo/train-1/0/0/1", "lost, made again", "/runs/demo/train-1/0/0/2", `class="lanes"`} {
		require.Contains(t, body, want)
	}
	require.Equal(t, 1, strings.Count(body, `class="bar interrupted"`))
	require.Contains(t, body, `data-every="2000"`)
	require.NotContains(t, body, "In memory of the process")
	body, _ = get(t, r.serveWith(beside{here: []model.VersionID{}}).URL+"/fleet")
	require.Contains(t, body, "In the memory of the process that shows this page: no version yet")
	body, _ = get(t, r.serveWith(beside{here: []model.VersionID{{Run: "demo", Policy: model.DefaultPolicy, Number: 7}}}).URL+"/fleet")
	require.Contains(t, body, `<span class="tag">demo@7</span>`)
	body, _ = get(t, r.serve(nil).URL+"/fleet")
	require.Contains(t, body, "this page shows a directory whose stack has ended")
}

func TestCreditUnderAnotherEstimatorIsComputedOnTheSpot(t *testing.T) {
	t.Parallel()
	shown := goldenOf(t, "credit_estimators")
	server := newRecorded(t, "plain").serve(nil)
	body := shown.get(server.URL, "/runs/demo/train-1/0/0/2")
	require.Contains(t, links(t, body), "/runs/demo/train-1/0/0/2/credit")
	body = shown.get(server.URL, "/runs/demo/train-1/0/0/2/credit?with=last_call&with=rloo")
	require.Contains(t, body, "last_call")
	require.Contains(t, body, `<td class="n">−0.667</td>`, "leave one out of four")
	require.Contains(t, body, `<td class="n">−0.500</td>`, "the run's own")
	body = shown.get(server.URL, "/runs/demo/train-1/0/0/2/credit?with=%3Cnone%3E")
	require.Contains(t, body, "&#34;&lt;none&gt;&#34;")
	shown.get(server.URL, "/runs/demo/gate-1/0/0/1/credit")
	_, reply := get(t, server.URL+"/runs/demo/train-1/0/0/9/credit")
	require.Equal(t, http.StatusNotFound, reply.StatusCode)
}

func TestARecordedCallIsGivenOut(t *testing.T) {
	t.Parallel()
	r := newRecorded(t, "it's "+hostile)
	server := r.serveWith(beside{gateway: "http://127.0.0.1:9/v1"})
	at := server.URL + "/runs/demo/train-1/0/0/2/calls/1/"
	body, reply := get(t, at+"request.json")
	require.Equal(t, "application/json", reply.Header.Get("Content-Type"))
	calls, err := r.store.ExchangesBetween(t.Context(), record.Address{RolloutID: record.RolloutID{Run: "demo", Kind: record.Train, Step: 1}, Attempt: 2}, 1, 2)
	require.NoError(t, err)
	require.JSONEq(t, string(calls[0].Request), body)
	body, _ = get(t, at+"reply.json")
	require.JSONEq(t, string(calls[0].Response), body)
	body, reply = get(t, at+"curl")
	require.Equal(t, "text/plain; charset=utf-8", reply.Header.Get("Content-Type"))
	require.True(t, strings.HasPrefix(body, `curl "http://127.0.0.1:9/v1/chat/completions" -H`), body)
	require.Contains(t, body, `"model":"demo@0"`)
	require.Contains(t, body, `it'\''s`)
	for _, path := range []string{"2/calls/7/curl", "2/calls/x/curl", "2/calls/0/else", "9/calls/0/curl"} {
		_, reply := get(t, server.URL+"/runs/demo/train-1/0/0/"+path)
		require.Equal(t, http.StatusNotFound, reply.StatusCode, path)
	}
}

// running starts a gateway with a sampler that answers with the versions of the store.
func (r *recorded) running() string {
	r.t.Helper()
	versions := catalog.Catalog{Store: r.store, Blobs: r.blobs}
	sampler := serve.New(native.New(native.Options{}), versions, 2)
	server := httptest.NewServer(gateway.New(gateway.Config{Journal: r.store, Versions: versions, Sampler: sampler, Codecs: dialog.Named, Log: zaptest.NewLogger(r.t)}))
	r.t.Cleanup(func() {
		server.Close()
		sampler.Close()
	})
	return server.URL + "/v1"
}

// say posts to the playground.
func say(t *testing.T, at, body string, headers map[string]string) (int, string, http.Header) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, at+"/playground/reply", strings.NewReader(body))
	require.NoError(t, err)
	for name, value := range headers {
		request.Header.Set(name, value)
	}
	reply, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer func() { require.NoError(t, reply.Body.Close()) }()
	text, err := io.ReadAll(reply.Body)
	require.NoError(t, err)
	return reply.StatusCode, string(text), reply.Header
}

func TestThePlaygroundStreamsWhatAVersionSays(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it samples")
	}
	r := newRecorded(t, "plain")
	r.savedVersion(3, false)
	server := r.serveWith(beside{gateway: r.running()})
	own := map[string]string{"Origin": server.URL, "Content-Type": "application/json"}
	body, _ := get(t, server.URL+"/playground")
	require.Contains(t, body, `value="demo@3"`)
	require.Contains(t, body, `value="demo@promoted"`)
	require.Contains(t, body, "calculator", "the tools of the run")
	require.NotContains(t, body, "Nobody would answer")

	const question = `{"version":"demo@3","messages":[{"role":"user","content":"1+1"}],"temperature":1,"max_tokens":8}`
	code, text, header := say(t, server.URL, question, own)
	require.Equal(t, http.StatusOK, code, text)
	require.Equal(t, "text/event-stream", header.Get("Content-Type"))
	require.Contains(t, text, "chat.completion.chunk")
	require.True(t, strings.HasSuffix(strings.TrimSpace(text), "data: [DONE]"), text)

	for body, want := range map[string]string{
		`{`: "can't be read",
		`{"version":"../x","messages":[{}],"max_tokens":1}`:                                       "version: want RUN@NUMBER",
		`{"version":"demo@3","messages":[],"max_tokens":1}`:                                       "messages: want a list",
		`{"version":"demo@3","messages":[{}],"tools":7,"max_tokens":1}`:                           "tools: want a JSON list",
		`{"version":"demo@3","messages":[{}],"max_tokens":0}`:                                     "max_tokens: want",
		`{"version":"demo@3","messages":[{}],"temperature":3,"max_tokens":1}`:                     "temperature: want",
		`{"version":"demo@99","messages":[{"role":"user","content":"1"}],"max_tokens":1}`:         "demo@99",
		`{"version":"demo@3","messages":[{"role":"user","content":{"<b>":1}}],"max_tokens":1}`:    "content",
		`{"version":"demo@3","messages":[` + strings.Repeat(`{},`, 1<<19) + `{}],"max_tokens":1}`: "too large",
	} {
		code, text, _ := say(t, server.URL, body, own)
		require.GreaterOrEqual(t, code, 400)
		require.Contains(t, text, want)
	}
}

func TestOnlyThePageItselfMayAsk(t *testing.T) {
	t.Parallel()
	server := newRecorded(t, "plain").serveWith(beside{gateway: "http://127.0.0.1:1/v1"})
	here, err := url.Parse(server.URL)
	require.NoError(t, err)
	for name, headers := range map[string]map[string]string{
		"no origin":        {},
		"another's":        {"Origin": "http://evil.example"},
		"another port":     {"Origin": "http://127.0.0.1:1"},
		"null":             {"Origin": "null"},
		"a suffix":         {"Origin": server.URL + ".evil.example"},
		"another site":     {"Origin": server.URL, "Sec-Fetch-Site": "cross-site"},
		"a site beside":    {"Origin": server.URL, "Sec-Fetch-Site": "same-site"},
		"with credentials": {"Origin": "http://" + here.Host + "@evil.example"},
	} {
		code, _, _ := say(t, server.URL, "{}", headers)
		require.Equal(t, http.StatusForbidden, code, name)
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/playground/reply", nil)
	require.NoError(t, err)
	reply, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	require.NoError(t, reply.Body.Close())
	require.NotEqual(t, http.StatusOK, reply.StatusCode, "nothing acts by GET")
	code, text, _ := say(t, server.URL, `{"version":"demo@3","messages":[{}],"max_tokens":1}`, map[string]string{"Origin": server.URL})
	require.Equal(t, http.StatusBadGateway, code)
	require.Contains(t, text, "the gateway does not answer")
}

func TestAPlaygroundWithoutAStackSaysSo(t *testing.T) {
	t.Parallel()
	server := newRecorded(t, "plain").serve(nil)
	body, _ := get(t, server.URL+"/playground")
	require.Contains(t, body, "No gateway would answer: no stack runs on this directory, and the page starts none")
	code, text, _ := say(t, server.URL, `{"version":"demo@3","messages":[{}],"max_tokens":1}`, map[string]string{"Origin": server.URL})
	require.Equal(t, http.StatusServiceUnavailable, code)
	require.Contains(t, text, "the page starts none")
}

func TestARangeOfStepsIsShownAlone(t *testing.T) {
	t.Parallel()
	r := newRecorded(t, "plain")
	server := r.serve(nil)
	body, _ := get(t, server.URL+"/runs/demo?from=2&to=2")
	require.Contains(t, html.UnescapeString(body), `"points":[[2,0.5]]`)
	require.NotContains(t, html.UnescapeString(body), `"points":[[1,0.5]`)
	require.Contains(t, body, "All steps")
	body, _ = get(t, server.URL+"/runs/demo")
	require.Contains(t, body, "1 attempt interrupted and made again")
	require.True(t, slices.ContainsFunc(elements(t, body), func(n *html.Node) bool { return n.Data == "rect" && fmt.Sprint(n.Attr[0].Val) == "selection" }))
	for _, query := range []string{"?from=9", "?to=-1", "?from=2&to=1", "?from=x"} {
		_, reply := get(t, server.URL+"/runs/demo"+query)
		require.Equal(t, http.StatusOK, reply.StatusCode, query)
	}
}
