package forwarder_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/fulgurite/fulgurite/agent/forwarder"
	"github.com/fulgurite/fulgurite/internal/certtest"
	"github.com/fulgurite/fulgurite/internal/trust"
)

// secureGateway is a gateway with a certificate.
func secureGateway(t *testing.T, c *trust.Certificate, text string) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := &http.Server{Handler: says(http.StatusOK, text), TLSConfig: c.Config(), ReadHeaderTimeout: time.Minute, ErrorLog: zap.NewStdLog(zap.NewNop())}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.ServeTLS(listener, "", "")
	}()
	t.Cleanup(func() {
		_ = server.Close()
		<-ended
	})
	return "https://" + listener.Addr().String()
}

func TestEachStepOfACallMayBeOverTLS(t *testing.T) {
	t.Parallel()
	certificate, trusted := certtest.Open(t)
	url := secureGateway(t, certificate, "an answer")
	f, err := forwarder.New(t.Context(), func() string { return url }, zap.NewNop(), forwarder.At("localhost"), forwarder.Trust(trusted), forwarder.Over(certificate))
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close(context.Background())) }()
	require.Regexp(t, `^https://localhost:\d+$`, f.URL())
	s, err := f.OpenExternal(address("demo"), "key", time.Minute)
	require.NoError(t, err)
	defer s.Close()
	client := &http.Client{Timeout: testTimeout, Transport: &http.Transport{TLSClientConfig: trusted}}
	defer client.CloseIdleConnections()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.BaseURL()+"/chat/completions", strings.NewReader("{}"))
	require.NoError(t, err)
	request.Header.Set("Authorization", "Bearer key")
	reply, err := client.Do(request)
	require.NoError(t, err)
	text, err := io.ReadAll(reply.Body)
	require.NoError(t, err)
	require.NoError(t, reply.Body.Close())
	require.Equal(t, "an answer", string(text))

	_, err = forwarder.CloseExternal(t.Context(), s.BaseURL(), "key", nil)
	require.ErrorContains(t, err, "certificate signed by unknown authority")
	report, err := forwarder.CloseExternal(t.Context(), s.BaseURL(), "key", trusted)
	require.NoError(t, err)
	require.Empty(t, report.Fault)
}

// Agents on the worker's machine accept no private authority, so they get no URL that needs
// one. Services may be on other machines.
func TestAgentsOfThisMachineNeedNoCertificateBesideExternalOnes(t *testing.T) {
	t.Parallel()
	certificate, trusted := certtest.Open(t)
	g := newGateway(t, says(http.StatusOK, "an answer"))
	f, err := forwarder.New(t.Context(), g.at, zap.NewNop(), forwarder.At("localhost"), forwarder.Over(certificate))
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close(context.Background())) }()
	s := open(t, f)
	require.Regexp(t, `^http://127\.0\.0\.1:\d+/r/`, s.BaseURL())
	require.Equal(t, "an answer", ask(t.Context(), s, "a question").body)
	require.Regexp(t, `^https://localhost:\d+/r/`, s.ServiceURL())
	client := &http.Client{Timeout: testTimeout, Transport: &http.Transport{TLSClientConfig: trusted}}
	defer client.CloseIdleConnections()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.ServiceURL()+"/chat/completions", strings.NewReader("{}"))
	require.NoError(t, err)
	request.Header.Set("Authorization", "Bearer key")
	reply, err := client.Do(request)
	require.NoError(t, err)
	require.NoError(t, reply.Body.Close())
	require.Equal(t, http.StatusOK, reply.StatusCode)
	require.Equal(t, 2, s.Calls(), "both addresses belong to one session")
}

// A gateway with a certificate that is not accepted is a gateway that is away: its key is not
// sent there, and the agent waits.
func TestAGatewayThatIsNotTrustedIsNotAsked(t *testing.T) {
	t.Parallel()
	certificate, _ := certtest.Open(t)
	url := secureGateway(t, certificate, "never")
	f := newForwarder(t, func() string { return url })
	require.Regexp(t, `^http://127\.0\.0\.1:`, f.URL(), "agents of this machine need no certificate")
	s := open(t, f)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	require.Error(t, ask(ctx, s, "a question").err)
	require.Zero(t, s.Calls())
	require.Positive(t, s.Waited())
}
