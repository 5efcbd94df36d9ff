package testsuite_test

import (
	"bytes"
	"compress/gzip"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/report"
	"github.com/fulgurite/fulgurite/run/traces"
	"github.com/fulgurite/fulgurite/run/track"
)

// traceCollector takes spans by OTLP. It is away for its first two requests.
type traceCollector struct {
	t        *testing.T
	mu       sync.Mutex
	requests int
	bodies   [][]byte
	spans    []*v1.Span
	resource map[string]string
}

func (c *traceCollector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.requests++; c.requests <= 2 {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	assert.Equal(c.t, "/v1/traces", r.URL.Path)
	assert.Equal(c.t, "secret", r.Header.Get("X-Key"))
	z, err := gzip.NewReader(r.Body)
	if !assert.NoError(c.t, err) {
		return
	}
	data, err := io.ReadAll(z)
	assert.NoError(c.t, err)
	var in collector.ExportTraceServiceRequest
	assert.NoError(c.t, proto.Unmarshal(data, &in))
	c.bodies = append(c.bodies, data)
	for _, rs := range in.GetResourceSpans() {
		for _, a := range rs.GetResource().GetAttributes() {
			c.resource[a.GetKey()] = a.GetValue().GetStringValue()
		}
		for _, ss := range rs.GetScopeSpans() {
			c.spans = append(c.spans, ss.GetSpans()...)
		}
	}
}

func TestTracesHaveWhatTheRecordHas(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	st := sharedStack(t)
	mustTrain(ctx, t, st, "traced", small(2))
	run, err := st.Store.Run(ctx, "traced")
	require.NoError(t, err)
	attempts, err := st.Store.Attempts(ctx, "traced", record.Train, 1)
	require.NoError(t, err)
	calls, err := st.Store.Calls(ctx, attempts[0].Address)
	require.NoError(t, err)
	node, tool := strings.Repeat("ab", 8), strings.Repeat("cd", 8)
	require.NoError(t, st.Store.PutSpans(ctx, attempts[0].Address, []record.Span{
		{Trace: strings.Repeat("1", 32), ID: node, Kind: record.ModelSpan, Name: "ask", Started: calls[0].Started, Ended: calls[0].Started.Add(calls[0].Duration), CallID: calls[0].ID},
		{Trace: strings.Repeat("1", 32), ID: tool, Parent: node, Kind: record.ToolSpan, Name: "add", Started: calls[0].Started, Ended: calls[0].Started.Add(calls[0].Duration), Tool: "calculator", Failed: true, Message: "it is away"},
	}))
	account, err := report.Of(ctx, st.Store, st.Blobs, "traced", model.DefaultPolicy)
	require.NoError(t, err)

	c := &traceCollector{t: t, resource: map[string]string{}}
	server := httptest.NewServer(c)
	defer server.Close()
	var away []bool
	s := traces.Sender{URL: server.URL, Headers: http.Header{"X-Key": {"secret"}}, First: time.Millisecond, Waiting: func(err error) { away = append(away, err != nil) }}
	dir := t.TempDir()
	var bodies [2][][]byte
	for i := range bodies {
		w, err := traces.OpenWriter(st.Store, "store", run, s, dir)
		require.NoError(t, err)
		require.NoError(t, track.Follow(ctx, track.NewReader(st.Store, "traced"), w, track.Options{}))
		require.Equal(t, []bool{true, true, false}, away, "the collector is away once")
		require.Equal(t, "traced", c.resource["rl.run.id"])
		requireTraces(t, c.spans, account)
		bodies[i] = c.bodies

		again, err := traces.OpenWriter(st.Store, "store", run, s, dir)
		require.NoError(t, err)
		require.NoError(t, track.Follow(ctx, track.NewReader(st.Store, "traced"), again, track.Options{}))
		require.Len(t, c.bodies, len(bodies[i]), "what was sent is not sent again")
		c.bodies, c.spans = nil, nil
		require.NoError(t, os.Remove(w.Path())) // as if it had been killed before it noted what it had sent
	}
	require.Len(t, bodies[1], len(bodies[0]))
	for i := range bodies[0] {
		require.True(t, bytes.Equal(bodies[0][i], bodies[1][i]), "a trace that is made again is equal")
	}
	exchanges, err := st.Store.Exchanges(ctx, attempts[0].Address)
	require.NoError(t, err)
	var request struct {
		Messages []struct{ Content string }
	}
	require.NoError(t, json.Unmarshal(exchanges[0].Request, &request))
	require.NotEmpty(t, request.Messages[0].Content)
	require.NotContains(t, string(bytes.Join(bodies[0], nil)), request.Messages[0].Content, "traces have no texts")
}

// requireTraces compares spans with what the report counts, and requires that they are trees
// in which a span lies within its parent's time.
func requireTraces(t *testing.T, spans []*v1.Span, account report.Report) {
	t.Helper()
	byID, names := map[string]*v1.Span{}, map[string]int{}
	for _, s := range spans {
		id := hex.EncodeToString(append(s.GetTraceId(), s.GetSpanId()...))
		require.NotContains(t, byID, id)
		byID[id] = s
		name, _, _ := strings.Cut(s.GetName(), " ")
		names[name]++
	}
	total := account.Attempts
	require.Equal(t, map[string]int{
		"rl.loop": account.Steps, "rl.credit": account.Steps, "rl.train": account.Steps, "rl.evaluation": len(account.Evaluations),
		"rl.sample": total.Completed + total.AgentFailed + total.InfraFault, "chat": total.Calls.Sampled + total.Calls.Replayed, "ask": 1, "add": 1,
	}, names)
	for _, s := range byID {
		require.LessOrEqual(t, s.GetStartTimeUnixNano(), s.GetEndTimeUnixNano(), s.GetName())
		if len(s.GetParentSpanId()) == 0 {
			require.Contains(t, []string{"rl.loop", "rl.evaluation"}, s.GetName())
			continue
		}
		parent := byID[hex.EncodeToString(append(s.GetTraceId(), s.GetParentSpanId()...))]
		require.NotNil(t, parent, s.GetName())
		require.LessOrEqual(t, parent.GetStartTimeUnixNano(), s.GetStartTimeUnixNano(), "%s in %s", s.GetName(), parent.GetName())
		require.LessOrEqual(t, s.GetEndTimeUnixNano(), parent.GetEndTimeUnixNano(), "%s in %s", s.GetName(), parent.GetName())
		if s.GetName() == "add" {
			require.Equal(t, "ask", parent.GetName())
			require.Equal(t, v1.Status_STATUS_CODE_ERROR, s.GetStatus().GetCode())
		}
	}
}
