package store

import (
	"context"
	"fmt"

	"github.com/fulgurite/fulgurite/store/database"
	"github.com/fulgurite/fulgurite/trace"
)

// spanRow is a span as its table stores it.
type spanRow struct {
	trace.Span
	attributes string // JSON
}

var spans = database.NewTable("spans s", append(addressed(func(r *spanRow) *trace.Address { return &r.Address }),
	database.Col("trace", func(r *spanRow) any { return &r.Trace }),
	database.Col("id", func(r *spanRow) any { return &r.ID }),
	database.Col("parent", func(r *spanRow) any { return &r.Parent }),
	database.Col("type", func(r *spanRow) any { return &r.Span.Kind }),
	database.Col("name", func(r *spanRow) any { return &r.Name }),
	database.Col("started", func(r *spanRow) any { return (*database.Moment)(&r.Started) }),
	database.Col("ended", func(r *spanRow) any { return (*database.Moment)(&r.Ended) }),
	database.Col("failed", func(r *spanRow) any { return (*database.Flag)(&r.Failed) }),
	database.Col("message", func(r *spanRow) any { return &r.Message }),
	database.Col("call_id", func(r *spanRow) any { return &r.CallID }),
	database.Col("agent", func(r *spanRow) any { return &r.Agent }),
	database.Col("tool", func(r *spanRow) any { return &r.Tool }),
	database.Col("tool_call_id", func(r *spanRow) any { return &r.ToolCallID }),
	database.Col("attributes", func(r *spanRow) any { return &r.attributes }),
)...)

var (
	insertSpan  = spans.Insert()
	selectSpans = spans.From() + ` WHERE s.run = $1 AND s.kind = $2 AND s.step = $3 AND s.task = $4 AND s.sample = $5 AND s.attempt = $6
ORDER BY s.started, s.trace, s.id`
)

// PutSpans adds spans to an attempt, all or none. A span whose trace and id are on record
// already changes nothing. Exporters send late, so sealed and replaced attempts accept
// spans as well; an attempt that never began returns trace.ErrNotFound.
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
	err := s.db.Write(ctx, database.SurvivesKill, func(t database.Tx) error {
		if _, err := lockAttempt(t, address); err != nil {
			return err
		}
		for _, row := range rows {
			if _, err := t.Exec(insertSpan, spans.Fields(&row)...); err != nil {
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

// Spans returns the spans of an attempt by the time they began. It is no error if there
// are none.
func (s *Store) Spans(ctx context.Context, address trace.Address) ([]trace.Span, error) {
	all, err := database.List(ctx, s.db.Read(), func(row database.Scan) (trace.Span, error) {
		r, err := spans.Read(row)
		if err == nil {
			err = inJSON{&r.Attributes}.Scan(r.attributes)
		}
		return r.Span, err
	}, selectSpans, attemptKey(address)...)
	if err != nil {
		return nil, fmt.Errorf("read spans of %s: %w", address, err)
	}
	return all, nil
}
