package otlp

import (
	"context"
	"strings"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	_ "google.golang.org/grpc/encoding/gzip" // exporters may compress
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// RolloutHeader is the metadata key with the attempt's address for exporters by gRPC,
// which have no path. A resource may have the address instead.
const RolloutHeader = "x-fulgurite-rollout"

// maxBytes is the largest export by gRPC.
const maxBytes = 16 << 20

// Take records an export that was sent with key. It returns how many spans and rewards
// were rejected, and why.
type Take func(ctx context.Context, key string, b Batch) (rejected int, why string, err error)

// NewServer returns a server of OTLP's trace service. code returns the gRPC code for an
// error of take.
func NewServer(take Take, code func(error) codes.Code, options ...grpc.ServerOption) *grpc.Server {
	server := grpc.NewServer(append(options, grpc.MaxRecvMsgSize(maxBytes))...)
	collector.RegisterTraceServiceServer(server, &service{take: take, code: code})
	return server
}

type service struct {
	collector.UnimplementedTraceServiceServer
	take Take
	code func(error) codes.Code
}

// Export implements the service.
func (s *service) Export(ctx context.Context, request *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	b, err := read(request)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	headers, _ := metadata.FromIncomingContext(ctx)
	if named := headers.Get(RolloutHeader); len(named) > 0 {
		b.Rollout = named[0]
	}
	rejected, why, err := s.take(ctx, presented(headers), b)
	if err != nil {
		return nil, status.Error(s.code(err), err.Error())
	}
	return reply(rejected, why), nil
}

// presented returns the key in the metadata.
func presented(headers metadata.MD) string {
	for _, v := range headers.Get("authorization") {
		if scheme, key, ok := strings.Cut(v, " "); ok && strings.EqualFold(scheme, "Bearer") {
			return strings.TrimSpace(key)
		}
	}
	if v := headers.Get("x-api-key"); len(v) > 0 {
		return v[0]
	}
	return ""
}
