package fleet_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/fulgurite/fulgurite/gateway"
	"github.com/fulgurite/fulgurite/internal/certtest"
	"github.com/fulgurite/fulgurite/workers/fleet"
)

func TestAServerAnswersTheVersionsOfHTTPThatAgentsSpeak(t *testing.T) {
	t.Parallel()
	listener, err := fleet.Listen(t.Context(), "127.0.0.1:0")
	require.NoError(t, err)
	server := fleet.Serve(listener, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Proto) }), zap.NewNop())
	t.Cleanup(func() { require.NoError(t, server.Close(context.Background())) })
	for _, version := range []int{1, 2} {
		var only http.Protocols
		only.SetHTTP1(version == 1)
		only.SetUnencryptedHTTP2(version == 2)
		client := http.Client{Transport: &http.Transport{Protocols: &only}}
		defer client.CloseIdleConnections()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL(), nil)
		require.NoError(t, err)
		response, err := client.Do(r)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		require.Equal(t, version, response.ProtoMajor)
	}
}

func TestSpansByGRPCComeOverTLS(t *testing.T) {
	t.Parallel()
	certificate, trusted := certtest.Open(t)
	listener, err := fleet.Listen(t.Context(), "127.0.0.1:0")
	require.NoError(t, err)
	require.Equal(t, listener, fleet.Secure(listener, nil), "without a certificate there is no TLS")
	server := fleet.ServeTraces(fleet.Secure(listener, certificate), gateway.New(gateway.Config{}), zap.NewNop())
	t.Cleanup(func() { require.NoError(t, server.Close(context.Background())) })
	send := func(c credentials.TransportCredentials) codes.Code {
		t.Helper()
		connection, err := grpc.NewClient(server.Address(), grpc.WithTransportCredentials(c))
		require.NoError(t, err)
		defer func() { require.NoError(t, connection.Close()) }()
		_, err = collector.NewTraceServiceClient(connection).Export(t.Context(), &collector.ExportTraceServiceRequest{})
		return grpcstatus.Code(err)
	}
	require.Equal(t, codes.NotFound, send(credentials.NewTLS(trusted)), "it is read, and names no attempt")
	require.Equal(t, codes.Unavailable, send(insecure.NewCredentials()))
	require.Equal(t, codes.Unavailable, send(credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS12})))
}

func TestAServerWithACertificateSaysSoInItsAddress(t *testing.T) {
	t.Parallel()
	certificate, trusted := certtest.Open(t)
	listener, err := fleet.Listen(t.Context(), "127.0.0.1:0")
	require.NoError(t, err)
	server := fleet.Serve(fleet.Secure(listener, certificate), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Proto) }), zap.NewNop())
	t.Cleanup(func() { require.NoError(t, server.Close(context.Background())) })
	require.Regexp(t, `^https://127\.0\.0\.1:\d+$`, server.URL())
	client := http.Client{Transport: &http.Transport{TLSClientConfig: trusted}}
	defer client.CloseIdleConnections()
	reply, err := client.Get(server.URL())
	require.NoError(t, err)
	require.NoError(t, reply.Body.Close())
	require.Equal(t, 1, reply.ProtoMajor)
}
