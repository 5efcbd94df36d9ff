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

	"github.com/fulgurite/fulgurite/gateway"
	"github.com/fulgurite/fulgurite/gateway/otlp"
	"github.com/fulgurite/fulgurite/internal/protocol"
)

// Server serves HTTP on one address until it is closed.
type Server struct {
	address net.Addr
	server  *http.Server
	ended   chan struct{} // closed when serving has ended
}

// Serve answers on the listener with handler.
func Serve(listener net.Listener, handler http.Handler, log *zap.Logger) *Server {
	s := &Server{
		address: listener.Addr(),
		server:  &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute, ErrorLog: zap.NewStdLog(log), Protocols: protocol.Versions()},
		ended:   make(chan struct{}),
	}
	go func() {
		defer close(s.ended)
		if err := s.server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
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

// URL returns where the server can be reached. A server that listens on every address is
// reached by the machine's name.
func (s *Server) URL() string {
	host, port, err := net.SplitHostPort(s.address.String())
	if ip := net.ParseIP(host); err == nil && ip != nil && ip.IsUnspecified() {
		if name, err := os.Hostname(); err == nil {
			return "http://" + net.JoinHostPort(name, port)
		}
	}
	return "http://" + s.address.String()
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

// ServeTraces takes the spans of a gateway's attempts on the listener.
func ServeTraces(listener net.Listener, g *gateway.Gateway, log *zap.Logger) *TraceServer {
	s := &TraceServer{address: listener.Addr(), server: otlp.NewServer(g.RecordSpans, gateway.SpanCode), ended: make(chan struct{})}
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
