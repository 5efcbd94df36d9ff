// Package otlp reads what agents report through OpenTelemetry. It turns trace exports of
// the OpenTelemetry protocol, as protobuf or JSON over HTTP or by gRPC, into trace.Span
// values and rewards.
//
// Instrumentations name the same things differently. The package knows the GenAI
// conventions of OpenTelemetry, old and new, OpenInference, OpenLLMetry (Traceloop)
// and the AI SDK, and joins a span to a model call by the id of the reply, which no
// instrumentation has to know about. It keeps nothing, asks no store and trusts no
// sender: a span of any content becomes a span of bounded size, or is refused.
package otlp
