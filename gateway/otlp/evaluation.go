package otlp

import (
	"fmt"
	"time"

	logs "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	logspb "go.opentelemetry.io/proto/otlp/logs/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
)

// EvaluationEvent is the name of the events that say what a reply is worth. It and the
// attributes are those of OpenTelemetry's conventions for generative AI.
const EvaluationEvent = "gen_ai.evaluation.result"

// Attributes of an EvaluationEvent.
const (
	EvaluationName        = "gen_ai.evaluation.name"
	EvaluationScore       = "gen_ai.evaluation.score.value"
	EvaluationLabel       = "gen_ai.evaluation.score.label"
	EvaluationExplanation = "gen_ai.evaluation.explanation"
	ResponseID            = "gen_ai.response.id"
)

// maxRecords is the most log records of one export.
const maxRecords = 10_000

// Evaluation is what an event says of a reply. Its texts have any length.
type Evaluation struct {
	Reply       string // gen_ai.response.id
	Name        string
	Score       *float64 // nil if the event has none
	Label       string
	Explanation string
	User        string    // user.id or enduser.id; empty if the event names none
	Time        time.Time // of the event
	// Span is the index of the span that has the event, in its export; 0 for a log record.
	Span int
	// Refusal says why it is no evaluation; the other fields then have no meaning.
	Refusal string
}

// DecodeLogs reads an export of log records. It returns one evaluation for each record, in
// order. A record that is none has a Refusal.
func (e Encoding) DecodeLogs(body []byte) ([]Evaluation, error) {
	var request logs.ExportLogsServiceRequest
	if err := e.unmarshal(body, &request); err != nil {
		return nil, err
	}
	var out []Evaluation
	for _, resource := range request.GetResourceLogs() {
		for _, scope := range resource.GetScopeLogs() {
			for _, r := range scope.GetLogRecords() {
				if len(out) == maxRecords {
					return nil, fmt.Errorf("%w: more than %d log records", ErrMalformed, maxRecords)
				}
				out = append(out, evaluationOf(r))
			}
		}
	}
	return out, nil
}

// LogsReply returns the body for an accepted export of log records. It says how many were
// rejected, and why.
func (e Encoding) LogsReply(rejected int, why string) []byte {
	r := &logs.ExportLogsServiceResponse{}
	if rejected > 0 || why != "" {
		r.PartialSuccess = &logs.ExportLogsPartialSuccess{RejectedLogRecords: int64(rejected), ErrorMessage: why}
	}
	return e.encode(r)
}

func evaluationOf(r *logspb.LogRecord) Evaluation {
	attributes := evidenceOf(r.GetAttributes())
	name := r.GetEventName()
	if name == "" {
		name = attributes.text("event.name") // as SDKs wrote it before records had names
	}
	if name != EvaluationEvent {
		return Evaluation{Refusal: fmt.Sprintf("it is no event %s", EvaluationEvent)}
	}
	when := at(r.GetTimeUnixNano())
	if when.IsZero() {
		when = at(r.GetObservedTimeUnixNano())
	}
	return attributes.evaluation(when)
}

// evaluations returns those among the events of a span. They are about the reply that the span
// describes, unless they name another; described has the attributes of the span.
func evaluations(index int, s *tracepb.Span, described evidence) []Evaluation {
	var out []Evaluation
	for _, event := range s.GetEvents() {
		if event.GetName() != EvaluationEvent {
			continue
		}
		attributes := evidenceOf(event.GetAttributes())
		if attributes.text(ResponseID) == "" {
			attributes.attributes[ResponseID] = described.text(ResponseID)
		}
		e := attributes.evaluation(at(event.GetTimeUnixNano()))
		e.Span = index
		out = append(out, e)
	}
	return out
}

func evidenceOf(attributes []*common.KeyValue) evidence {
	e := evidence{attributes: map[string]any{}}
	for _, a := range attributes {
		e.attributes[a.GetKey()] = value(a.GetValue(), 0)
	}
	return e
}

// evaluation reads the attributes of an event.
func (e evidence) evaluation(at time.Time) Evaluation {
	out := Evaluation{
		Reply: e.text(ResponseID), Name: e.text(EvaluationName), Label: e.text(EvaluationLabel), Explanation: e.text(EvaluationExplanation),
		User: e.text("user.id", "enduser.id"), Time: at,
	}
	if v, ok := e.attributes[EvaluationScore]; ok {
		score, number := v.(float64)
		if !number || !(-1 <= score && score <= 1) {
			out.Refusal = fmt.Sprintf("%s is %.40v: give a number from -1 to 1", EvaluationScore, v)
		}
		out.Score = &score
	}
	switch {
	case out.Refusal != "":
	case e.text("error.type") != "":
		out.Refusal = fmt.Sprintf("its evaluation failed: error.type is %.80q", e.text("error.type"))
	case out.Name == "":
		out.Refusal = EvaluationName + " is missing"
	case out.Reply == "":
		out.Refusal = ResponseID + " is missing: give the id that came with the reply"
	}
	return out
}
