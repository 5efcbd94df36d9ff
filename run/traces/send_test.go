package traces_test

import (
	"compress/gzip"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/traces"
)

func reader(t *testing.T) *traces.Reader {
	t.Helper()
	r, err := traces.NewReader(nil, "store", record.Run{Name: "run", Spec: []byte(`{"agent": {"func": "a"}}`), Created: time.Unix(1, 0)})
	require.NoError(t, err)
	return r
}

func TestALargeTraceIsSentInSeveralRequests(t *testing.T) {
	t.Parallel()
	var counts []int
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		z, err := gzip.NewReader(r.Body)
		if !assert.NoError(t, err) {
			return
		}
		data, err := io.ReadAll(z)
		assert.NoError(t, err)
		var in collector.ExportTraceServiceRequest
		assert.NoError(t, proto.Unmarshal(data, &in))
		counts = append(counts, len(in.GetResourceSpans()[0].GetScopeSpans()[0].GetSpans()))
	}))
	defer server.Close()
	spans := make([]*v1.Span, 2500)
	for i := range spans {
		spans[i] = &v1.Span{}
	}
	require.NoError(t, traces.Sender{URL: server.URL + "/"}.Send(t.Context(), reader(t), spans))
	require.Equal(t, []int{1000, 1000, 500}, counts)
}

func TestRefusedSpansAreNotSentAgain(t *testing.T) {
	t.Parallel()
	partly, err := proto.Marshal(&collector.ExportTraceServiceResponse{
		PartialSuccess: &collector.ExportTracePartialSuccess{RejectedSpans: 3, ErrorMessage: "too old"},
	})
	require.NoError(t, err)
	for name, c := range map[string]struct {
		status     int
		mime, body string
		want       string // empty if the spans are accepted
	}{
		"no such path":     {http.StatusNotFound, "text/plain", "404 page not found\nmore", "answers 404 Not Found: 404 page not found"},
		"no key":           {http.StatusUnauthorized, "text/plain", "who are you?", "answers 401 Unauthorized: who are you?"},
		"partly, protobuf": {http.StatusOK, "application/x-protobuf", string(partly), "dropped 3 of them: too old"},
		"partly, JSON":     {http.StatusOK, "application/json", `{"partialSuccess": {"rejectedSpans": "2", "errorMessage": "no"}}`, "dropped 2 of them: no"},
		"empty":            {http.StatusOK, "application/x-protobuf", "", ""},
		"words":            {http.StatusAccepted, "text/plain", "thank you", ""},
	} {
		requests := 0
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			requests++
			assert.Equal(t, "/otlp", r.URL.Path, name)
			w.Header().Set("Content-Type", c.mime)
			w.WriteHeader(c.status)
			_, _ = io.WriteString(w, c.body)
		}))
		err := traces.Sender{URL: server.URL + "/otlp"}.Send(t.Context(), reader(t), []*v1.Span{{}})
		server.Close()
		require.Equal(t, 1, requests, name)
		if c.want == "" {
			require.NoError(t, err, name)
			continue
		}
		require.ErrorIs(t, err, traces.ErrRefused, name)
		require.ErrorContains(t, err, c.want, name)
	}
}

func TestACollectorThatIsAwayIsWaitedFor(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.NotFoundHandler())
	server.Close()
	ctx, cancel := context.WithCancel(t.Context())
	waits := 0
	err := traces.Sender{URL: server.URL, First: time.Millisecond, Longest: 4 * time.Millisecond, Waiting: func(error) {
		if waits++; waits == 5 {
			cancel()
		}
	}}.Send(ctx, reader(t), []*v1.Span{{}})
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, 5, waits)
}

func TestAnAddressThatIsNoneIsRefused(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"", "collector:4318", "ftp://collector", "http://"} {
		require.ErrorContains(t, traces.Sender{URL: url}.Check(), "is no address of a collector: give http://HOST:4318", url)
	}
	require.NoError(t, traces.Sender{URL: "https://collector.example/v1/traces"}.Check())
}
