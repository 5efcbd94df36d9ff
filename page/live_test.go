package page_test

import (
	"bufio"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/page"
	"github.com/fulgurite/fulgurite/record"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("internal/poll.runtime_pollWait"))
}

// follow opens the events of the run and returns their names as they come.
func follow(ctx context.Context, t *testing.T, address string) func() string {
	t.Helper()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	require.NoError(t, err)
	reply, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	t.Cleanup(func() { _ = reply.Body.Close() })
	require.Equal(t, "text/event-stream", reply.Header.Get("Content-Type"))
	lines := bufio.NewScanner(reply.Body)
	return func() string {
		for lines.Scan() {
			if name, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
				return name
			}
		}
		return "end"
	}
}

func TestAPageHearsOfAFinishedStep(t *testing.T) {
	t.Parallel()
	r := newRecorded(t, "plain")
	server := r.serve(nil)
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	next := follow(ctx, t, server.URL+"/runs/demo/live")
	require.Equal(t, "begin", next())
	batch, err := r.store.Batch(t.Context(), "demo", model.DefaultPolicy, 2)
	require.NoError(t, err)
	r.finish(3, batch.Digest)
	require.Equal(t, "change", next())
	body, _ := get(t, server.URL+"/runs/demo/steps")
	require.Contains(t, body, "/runs/demo/train-3")
	leave()
	require.Equal(t, "end", next())
}

// counted are records that count how often a run was looked for.
type counted struct {
	page.Records
	looked atomic.Int64
}

func (c *counted) StepsAfter(ctx context.Context, run, policy string, step int) ([]record.Step, error) {
	c.looked.Add(1)
	return c.Records.StepsAfter(ctx, run, policy, step)
}

func TestReadersWhoAskTogetherGetOneDocument(t *testing.T) {
	t.Parallel()
	r := newRecorded(t, "plain")
	records := &counted{Records: r.store}
	p, err := page.New(page.Options{Records: records, Blobs: r.blobs, Codecs: dialog.Named, Poll: 240 * time.Hour, Patience: time.Hour})
	require.NoError(t, err)
	defer p.Close()
	ask := func(method, path string) string {
		request := httptest.NewRequestWithContext(t.Context(), method, "http://localhost"+path, nil)
		request.RemoteAddr = "127.0.0.1:9"
		reply := httptest.NewRecorder()
		p.ServeHTTP(reply, request)
		return reply.Body.String()
	}
	first := ask(http.MethodGet, "/runs/demo/steps")
	once := records.looked.Load()
	require.Equal(t, first, ask(http.MethodGet, "/runs/demo/steps"))
	require.Equal(t, once, records.looked.Load())
	require.NotEqual(t, first, ask(http.MethodGet, "/runs/demo/steps?from=1"), "another address")
	twice := records.looked.Load()
	require.Greater(t, twice, once)
	ask(http.MethodPost, "/runs/demo/actions/pause")
	ask(http.MethodGet, "/runs/demo/steps")
	require.Greater(t, records.looked.Load(), twice, "somebody acted")
}

func TestManyReadersAtOnce(t *testing.T) {
	t.Parallel()
	r := newRecorded(t, "plain")
	server := r.serve(nil)
	var readers sync.WaitGroup
	for range 8 {
		readers.Go(func() {
			for _, path := range []string{"/", "/runs/demo", "/runs/demo/train-1/0/0/2", "/runs/demo/train-2/2", "/runs/demo/tasks"} {
				request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+path, nil)
				if err != nil {
					t.Error(err)
					return
				}
				reply, err := http.DefaultClient.Do(request)
				if err != nil {
					t.Error(err)
					return
				}
				_ = reply.Body.Close()
				if reply.StatusCode != http.StatusOK {
					t.Errorf("%s: %s", path, reply.Status)
				}
			}
		})
	}
	readers.Wait()
}

// idle answers as if no Temporal could be reached.
type idle struct{ asked }

func (i idle) Runs(_ context.Context, runs []record.Run) ([]record.Run, error) {
	out := slices.Clone(runs)
	for n := range out {
		out[n].Idle = true
	}
	return out, i.err
}

func TestNothingIsSaidToRunWhereNothingRunsIt(t *testing.T) {
	t.Parallel()
	r := newRecorded(t, "plain")
	path := "/runs/demo/train-3?attempts"
	body, _ := get(t, r.serve(asked{}).URL+path)
	require.Contains(t, body, "<td>running</td>")
	body, _ = get(t, r.serve(idle{asked{err: errors.New("no stack runs")}}).URL+path)
	require.Contains(t, body, "<td>begun</td>")
	require.NotContains(t, body, "<td>running</td>")
}
