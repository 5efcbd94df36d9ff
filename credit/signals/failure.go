package signals

import (
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/trace"
)

type spanID struct{ trace, span string }

// exceptions finds the calls after which an agent, or a step of it, failed by itself:
// its span failed although no span within it did. A failure within a tool is the tool's
// error, and a failed model call is not the policy's fault. The exception is set on the
// last call before the span's end.
func (r *reader) exceptions() {
	all, explained := map[spanID]trace.Span{}, map[spanID]bool{}
	for _, s := range r.Spans {
		all[spanID{s.Trace, s.ID}] = s
		if s.Failed {
			explained[spanID{s.Trace, s.Parent}] = true
		}
	}
	for _, s := range r.Spans {
		own := s.Kind == trace.AgentSpan || s.Kind == trace.OtherSpan
		if !s.Failed || !own || explained[spanID{s.Trace, s.ID}] || withinTool(s, all) {
			continue
		}
		if i := r.before(s.Ended); i >= 0 {
			r.set(i, spec.SignalException, true)
		}
	}
}

// withinTool reports whether a span lies within the span of a tool.
func withinTool(s trace.Span, all map[spanID]trace.Span) bool {
	for range all { // the sender chooses the ids, so parents may form a circle
		parent, ok := all[spanID{s.Trace, s.Parent}]
		if !ok {
			return false
		}
		if parent.Kind == trace.ToolSpan {
			return true
		}
		s = parent
	}
	return false
}

// reported sets the signals that events report by their names. An event belongs to the
// call that its field call_id names, or else to the last call before it.
func (r *reader) reported() {
	for _, e := range r.Events {
		switch e.Name {
		case spec.SignalToolError, spec.SignalException, spec.SignalRecovered:
		default:
			continue
		}
		i := r.before(e.At)
		if id, ok := e.Fields["call_id"].(string); ok {
			i = r.byID(id)
		}
		if i >= 0 {
			r.set(i, e.Name, true)
		}
	}
}
