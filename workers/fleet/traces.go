package fleet

import (
	"context"
	"net"

	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/fulgurite/fulgurite/gateway"
	"github.com/fulgurite/fulgurite/gateway/otlp"
)

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
