package trace

import "time"

// SpanKind is the kind of operation that a span describes.
type SpanKind string

// The kinds of span.
const (
	ModelSpan SpanKind = "model" // a model call
	ToolSpan  SpanKind = "tool"  // a tool that ran
	AgentSpan SpanKind = "agent" // an agent, or a step of a graph
	OtherSpan SpanKind = "other"
)

// Span is an OpenTelemetry span that an agent sent about its attempt. An agent can send
// anything: spans explain a trajectory and are no part of it.
type Span struct {
	Address `json:"-"`
	// Trace, ID and Parent are the ids that the agent gave, hex. Parent is empty for a
	// root. Trace and ID identify a span within an attempt: a span that is sent again
	// changes nothing.
	Trace  string `json:"trace"`
	ID     string `json:"id"`
	Parent string `json:"parent,omitempty"`

	Kind    SpanKind  `json:"kind"`
	Name    string    `json:"name"`
	Started time.Time `json:"started"`
	Ended   time.Time `json:"ended"`
	// Failed says that the span ended in an error; Message says which.
	Failed  bool   `json:"failed,omitempty"`
	Message string `json:"message,omitempty"`

	// CallID is the id of the reply of the call that the span describes.
	CallID string `json:"call_id,omitempty"`
	// Agent names the agent or graph node that the span describes.
	Agent string `json:"agent,omitempty"`
	// Tool names the tool that ran; ToolCallID is the id of the tool call that asked
	// for it.
	Tool       string `json:"tool,omitempty"`
	ToolCallID string `json:"tool_call_id,omitempty"`

	// Attributes are further attributes of the span, as far as they fit.
	Attributes map[string]any `json:"attributes,omitempty"`
}
