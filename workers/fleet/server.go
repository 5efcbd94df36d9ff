package fleet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/fulgurite/fulgurite/gateway"
	"github.com/fulgurite/fulgurite/gateway/otlp"
	"github.com/fulgurite/fulgurite/internal/protocol"
	"github.com/fulgurite/fulgurite/internal/trust"
)

// Server serves HTTP on one address until it is closed.
type Server struct {
	scheme  string
	address net.Addr
	server  *http.Server
	ended   chan struct{} // closed when serving has ended
}

// Serve answers on the listener with handler, over TLS if Secure made the listener.
func Serve(listener net.Listener, handler http.Handler, log *zap.Logger) *Server {
	s := &Server{
		scheme: "http", address: listener.Addr(),
		server: &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute, ErrorLog: zap.NewStdLog(log), Protocols: protocol.Versions()},
		ended:  make(chan struct{}),
	}
	serve := s.server.Serve
	if l, ok := listener.(secure); ok {
		s.scheme, s.server.TLSConfig = "https", l.certificate.Config()
		serve = func(l net.Listener) error { return s.server.ServeTLS(l, "", "") }
	}
	go func() {
		defer close(s.ended)
		if err := serve(listener); !errors.Is(err, http.ErrServerClosed) {
			log.Error("server ended", zap.Error(err))
		}
	}()
	return s
}

// Listen listens on a TCP address, host:port.
func Listen(ctx context.Context, address string) (net.Listener, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", address, err)
	}
	return l, nil
}

// Secure returns a listener on which servers of this package answer over TLS. Without a
// certificate it returns l.
func Secure(l net.Listener, certificate *trust.Certificate) net.Listener {
	if certificate == nil {
		return l
	}
	return secure{l, certificate}
}

// secure is a listener whose server has a certificate.
type secure struct {
	net.Listener
	certificate *trust.Certificate
}

// URL returns where the server can be reached. A server that listens on every address is
// reached by the machine's name.
func (s *Server) URL() string {
	host, port, err := net.SplitHostPort(s.address.String())
	if ip := net.ParseIP(host); err == nil && ip != nil && ip.IsUnspecified() {
		if name, err := os.Hostname(); err == nil {
			return s.scheme + "://" + net.JoinHostPort(name, port)
		}
	}
	return s.scheme + "://" + s.address.String()
}

// Close stops listening, lets requests under way finish until ctx ends, and then
// breaks them off.
func (s *Server) Close(ctx context.Context) error {
	err := s.server.Shutdown(ctx)
	if err != nil {
		err = fmt.Errorf("drain server: %w", errors.Join(err, s.server.Close()))
	}
	<-s.ended
	return err
}

// TraceServer takes spans by gRPC until it is closed.
type TraceServer struct {
	address net.Addr
	server  *grpc.Server
	ended   chan struct{} // closed when serving has ended
}

// ServeTraces takes the spans of a gateway's attempts on the listener, over TLS if Secure made
// the listener.
func ServeTraces(listener net.Listener, g *gateway.Gateway, log *zap.Logger) *TraceServer {
	var options []grpc.ServerOption
	if l, ok := listener.(secure); ok {
		options = append(options, grpc.Creds(credentials.NewTLS(l.certificate.Config())))
	}
	s := &TraceServer{address: listener.Addr(), server: otlp.NewServer(g.RecordSpans, gateway.SpanCode, options...), ended: make(chan struct{})}
	go func() {
		defer close(s.ended)
		if err := s.server.Serve(listener); err != nil {
			log.Error("trace server ended", zap.Error(err))
		}
	}()
	return s
}

// Address returns host:port.
func (s *TraceServer) Address() string { return s.address.String() }

// Close stops listening and lets exports under way finish until ctx ends, then breaks
// them off.
func (s *TraceServer) Close(ctx context.Context) error {
	defer context.AfterFunc(ctx, s.server.Stop)()
	s.server.GracefulStop()
	<-s.ended
	return nil
}
