package traces_test

import (
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
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
		"a page":           {http.StatusOK, "text/html", "<html>", `is no collector of traces: its reply is "text/html"`},
		"another JSON":     {http.StatusOK, "application/json", "[]", "is no collector of traces"},
		"elsewhere":        {http.StatusFound, "text/plain", "", "answers 302 Found"},
		"partly, protobuf": {http.StatusOK, "application/x-protobuf", string(partly), ""},
		"partly, JSON":     {http.StatusOK, "application/json", `{"partialSuccess": {"rejectedSpans": "3", "errorMessage": "too old"}}`, ""},
		"empty":            {http.StatusOK, "application/x-protobuf", "", ""},
		"empty words":      {http.StatusAccepted, "text/plain", "", ""},
	} {
		requests := 0
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			requests++
			assert.Equal(t, "/otlp", r.URL.Path, name)
			w.Header().Set("Content-Type", c.mime)
			w.Header().Set("Location", "/login")
			w.WriteHeader(c.status)
			_, _ = io.WriteString(w, c.body)
		}))
		var dropped []string
		s := traces.Sender{URL: strings.Replace(server.URL, "http://", "http://ada:secret@", 1) + "/otlp?key=secret", Dropped: func(err error) { dropped = append(dropped, err.Error()) }}
		err := s.Send(t.Context(), reader(t), []*v1.Span{{}})
		server.Close()
		require.Equal(t, 1, requests, name)
		require.NotContains(t, fmt.Sprint(err, dropped, s.Name()), "secret", name)
		if strings.HasPrefix(name, "partly") {
			require.Len(t, dropped, 1, name)
			require.Contains(t, dropped[0], "dropped 3 spans: too old", name)
		}
		if c.want == "" {
			require.NoError(t, err, name)
			continue
		}
		require.ErrorIs(t, err, traces.ErrRefused, name)
		require.ErrorContains(t, err, c.want, name)
	}
}

func TestARequestThatIsTooLargeIsDivided(t *testing.T) {
	t.Parallel()
	var taken []int
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		z, err := gzip.NewReader(r.Body)
		if !assert.NoError(t, err) {
			return
		}
		data, err := io.ReadAll(z)
		assert.NoError(t, err)
		if len(data) > 1<<19 {
			w.WriteHeader(http.StatusRequestEntityTooLarge)
			return
		}
		var in collector.ExportTraceServiceRequest
		assert.NoError(t, proto.Unmarshal(data, &in))
		taken = append(taken, len(in.GetResourceSpans()[0].GetScopeSpans()[0].GetSpans()))
	}))
	defer server.Close()
	spans := make([]*v1.Span, 64)
	for i := range spans {
		spans[i] = &v1.Span{Name: strings.Repeat("n", 100<<10)}
	}
	require.NoError(t, traces.Sender{URL: server.URL}.Send(t.Context(), reader(t), spans))
	sum := 0
	for _, n := range taken {
		require.LessOrEqual(t, n, 5)
		sum += n
	}
	require.Equal(t, 64, sum)
	spans = []*v1.Span{{Name: strings.Repeat("n", 1<<20)}}
	require.ErrorIs(t, traces.Sender{URL: server.URL}.Send(t.Context(), reader(t), spans), traces.ErrRefused, "a span can't be divided")
}

func TestACollectorThatIsAwayIsWaitedFor(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.NotFoundHandler())
	server.Close()
	ctx, cancel := context.WithCancel(t.Context())
	waits := 0
	err := traces.Sender{URL: server.URL, First: time.Millisecond, Longest: 4 * time.Millisecond, Waiting: func(err error) {
		assert.NotContains(t, err.Error(), "/v1/traces", "the address is named once, without its path and query")
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
