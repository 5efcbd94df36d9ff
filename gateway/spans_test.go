package gateway_test

import (
	"bytes"
	"compress/gzip"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	resource "go.opentelemetry.io/proto/otlp/resource/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	rpc "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/fulgurite/fulgurite/gateway"
	"github.com/fulgurite/fulgurite/gateway/otlp"
	"github.com/fulgurite/fulgurite/record"
)

// traceExport returns an export of one span that describes a reply and gives a reward.
func traceExport(reply string, reward float64, rollout string) *collector.ExportTraceServiceRequest {
	text := func(v string) *common.AnyValue {
		return &common.AnyValue{Value: &common.AnyValue_StringValue{StringValue: v}}
	}
	from := &resource.Resource{}
	if rollout != "" {
		from.Attributes = []*common.KeyValue{{Key: otlp.RolloutAttribute, Value: text(rollout)}}
	}
	return &collector.ExportTraceServiceRequest{ResourceSpans: []*tracepb.ResourceSpans{{Resource: from, ScopeSpans: []*tracepb.ScopeSpans{{
		Spans: []*tracepb.Span{{
			TraceId: []byte("0123456789abcdef"), SpanId: []byte("12345678"), Name: "chat",
			StartTimeUnixNano: uint64(start.UnixNano()), EndTimeUnixNano: uint64(start.Add(time.Second).UnixNano()),
			Attributes: []*common.KeyValue{
				{Key: "gen_ai.operation.name", Value: text("chat")}, {Key: "gen_ai.response.id", Value: text(reply)}, {Key: "gen_ai.agent.name", Value: text("writer")},
				{Key: otlp.RewardAttribute, Value: &common.AnyValue{Value: &common.AnyValue_DoubleValue{DoubleValue: reward}}},
			},
		}},
	}}}}}
}

func exported(t *testing.T, m proto.Message) string {
	t.Helper()
	body, err := proto.Marshal(m)
	require.NoError(t, err)
	return string(body)
}

func TestSpansJoinTheCallThatTheyTellOf(t *testing.T) {
	t.Parallel()
	s := newTestEnv(t, nil)
	s.chat(t, ask("a"))
	id := s.recorded(t)[0].ID
	body := exported(t, traceExport(id, 0.5, ""))
	var small bytes.Buffer
	z := gzip.NewWriter(&small)
	_, err := z.Write([]byte(body))
	require.NoError(t, err)
	require.NoError(t, z.Close())
	for _, path := range []string{"/v1/traces", "/otlp/v1/traces", "/n/writer/v1/traces"} {
		a := s.post(t, s.base()+path, body, "Content-Type", "application/x-protobuf")
		require.Equal(t, http.StatusOK, a.status, a.body)
		require.Equal(t, "application/x-protobuf", a.header.Get("Content-Type"))
	}
	a := s.post(t, s.base()+"/otlp/v1/traces", small.String(), "Content-Type", "application/x-protobuf", "Content-Encoding", "gzip")
	require.Equal(t, http.StatusOK, a.status)
	require.Len(t, s.spans[address], 1, "sent four times, on record once")
	require.Equal(t, id, s.spans[address][0].CallID)
	require.Equal(t, "writer", s.spans[address][0].Agent)
	require.Equal(t, map[string]record.Reward{"final of " + id: {Address: address, Name: "final", Value: 0.5, CallID: id, Source: "agent"}}, s.rewards[address])
}

func TestRewardsOfSpansFollowTheRulesOfPostedOnes(t *testing.T) {
	t.Parallel()
	send := func(t *testing.T, s *testEnv, reward float64) *collector.ExportTracePartialSuccess {
		t.Helper()
		a := s.post(t, s.base()+"/v1/traces", exported(t, traceExport("chatcmpl-0123456789abcdef01234567", reward, "")), "Content-Type", "application/x-protobuf")
		require.Equal(t, http.StatusOK, a.status, a.body)
		require.Len(t, s.spans[address], 1, "the span is taken whatever becomes of the reward")
		var r collector.ExportTraceServiceResponse
		require.NoError(t, proto.Unmarshal([]byte(a.body), &r))
		return r.GetPartialSuccess()
	}
	s := newTestEnv(t, func(a *record.Attempt) { a.Terms.RewardLimit = 2 })
	require.Contains(t, send(t, s, 3).GetErrorMessage(), "beyond the largest reward of this run, 2")
	require.Nil(t, send(t, s, 1))
	require.Empty(t, s.rewards[address]["final"].CallID, "a reply that is not on record is no call")
	require.Contains(t, send(t, s, 2).GetErrorMessage(), "conflict")
	graded := newTestEnv(t, func(a *record.Attempt) { a.Terms.Graded = true })
	require.Contains(t, send(t, graded, 1).GetErrorMessage(), "a grader decides")
	require.Equal(t, map[string]int{record.FinalRewardRefused: 1}, graded.refused(t))
	over := newTestEnv(t, nil)
	over.Seal(address, record.OutcomeCompleted)
	refused := send(t, over, 1)
	require.NotEmpty(t, refused.GetErrorMessage())
	require.Zero(t, refused.GetRejectedSpans(), "the span itself is taken")
	require.Empty(t, over.rewards)
}

func TestExportsMayNameTheirAttempt(t *testing.T) {
	t.Parallel()
	s := newTestEnv(t, nil)
	a := s.post(t, s.url+"/v1/traces", exported(t, traceExport("x", 1, address.String())), "Content-Type", "application/x-protobuf")
	require.Equal(t, http.StatusOK, a.status, a.body)
	require.Len(t, s.spans[address], 1)
	refused := func(a answer, status int, code codes.Code) {
		t.Helper()
		require.Equal(t, status, a.status)
		var f rpc.Status
		require.NoError(t, proto.Unmarshal([]byte(a.body), &f))
		require.Equal(t, int32(code), f.GetCode(), f.GetMessage())
		require.NotEmpty(t, f.GetMessage())
	}
	named := exported(t, traceExport("x", 1, address.String()))
	const kind = "Content-Type"
	refused(s.post(t, s.url+"/v1/traces", exported(t, traceExport("x", 1, "")), kind, "application/x-protobuf"), http.StatusNotFound, codes.NotFound)
	refused(s.post(t, s.url+"/v1/traces", named, kind, "application/x-protobuf", "Authorization", "Bearer wrong"), http.StatusUnauthorized, codes.Unauthenticated)
	refused(s.post(t, s.url+"/v1/traces", named, kind, "application/x-protobuf", "Authorization", ""), http.StatusUnauthorized, codes.Unauthenticated)
	refused(s.post(t, s.base()+"/v1/traces", "garbage", kind, "application/x-protobuf"), http.StatusBadRequest, codes.InvalidArgument)
	refused(s.post(t, s.base()+"/v1/traces", named, kind, "text/plain"), http.StatusUnsupportedMediaType, codes.InvalidArgument)
	require.JSONEq(t, `{}`, s.post(t, s.base()+"/v1/traces", `{"resourceSpans":[]}`, kind, "application/json").body)
}

func TestSpansComeByGRPC(t *testing.T) {
	t.Parallel()
	s := newUnservedEnv(nil)
	g := gateway.New(s.config)
	server := otlp.NewServer(g.RecordSpans, gateway.SpanCode)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		require.NoError(t, <-served)
	})
	connection, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, connection.Close()) })
	client := collector.NewTraceServiceClient(connection)
	withKey := func(pairs ...string) []string { return append([]string{"authorization", "Bearer " + key}, pairs...) }
	send := func(rollout string, headers ...string) error {
		_, err := client.Export(metadata.AppendToOutgoingContext(t.Context(), headers...), traceExport("x", 1, rollout), grpc.UseCompressor("gzip"))
		return err
	}
	require.NoError(t, send(address.String(), withKey()...))
	require.NoError(t, send("", withKey(otlp.RolloutHeader, address.String())...))
	require.Len(t, s.spans[address], 1)
	require.Equal(t, 1.0, s.rewards[address]["final"].Value) //nolint:testifylint // it is the number that was sent
	require.Equal(t, codes.Unauthenticated, status.Code(send(address.String())))
	require.Equal(t, codes.Unauthenticated, status.Code(send(address.String(), "x-api-key", "wrong")))
	require.Equal(t, codes.NotFound, status.Code(send("", withKey()...)))
}
