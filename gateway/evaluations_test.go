package gateway_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/require"
	logs "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	logspb "go.opentelemetry.io/proto/otlp/logs/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	rpc "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/fulgurite/fulgurite/gateway"
	"github.com/fulgurite/fulgurite/record"
)

const (
	evaluationEvent = "gen_ai.evaluation.result"
	asProtobuf      = "application/x-protobuf"
)

// fields returns attributes by names and values in turn.
func fields(pairs ...any) []*common.KeyValue {
	var out []*common.KeyValue
	for i := 0; i < len(pairs); i += 2 {
		v := &common.AnyValue{}
		switch value := pairs[i+1].(type) {
		case string:
			v.Value = &common.AnyValue_StringValue{StringValue: value}
		case float64:
			v.Value = &common.AnyValue_DoubleValue{DoubleValue: value}
		case int:
			v.Value = &common.AnyValue_IntValue{IntValue: int64(value)}
		}
		out = append(out, &common.KeyValue{Key: pairs[i].(string), Value: v})
	}
	return out
}

// evaluation is a log record that judges a reply by the name relevance.
func evaluation(reply string, pairs ...any) *logspb.LogRecord {
	return &logspb.LogRecord{
		EventName: evaluationEvent, TimeUnixNano: uint64(start.UnixNano()), TraceId: []byte("0123456789abcdef"), SpanId: []byte("12345678"),
		Attributes: fields(append([]any{"gen_ai.evaluation.name", "relevance", "gen_ai.response.id", reply}, pairs...)...),
	}
}

func logExport(records ...*logspb.LogRecord) *logs.ExportLogsServiceRequest {
	return &logs.ExportLogsServiceRequest{ResourceLogs: []*logspb.ResourceLogs{{ScopeLogs: []*logspb.ScopeLogs{{LogRecords: records}}}}}
}

// send exports log records as protobuf.
func (s *servingEnv) send(t *testing.T, key string, records ...*logspb.LogRecord) answer {
	t.Helper()
	return s.post(t, s.url+"/v1/logs", exported(t, logExport(records...)), "Content-Type", asProtobuf, "Authorization", "Bearer "+key)
}

// requireRejected asserts how many log records an accepted export lost, and returns why.
func requireRejected(t *testing.T, a answer, want int) string {
	t.Helper()
	require.Equal(t, http.StatusOK, a.status, a.body)
	require.Equal(t, asProtobuf, a.header.Get("Content-Type"))
	var out logs.ExportLogsServiceResponse
	require.NoError(t, proto.Unmarshal([]byte(a.body), &out))
	require.Equal(t, int64(want), out.GetPartialSuccess().GetRejectedLogRecords(), out.GetPartialSuccess().GetErrorMessage())
	return out.GetPartialSuccess().GetErrorMessage()
}

func newEvaluated(t *testing.T, configure ...func(*gateway.Config)) (s *servingEnv, app string) {
	t.Helper()
	s = newServingEnv(t, configure...)
	s.record(t, "demo", 0, "app", "", "chatcmpl-a", "chatcmpl-b")
	s.record(t, "demo", 1, "other", "", "chatcmpl-c")
	return s, s.key(t, "app", 0, record.ScopeServe, record.ScopeFeedback)
}

func TestAnEvaluationIsFeedbackInEveryEncoding(t *testing.T) {
	t.Parallel()
	s, app := newEvaluated(t)
	export := logExport(evaluation("chatcmpl-a", "gen_ai.evaluation.score.value", -0.5, "gen_ai.evaluation.score.label", "fail", "gen_ai.evaluation.explanation", "off the topic", "user.id", "ann"))
	body := exported(t, export)
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, err := z.Write([]byte(body))
	require.NoError(t, err)
	require.NoError(t, z.Close())
	text, err := protojson.Marshal(export)
	require.NoError(t, err)
	asJSON := string(text)
	for plain, id := range map[string][]byte{"MDEyMzQ1Njc4OWFiY2RlZg==": []byte("0123456789abcdef"), "MTIzNDU2Nzg=": []byte("12345678")} {
		require.Contains(t, asJSON, plain)
		asJSON = strings.ReplaceAll(asJSON, plain, hex.EncodeToString(id))
	}
	for _, path := range []string{"/v1/logs", "/n/judge/v1/logs"} {
		requireRejected(t, s.post(t, s.url+path, body, "Content-Type", asProtobuf, "Authorization", "Bearer "+app), 0)
	}
	requireRejected(t, s.post(t, s.url+"/v1/logs", packed.String(), "Content-Type", asProtobuf, "Content-Encoding", "gzip", "Authorization", "Bearer "+app), 0)
	a := s.post(t, s.url+"/v1/logs", asJSON, "Content-Type", "application/json", "Authorization", "Bearer "+app)
	require.Equal(t, http.StatusOK, a.status, a.body)
	require.JSONEq(t, `{}`, a.body)

	ann, err := s.store.HashUser(t.Context(), "ann")
	require.NoError(t, err)
	all := s.feedback(t, "demo", 0)
	require.Len(t, all, 1, "sent four times, on record once")
	reward := -0.5
	require.Empty(t, cmp.Diff(record.Feedback{
		Run: "demo", CallID: "chatcmpl-a", Reward: &reward, Labels: []string{"relevance:fail"}, Comment: "off the topic", User: ann, Key: "app", At: start,
	}, all[0], cmpopts.IgnoreFields(record.Feedback{}, "ID")))
	require.Regexp(t, `^app/otel-[0-9a-f]{64}$`, all[0].ID)
	require.Empty(t, all[0].Thumb, "a label that says fail is a label")
}

func TestEachEventIsFeedbackOfItsOwn(t *testing.T) {
	t.Parallel()
	s, app := newEvaluated(t)
	later := evaluation("chatcmpl-a", "gen_ai.evaluation.score.value", 1)
	later.TimeUnixNano++
	old := evaluation("chatcmpl-b", "event.name", evaluationEvent, "gen_ai.evaluation.score.value", 1)
	old.EventName, old.TimeUnixNano, old.ObservedTimeUnixNano = "", 0, uint64(start.UnixNano())
	requireRejected(t, s.send(t, app, evaluation("chatcmpl-a", "gen_ai.evaluation.score.value", 1), later, old, evaluation("chatcmpl-b")), 0)
	all := s.feedback(t, "demo", 0)
	require.Len(t, all, 4)
	labels := map[string]int{}
	for _, f := range all {
		labels[strings.Join(f.Labels, ",")]++
	}
	require.Equal(t, map[string]int{"relevance": 4}, labels)
}

func TestEventsThatAreNoFeedbackAreCountedWithTheirReasons(t *testing.T) {
	t.Parallel()
	s, app := newEvaluated(t)
	good := evaluation("chatcmpl-a", "gen_ai.evaluation.score.value", 0.25)
	for want, bad := range map[string]*logspb.LogRecord{
		`no recorded reply "chatcmpl-none" is yours`:                   evaluation("chatcmpl-none"),
		`no recorded reply "chatcmpl-c" is yours`:                      evaluation("chatcmpl-c"), // of another client
		"gen_ai.evaluation.score.value is 1.5: give a number":          evaluation("chatcmpl-a", "gen_ai.evaluation.score.value", 1.5),
		"gen_ai.evaluation.score.value is -2: give a number":           evaluation("chatcmpl-a", "gen_ai.evaluation.score.value", -2),
		"gen_ai.evaluation.score.value is high: give a number":         evaluation("chatcmpl-a", "gen_ai.evaluation.score.value", "high"),
		"gen_ai.response.id is missing":                                evaluation(""),
		"gen_ai.evaluation.name is missing":                            evaluation("chatcmpl-a", "gen_ai.evaluation.name", ""),
		`its evaluation failed: error.type is "timeout"`:               evaluation("chatcmpl-a", "error.type", "timeout"),
		"gen_ai.evaluation.score.label have 80 bytes together":         evaluation("chatcmpl-a", "gen_ai.evaluation.score.label", strings.Repeat("x", 70)),
		"comment has 16385 bytes":                                      evaluation("chatcmpl-a", "gen_ai.evaluation.explanation", strings.Repeat("x", 16<<10+1)),
		"reply has 200 bytes":                                          evaluation(strings.Repeat("x", 200)),
		"it is no event gen_ai.evaluation.result":                      {EventName: "gen_ai.client.inference.operation.details"},
		`no recorded reply "chatcmpl-a#1" is yours`:                    evaluation("chatcmpl-a#1"),
		"labels[0] has to be 1 to 64 bytes without control characters": evaluation("chatcmpl-a", "gen_ai.evaluation.score.label", "a\nb"),
	} {
		why := requireRejected(t, s.send(t, app, good, bad, good), 1)
		require.Contains(t, why, "1 of 3 were not taken. log record 1: ", want)
		require.Contains(t, why, want)
	}
	require.Len(t, s.feedback(t, "demo", 0), 1, "the others are taken")

	bad := slices.Repeat([]*logspb.LogRecord{{EventName: "other"}}, 5)
	require.Equal(t, "5 of 5 were not taken. log record 0: it is no event gen_ai.evaluation.result; log record 1: it is no event gen_ai.evaluation.result; log record 2: it is no event gen_ai.evaluation.result; and 2 more",
		requireRejected(t, s.send(t, app, bad...), 5))
}

func TestEvaluationsOfChoicesAndOfOthersNeedWhatFeedbackNeeds(t *testing.T) {
	t.Parallel()
	s, _ := newEvaluated(t)
	serve, collect := s.key(t, "serve", 0, record.ScopeServe), s.key(t, "collect", 0, record.ScopeFeedbackAny)
	requireRejected(t, s.send(t, collect, evaluation("chatcmpl-a"), evaluation("chatcmpl-c")), 0)
	require.Len(t, s.feedback(t, "demo", 1), 1)
	for key, want := range map[string]int{serve: http.StatusForbidden, "sk-forged": http.StatusUnauthorized} {
		a := s.send(t, key, evaluation("chatcmpl-a"))
		require.Equal(t, want, a.status, a.body)
		require.NoError(t, proto.Unmarshal([]byte(a.body), &rpc.Status{}))
	}
	malformed := s.post(t, s.url+"/v1/logs", "{", "Content-Type", "application/json", "Authorization", "Bearer "+collect)
	require.Equal(t, http.StatusBadRequest, malformed.status)
	require.Contains(t, malformed.body, "malformed export")
	require.Equal(t, http.StatusUnsupportedMediaType, s.post(t, s.url+"/v1/logs", "", "Content-Type", "text/plain", "Authorization", "Bearer "+collect).status)
	many := slices.Repeat([]*logspb.LogRecord{{}}, 10_001)
	require.Equal(t, http.StatusBadRequest, s.send(t, collect, many...).status)
}

func TestEachEvaluationCountsAgainstTheLimitOfItsKey(t *testing.T) {
	t.Parallel()
	s, _ := newEvaluated(t)
	few := s.key(t, "few", 10, record.ScopeFeedbackAny)
	batch := func(n int) []*logspb.LogRecord {
		out := make([]*logspb.LogRecord, n)
		for i := range out {
			out[i] = evaluation("chatcmpl-a")
			out[i].TimeUnixNano += uint64(i)
		}
		return out
	}
	requireRejected(t, s.send(t, few, batch(8)...), 0)
	a := s.send(t, few, batch(8)...)
	require.Equal(t, http.StatusTooManyRequests, a.status)
	seconds, err := strconv.Atoi(a.header.Get("Retry-After"))
	require.NoError(t, err)
	s.later(time.Duration(seconds) * time.Second)
	requireRejected(t, s.send(t, few, batch(8)...), 0) // after what time it was told to come
	s.later(time.Minute)
	requireRejected(t, s.send(t, few, batch(30)...), 0) // more than a minute has takes the whole minute
	require.Equal(t, http.StatusTooManyRequests, s.send(t, few, batch(1)...).status)
	require.Len(t, s.feedback(t, "demo", 0), 30)
}

// unwritable is a store that can't record feedback.
type unwritable struct{ gateway.Feedback }

func (unwritable) PutFeedback(context.Context, record.Feedback) (record.Feedback, bool, error) {
	return record.Feedback{}, false, errors.New("disk full")
}

func TestAnExportIsSentAgainAfterAFault(t *testing.T) {
	t.Parallel()
	s, app := newEvaluated(t, func(c *gateway.Config) { c.Feedback = unwritable{c.Feedback} })
	a := s.send(t, app, evaluation("chatcmpl-a"))
	require.Equal(t, http.StatusServiceUnavailable, a.status, "exporters send it again")
	s.config.Feedback = s.store
	s.restart(t)
	requireRejected(t, s.send(t, app, evaluation("chatcmpl-a")), 0)
}

// partlyWritable is a store that can't record what has a comment.
type partlyWritable struct{ gateway.Feedback }

func (p partlyWritable) PutFeedback(ctx context.Context, f record.Feedback) (record.Feedback, bool, error) {
	if f.Comment != "" {
		return record.Feedback{}, false, errors.New("the redactor fails")
	}
	return p.Feedback.PutFeedback(ctx, f)
}

func TestAFaultOfOneEvaluationKeepsNoOtherFromBeingRecorded(t *testing.T) {
	t.Parallel()
	s, app := newEvaluated(t, func(c *gateway.Config) { c.Feedback = partlyWritable{c.Feedback} })
	all := []*logspb.LogRecord{evaluation("chatcmpl-a", "gen_ai.evaluation.explanation", "why")}
	for i := range 100 {
		all = append(all, evaluation("chatcmpl-a"))
		all[i+1].TimeUnixNano += uint64(i)
	}
	require.Equal(t, http.StatusServiceUnavailable, s.send(t, app, all...).status)
	require.Len(t, s.feedback(t, "demo", 0), 100)
}

func TestEventsOfSpansJudgeTheReplyOfTheirSpan(t *testing.T) {
	t.Parallel()
	s, app := newEvaluated(t)
	event := func(pairs ...any) *tracepb.Span_Event {
		return &tracepb.Span_Event{Name: evaluationEvent, TimeUnixNano: uint64(start.UnixNano()), Attributes: fields(append([]any{"gen_ai.evaluation.name", "relevance"}, pairs...)...)}
	}
	span := func(n int, reply string, events ...*tracepb.Span_Event) *tracepb.Span {
		return &tracepb.Span{TraceId: []byte("0123456789abcdef"), SpanId: fmt.Appendf(nil, "1234567%d", n), Name: "chat", Attributes: fields("gen_ai.response.id", reply), Events: events}
	}
	export := &collector.ExportTraceServiceRequest{ResourceSpans: []*tracepb.ResourceSpans{{ScopeSpans: []*tracepb.ScopeSpans{{Spans: []*tracepb.Span{
		span(0, "chatcmpl-a", event("gen_ai.evaluation.score.value", 1), event("gen_ai.response.id", "chatcmpl-b")),
		span(1, "chatcmpl-a"),
		span(2, "chatcmpl-none", event("gen_ai.evaluation.score.value", 1)),
		span(3, "chatcmpl-b", event("gen_ai.evaluation.score.value", 3), event("gen_ai.evaluation.score.value", 0.5)),
	}}}}}}
	post := func(key string) answer {
		return s.post(t, s.url+"/v1/traces", exported(t, export), "Content-Type", asProtobuf, "Authorization", "Bearer "+key)
	}
	for range 2 {
		a := post(app)
		require.Equal(t, http.StatusOK, a.status, a.body)
		var out collector.ExportTraceServiceResponse
		require.NoError(t, proto.Unmarshal([]byte(a.body), &out))
		require.Equal(t, int64(3), out.GetPartialSuccess().GetRejectedSpans())
		why := out.GetPartialSuccess().GetErrorMessage()
		for _, part := range []string{"span 1: outside attempts, only events", `span 2: no recorded reply "chatcmpl-none"`, "span 3: gen_ai.evaluation.score.value is 3"} {
			require.Contains(t, why, part)
		}
	}
	require.Equal(t, http.StatusUnauthorized, post("sk-forged").status)
	judged := map[string]int{}
	for _, f := range s.feedback(t, "demo", 0) {
		judged[f.CallID]++
	}
	require.Equal(t, map[string]int{"chatcmpl-a": 1, "chatcmpl-b": 2}, judged)
}
