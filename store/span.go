package store

import (
	"context"
	"fmt"

	"github.com/fulgurite/fulgurite/trace"
)

const (
	insertSpan = `INSERT INTO spans (run, kind, step, task, sample, attempt, trace, id, parent, type, name, started, ended, failed, message,
call_id, agent, tool, tool_call_id, attributes)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20) ON CONFLICT DO NOTHING`
	selectSpans = `SELECT s.trace, s.id, s.parent, s.type, s.name, s.started, s.ended, s.failed, s.message, s.call_id, s.agent, s.tool, s.tool_call_id, s.attributes
FROM spans s WHERE s.run = $1 AND s.kind = $2 AND s.step = $3 AND s.task = $4 AND s.sample = $5 AND s.attempt = $6
ORDER BY s.started, s.trace, s.id`
)

// PutSpans adds spans to an attempt, all or none. A span whose trace and id are on
// record changes nothing. Exporters send late, so an attempt that is sealed or
// replaced takes spans as well; one that never began is trace.ErrNotFound.
func (s *Store) PutSpans(ctx context.Context, address trace.Address, spans []trace.Span) error {
	rows := make([][]any, len(spans))
	for i, p := range spans {
		attributes, err := encode("attributes", p.Attributes)
		if err != nil {
			return fmt.Errorf("put span %s of %s: %w", p.ID, address, err)
		}
		rows[i] = append(attemptKey(address), p.Trace, p.ID, p.Parent, p.Kind, p.Name, nanos(p.Started), nanos(p.Ended), truth(p.Failed), p.Message,
			p.CallID, p.Agent, p.Tool, p.ToolCallID, attributes)
	}
	err := s.write(ctx, survivesKill, func(t tx) error {
		if _, err := hold(t, address); err != nil {
			return err
		}
		for _, row := range rows {
			if _, err := t.exec(insertSpan, row...); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("put %d spans of %s: %w", len(spans), address, err)
	}
	return nil
}

// Spans returns the spans of an attempt by the time they began; none is no error.
func (s *Store) Spans(ctx context.Context, address trace.Address) ([]trace.Span, error) {
	all, err := list(ctx, s.read(), func(row scan) (trace.Span, error) {
		p := trace.Span{Address: address}
		var kind, attributes string
		var started, ended int64
		var failed int
		if err := row(&p.Trace, &p.ID, &p.Parent, &kind, &p.Name, &started, &ended, &failed, &p.Message,
			&p.CallID, &p.Agent, &p.Tool, &p.ToolCallID, &attributes); err != nil {
			return trace.Span{}, err
		}
		p.Kind, p.Started, p.Ended, p.Failed = trace.SpanKind(kind), fromNanos(started), fromNanos(ended), failed != 0
		return p, decode("attributes", attributes, &p.Attributes)
	}, selectSpans, attemptKey(address)...)
	if err != nil {
		return nil, fmt.Errorf("read spans of %s: %w", address, err)
	}
	return all, nil
}
