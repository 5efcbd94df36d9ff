package otlp

import (
	"errors"
	"fmt"
	"mime"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	status "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// ErrMalformed is wrapped by errors about an export that can't be read.
var ErrMalformed = errors.New("malformed trace export")

// maxSpans is the most spans of one export.
const maxSpans = 10_000

// Encoding is how an export over HTTP is written; its reply is written in the same way.
type Encoding string

// The encodings, by content type.
const (
	Protobuf Encoding = "application/x-protobuf"
	JSON     Encoding = "application/json"
)

// EncodingOf reads a content type.
func EncodingOf(contentType string) (Encoding, error) {
	kind, _, err := mime.ParseMediaType(contentType)
	switch {
	case err == nil && (kind == string(Protobuf) || kind == "application/protobuf"):
		return Protobuf, nil
	case err == nil && kind == string(JSON):
		return JSON, nil
	}
	return Protobuf, fmt.Errorf("content type %q: send %s or %s", contentType, Protobuf, JSON)
}

// Decode reads an export.
func (e Encoding) Decode(body []byte) (Batch, error) {
	var request collector.ExportTraceServiceRequest
	var err error
	if e == JSON {
		if body, err = hexIDsToBase64(body); err == nil {
			err = protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(body, &request)
		}
	} else {
		err = proto.Unmarshal(body, &request)
	}
	if err != nil {
		return Batch{}, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return read(&request)
}

// Reply returns the body for an accepted export. It says how many spans or rewards were
// rejected, and why.
func (e Encoding) Reply(rejected int, why string) []byte {
	return e.encode(reply(rejected, why))
}

// Failure returns the body for a refused export.
func (e Encoding) Failure(code codes.Code, message string) []byte {
	return e.encode(&status.Status{Code: int32(code), Message: message}) //nolint:gosec // codes are small
}

func reply(rejected int, why string) *collector.ExportTraceServiceResponse {
	r := &collector.ExportTraceServiceResponse{}
	if rejected > 0 || why != "" {
		r.PartialSuccess = &collector.ExportTracePartialSuccess{RejectedSpans: int64(rejected), ErrorMessage: why}
	}
	return r
}

func (e Encoding) encode(m proto.Message) []byte {
	marshal := proto.Marshal
	if e == JSON {
		marshal = protojson.Marshal
	}
	body, err := marshal(m)
	if err != nil { // a message that is not UTF-8
		return nil
	}
	return body
}
