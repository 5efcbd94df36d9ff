// Package otlp reads what agents and evaluators report through OpenTelemetry. It turns trace exports of
// the OpenTelemetry protocol, as protobuf or JSON over HTTP or by gRPC, into record.Span
// values and rewards. Of exports of log records it reads the evaluations of replies.
//
// Instrumentations name the same things differently. The package knows the GenAI
// conventions of OpenTelemetry, old and new, OpenInference, OpenLLMetry (Traceloop)
// and the AI SDK, and joins a span to a model call by the id of the reply, which no
// instrumentation has to know about. It keeps nothing, asks no store and trusts no
// sender: a span of any content becomes a span of bounded size, or is refused.
package otlp

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"mime"
	"strings"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	status "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/fulgurite/fulgurite/record"
)

// RolloutAttribute is the resource attribute with the address of the attempt, for
// exporters whose URL can't have it.
const RolloutAttribute = "fulgurite.rollout"

// Batch is one export. Spans and rewards have no address yet.
type Batch struct {
	// Rollout is the address that the resources name; empty if they name none.
	Rollout string
	Spans   []record.Span
	Rewards []Reward
	// Evaluations are the events of spans that judge replies.
	Evaluations []Evaluation
}

// read converts an export. A span without ids is an error, because it can't be
// distinguished from others. So are two addresses in one export.
func read(request *collector.ExportTraceServiceRequest) (Batch, error) {
	var b Batch
	for _, resource := range request.GetResourceSpans() {
		if err := b.name(resource.GetResource().GetAttributes()); err != nil {
			return Batch{}, err
		}
		for _, scope := range resource.GetScopeSpans() {
			for _, s := range scope.GetSpans() {
				if err := b.add(s); err != nil {
					return Batch{}, err
				}
			}
		}
	}
	return b, nil
}

func (b *Batch) name(attributes []*common.KeyValue) error {
	for _, a := range attributes {
		if a.GetKey() != RolloutAttribute {
			continue
		}
		name := a.GetValue().GetStringValue()
		if b.Rollout != "" && b.Rollout != name {
			return fmt.Errorf("%w: one export speaks of %.200q and of %.200q", ErrMalformed, b.Rollout, name)
		}
		b.Rollout = name
	}
	return nil
}

func (b *Batch) add(s *tracepb.Span) error {
	if len(b.Spans) == maxSpans {
		return fmt.Errorf("%w: more than %d spans", ErrMalformed, maxSpans)
	}
	if len(s.GetTraceId()) != 16 || len(s.GetSpanId()) != 8 {
		return fmt.Errorf("%w: span %d (%.80q) has a trace id of %d bytes and a span id of %d: want 16 and 8",
			ErrMalformed, len(b.Spans), s.GetName(), len(s.GetTraceId()), len(s.GetSpanId()))
	}
	e := evidenceOf(s.GetAttributes())
	span := record.Span{
		Trace: hex.EncodeToString(s.GetTraceId()), ID: hex.EncodeToString(s.GetSpanId()), Parent: hex.EncodeToString(s.GetParentSpanId()),
		Name: truncate(s.GetName(), shortText), Started: at(s.GetStartTimeUnixNano()), Ended: at(s.GetEndTimeUnixNano()),
		Failed: s.GetStatus().GetCode() == tracepb.Status_STATUS_CODE_ERROR, Message: s.GetStatus().GetMessage(),
	}
	for _, event := range s.GetEvents() {
		if event.GetName() == "exception" {
			span.Failed = true
			span.Message = firstText(span.Message, exception(event))
		}
	}
	span.Message = truncate(span.Message, longText)
	e.describe(&span)
	b.Evaluations = append(b.Evaluations, evaluations(len(b.Spans), s, e)...)
	if len(b.Evaluations) > maxRecords {
		return fmt.Errorf("%w: more than %d events %s", ErrMalformed, maxRecords, EvaluationEvent)
	}
	b.Spans = append(b.Spans, span)
	b.Rewards = append(b.Rewards, e.rewards(span)...)
	return nil
}

func exception(event *tracepb.Span_Event) string {
	var kind, message string
	for _, a := range event.GetAttributes() {
		switch a.GetKey() {
		case "exception.type":
			kind = a.GetValue().GetStringValue()
		case "exception.message":
			message = a.GetValue().GetStringValue()
		}
	}
	if kind != "" && message != "" {
		return kind + ": " + message
	}
	return kind + message
}

// at converts a time; times outside a clock's range become the zero time.
func at(nanos uint64) time.Time {
	if nanos == 0 || nanos > math.MaxInt64 {
		return time.Time{}
	}
	return time.Unix(0, int64(nanos)).UTC()
}

// deepest is how deeply values may be nested; deeper ones are left out.
const deepest = 8

// value converts an attribute's value to the types of JSON.
func value(v *common.AnyValue, depth int) any {
	if depth > deepest {
		return nil
	}
	switch v := v.GetValue().(type) {
	case *common.AnyValue_StringValue:
		return v.StringValue
	case *common.AnyValue_BoolValue:
		return v.BoolValue
	case *common.AnyValue_IntValue:
		return float64(v.IntValue)
	case *common.AnyValue_DoubleValue:
		if math.IsNaN(v.DoubleValue) || math.IsInf(v.DoubleValue, 0) {
			return fmt.Sprint(v.DoubleValue)
		}
		return v.DoubleValue
	case *common.AnyValue_BytesValue:
		return hex.EncodeToString(v.BytesValue)
	case *common.AnyValue_ArrayValue:
		all := []any{}
		for _, inner := range v.ArrayValue.GetValues() {
			all = append(all, value(inner, depth+1))
		}
		return all
	case *common.AnyValue_KvlistValue:
		all := map[string]any{}
		for _, inner := range v.KvlistValue.GetValues() {
			all[inner.GetKey()] = value(inner.GetValue(), depth+1)
		}
		return all
	}
	return nil
}

// ErrMalformed is wrapped by errors about an export that can't be read.
var ErrMalformed = errors.New("malformed export")

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
	if err := e.unmarshal(body, &request); err != nil {
		return Batch{}, err
	}
	return read(&request)
}

func (e Encoding) unmarshal(body []byte, request proto.Message) (err error) {
	if e == JSON {
		if body, err = hexIDsToBase64(body); err == nil {
			err = protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(body, request)
		}
	} else {
		err = proto.Unmarshal(body, request)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return nil
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

// hexIDsToBase64 rewrites ids into Protobuf's JSON form: OTLP writes the bytes of ids in
// hex, Protobuf writes all bytes in base64.
func hexIDsToBase64(body []byte) ([]byte, error) {
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber() // times are integers of 64 bits
	var export map[string]any
	if err := d.Decode(&export); err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is more after the JSON object")
	}
	if err := eachID(export); err != nil {
		return nil, err
	}
	return json.Marshal(export)
}

// eachID rewrites the ids in v and in all values that v contains.
func eachID(v any) error {
	switch v := v.(type) {
	case map[string]any:
		for name, inner := range v {
			if !isID(name) {
				if err := eachID(inner); err != nil {
					return err
				}
				continue
			}
			text, ok := inner.(string)
			if !ok {
				return fmt.Errorf("%s is not a text of hex digits", name)
			}
			id, err := hex.DecodeString(strings.TrimSpace(text))
			if err != nil {
				return fmt.Errorf("%s %.80q is not hex", name, text)
			}
			v[name] = base64.StdEncoding.EncodeToString(id)
		}
	case []any:
		for _, inner := range v {
			if err := eachID(inner); err != nil {
				return err
			}
		}
	}
	return nil
}

func isID(name string) bool {
	switch name {
	case "traceId", "spanId", "parentSpanId", "trace_id", "span_id", "parent_span_id":
		return true
	}
	return false
}
