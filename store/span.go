package store

import (
	"context"
	"fmt"

	"github.com/fulgurite/fulgurite/trace"
)

// spanRow is a span as its table has it.
type spanRow struct {
	trace.Span
	attributes string // JSON
}

var spans = table[spanRow]{"spans s", append(addressed(func(r *spanRow) *trace.Address { return &r.Address }), []column[spanRow]{
	{"trace", func(r *spanRow) any { return &r.Trace }, false},
	{"id", func(r *spanRow) any { return &r.ID }, false},
	{"parent", func(r *spanRow) any { return &r.Parent }, false},
	{"type", func(r *spanRow) any { return &r.Span.Kind }, false},
	{"name", func(r *spanRow) any { return &r.Name }, false},
	{"started", func(r *spanRow) any { return (*moment)(&r.Started) }, false},
	{"ended", func(r *spanRow) any { return (*moment)(&r.Ended) }, false},
	{"failed", func(r *spanRow) any { return (*flag)(&r.Failed) }, false},
	{"message", func(r *spanRow) any { return &r.Message }, false},
	{"call_id", func(r *spanRow) any { return &r.CallID }, false},
	{"agent", func(r *spanRow) any { return &r.Agent }, false},
	{"tool", func(r *spanRow) any { return &r.Tool }, false},
	{"tool_call_id", func(r *spanRow) any { return &r.ToolCallID }, false},
	{"attributes", func(r *spanRow) any { return &r.attributes }, false},
}...)}

var (
	insertSpan  = spans.insert()
	selectSpans = spans.from() + ` WHERE s.run = $1 AND s.kind = $2 AND s.step = $3 AND s.task = $4 AND s.sample = $5 AND s.attempt = $6
ORDER BY s.started, s.trace, s.id`
)

// PutSpans adds spans to an attempt, all or none. A span whose trace and id are on
// record changes nothing. Exporters send late, so an attempt that is sealed or
// replaced takes spans as well; one that never began is trace.ErrNotFound.
func (s *Store) PutSpans(ctx context.Context, address trace.Address, all []trace.Span) error {
	rows := make([]spanRow, len(all))
	for i, p := range all {
		attributes, err := encode("attributes", p.Attributes)
		if err != nil {
			return fmt.Errorf("put span %s of %s: %w", p.ID, address, err)
		}
		p.Address = address
		rows[i] = spanRow{p, attributes}
	}
	err := s.write(ctx, survivesKill, func(t tx) error {
		if _, err := hold(t, address); err != nil {
			return err
		}
		for _, row := range rows {
			if _, err := t.exec(insertSpan, spans.fields(&row)...); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("put %d spans of %s: %w", len(all), address, err)
	}
	return nil
}

// Spans returns the spans of an attempt by the time they began; none is no error.
func (s *Store) Spans(ctx context.Context, address trace.Address) ([]trace.Span, error) {
	all, err := list(ctx, s.read(), func(row scan) (trace.Span, error) {
		r, err := spans.read(row)
		if err == nil {
			err = decode("attributes", r.attributes, &r.Attributes)
		}
		return r.Span, err
	}, selectSpans, attemptKey(address)...)
	if err != nil {
		return nil, fmt.Errorf("read spans of %s: %w", address, err)
	}
	return all, nil
}
