package traces

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	resource "go.opentelemetry.io/proto/otlp/resource/v1"
	"go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/fulgurite/fulgurite/internal/wait"
)

const (
	// maxSpans is how many spans a request has at most; a collector's default limit is a few
	// megabytes.
	maxSpans = 1000
	// maxBytes is how large a request is at most before it is compressed, unless one span
	// alone is larger.
	maxBytes = 2 << 20
	// maxReply is how much of a collector's reply is read, in bytes.
	maxReply = 64 << 10
	// patience is how long a collector may take for a reply.
	patience = time.Minute
)

// ErrRefused is returned if a collector refuses spans, so that sending them again is of no
// use.
var ErrRefused = errors.New("the collector refused the spans")

// errTooLarge says that a request has more bytes than the collector takes.
var errTooLarge = errors.New("the request is too large")

// Sender sends spans to a collector by OTLP over HTTP, as protobuf with gzip.
type Sender struct {
	// URL is the collector's address. Without a path, "/v1/traces" is added.
	URL string
	// Headers are sent with each request, such as a key.
	Headers http.Header
	// First and Longest are the waits before a request is repeated: the first, and the one
	// to which they grow. 0 means 1 s and 1 min.
	First, Longest time.Duration
	// Waiting is called with the reason before a wait, and with nil once the collector has
	// taken the spans for which it waited; nil ignores it.
	Waiting func(error)
	// Dropped is called if the collector says that it dropped some of the spans that it took.
	// These must not be sent again. Nil ignores it.
	Dropped func(error)
}

// client follows no redirection: a POST that is redirected becomes a GET, and a key would be
// sent elsewhere.
var client = &http.Client{
	Timeout:       patience,
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// Name returns the address without a password.
func (s Sender) Name() string {
	u, err := url.Parse(s.URL)
	if err != nil {
		return "the collector"
	}
	u.RawQuery = ""
	return u.Redacted()
}

// Check reports an address that is none.
func (s Sender) Check() error {
	u, err := url.Parse(s.URL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return fmt.Errorf("%q is no address of a collector: give http://HOST:4318, or the whole path that takes traces", s.URL)
	}
	return nil
}

func (s Sender) endpoint() string {
	u, err := url.Parse(s.URL)
	if err != nil || strings.Trim(u.Path, "/") != "" {
		return s.URL
	}
	return u.JoinPath("v1", "traces").String()
}

// Send sends spans of a run. While the collector is away or overloaded, it waits and repeats.
// A span may arrive twice, with equal ids.
func (s Sender) Send(ctx context.Context, r *Reader, spans []*v1.Span) error {
	for len(spans) > 0 {
		n := fitting(spans)
		err := s.sendAll(ctx, r.request(spans[:n]))
		for errors.Is(err, errTooLarge) && n > 1 {
			n /= 2
			err = s.sendAll(ctx, r.request(spans[:n]))
		}
		if err != nil {
			return err
		}
		spans = spans[n:]
	}
	return nil
}

// fitting returns how many of the first spans make a request.
func fitting(spans []*v1.Span) int {
	size := 0
	for i, span := range spans {
		if size += proto.Size(span); i > 0 && (i == maxSpans || size > maxBytes) {
			return i
		}
	}
	return len(spans)
}

// request returns spans with the resource that they are of.
func (r *Reader) request(spans []*v1.Span) *collector.ExportTraceServiceRequest {
	values := map[string]any{"service.name": "fulgurite", "rl.system": "fulgurite", "rl.run.id": r.run.Name, "fulgurite.spec": r.run.SpecDigest}
	if r.spec.Algorithm != "" {
		values["rl.algorithm"] = r.spec.Algorithm
	}
	return &collector.ExportTraceServiceRequest{ResourceSpans: []*v1.ResourceSpans{{
		Resource:   &resource.Resource{Attributes: attributes(values)},
		ScopeSpans: []*v1.ScopeSpans{{Scope: &common.InstrumentationScope{Name: "fulgurite"}, Spans: spans}},
	}}}
}

// sendAll sends a request until the collector has accepted it.
func (s Sender) sendAll(ctx context.Context, request *collector.ExportTraceServiceRequest) error {
	body, err := encode(request)
	if err != nil {
		return err
	}
	pause, longest := cmp.Or(s.First, time.Second), cmp.Or(s.Longest, time.Minute)
	for waited := false; ; {
		after, err := s.post(ctx, body)
		if err == nil && waited && s.Waiting != nil {
			s.Waiting(nil)
		}
		if err == nil || errors.Is(err, ErrRefused) || ctx.Err() != nil {
			return err
		}
		waited = true
		if s.Waiting != nil {
			s.Waiting(err)
		}
		if !wait.For(ctx, max(pause, min(after, longest))) {
			return ctx.Err()
		}
		pause = min(2*pause, longest)
	}
}

func encode(request *collector.ExportTraceServiceRequest) ([]byte, error) {
	data, err := proto.Marshal(request)
	if err != nil {
		return nil, fmt.Errorf("encode spans: %w", err)
	}
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(data); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// post sends a request once. after is how long the collector asks to wait.
func (s Sender) post(ctx context.Context, body []byte) (after time.Duration, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.endpoint(), bytes.NewReader(body))
	if err != nil {
		return 0, errors.Join(ErrRefused, err)
	}
	for name, values := range s.Headers {
		request.Header[name] = values
	}
	request.Header.Set("Content-Type", "application/x-protobuf")
	request.Header.Set("Content-Encoding", "gzip")
	response, err := client.Do(request)
	if err != nil {
		return 0, fmt.Errorf("send spans to %s: %w", s.Name(), withoutURL(err))
	}
	defer func() { _ = response.Body.Close() }()
	reply, err := io.ReadAll(io.LimitReader(response.Body, maxReply))
	if err != nil {
		return 0, fmt.Errorf("send spans to %s: read the reply: %w", s.Name(), err)
	}
	switch status := response.StatusCode; {
	case status == http.StatusTooManyRequests || status >= 500 && status != http.StatusNotImplemented:
		if seconds, err := strconv.Atoi(response.Header.Get("Retry-After")); err == nil && seconds > 0 {
			after = time.Duration(seconds) * time.Second
		}
		return after, fmt.Errorf("send spans to %s: %s", s.Name(), response.Status)
	case status == http.StatusRequestEntityTooLarge:
		return 0, fmt.Errorf("%w: %w: %s answers %s", ErrRefused, errTooLarge, s.Name(), response.Status)
	case status >= 300:
		return 0, fmt.Errorf("%w: %s answers %s: %s", ErrRefused, s.Name(), response.Status, firstLine(reply))
	}
	return 0, s.accepted(response.Header.Get("Content-Type"), reply)
}

// withoutURL returns the cause of an error of a client, whose text has the whole address.
func withoutURL(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

// accepted reads the reply to a request that was answered with success. It returns an error
// unless the reply is that of a collector: a page of some other server must not count. Spans
// that the collector says it dropped are reported and not sent again, as OTLP requires.
func (s Sender) accepted(contentType string, reply []byte) error {
	var out collector.ExportTraceServiceResponse
	err := error(nil)
	switch {
	case len(bytes.TrimSpace(reply)) == 0:
	case strings.Contains(contentType, "json"):
		err = protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(reply, &out)
	case strings.Contains(contentType, "protobuf"):
		err = proto.Unmarshal(reply, &out)
	default:
		err = fmt.Errorf("its reply is %q", contentType)
	}
	if err != nil {
		return fmt.Errorf("%w: %s is no collector of traces: %w", ErrRefused, s.Name(), err)
	}
	if n := out.GetPartialSuccess().GetRejectedSpans(); n > 0 && s.Dropped != nil {
		s.Dropped(fmt.Errorf("%s dropped %d spans: %s", s.Name(), n, out.GetPartialSuccess().GetErrorMessage()))
	}
	return nil
}

func firstLine(reply []byte) string {
	line, _, _ := bytes.Cut(bytes.TrimSpace(reply), []byte("\n"))
	return string(line[:min(len(line), 200)])
}

// attributes returns values as OTLP has them, sorted by key. Values of other types than
// text, numbers, truth values and lists of these are written as JSON.
func attributes(values map[string]any) []*common.KeyValue {
	out := make([]*common.KeyValue, 0, len(values))
	for _, key := range sortedKeys(values) {
		out = append(out, &common.KeyValue{Key: key, Value: value(values[key])})
	}
	return out
}

func value(v any) *common.AnyValue {
	switch v := v.(type) {
	case string:
		return &common.AnyValue{Value: &common.AnyValue_StringValue{StringValue: strings.ToValidUTF8(v, "\uFFFD")}}
	case bool:
		return &common.AnyValue{Value: &common.AnyValue_BoolValue{BoolValue: v}}
	case int:
		return &common.AnyValue{Value: &common.AnyValue_IntValue{IntValue: int64(v)}}
	case float64:
		return &common.AnyValue{Value: &common.AnyValue_DoubleValue{DoubleValue: v}}
	case []string:
		return list(v)
	case []any:
		return list(v)
	}
	text, err := json.Marshal(v)
	if err != nil {
		text = []byte(fmt.Sprint(v))
	}
	return value(string(text))
}

func list[T any](values []T) *common.AnyValue {
	a := &common.ArrayValue{}
	for _, v := range values {
		a.Values = append(a.Values, value(v))
	}
	return &common.AnyValue{Value: &common.AnyValue_ArrayValue{ArrayValue: a}}
}
