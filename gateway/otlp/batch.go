package otlp

import (
	"encoding/hex"
	"fmt"
	"math"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/fulgurite/fulgurite/trace"
)

// RolloutAttribute is the resource attribute with the address of the attempt, for
// exporters whose URL can't have it.
const RolloutAttribute = "fulgurite.rollout"

// Batch is one export. Spans and rewards have no address yet.
type Batch struct {
	// Rollout is the address that the resources name; empty if they name none.
	Rollout string
	Spans   []trace.Span
	Rewards []Reward
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
	e := evidence{attributes: map[string]any{}}
	for _, a := range s.GetAttributes() {
		e.attributes[a.GetKey()] = value(a.GetValue(), 0)
	}
	span := trace.Span{
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
