package store

import (
	"context"
	"fmt"

	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/store/database"
)

const (
	eventsOf = ` WHERE e.run = $1 AND e.kind = $2 AND e.step = $3 AND e.task = $4 AND e.sample = $5 AND e.attempt = $6`
	// Events are never taken away, so their count is the next number.
	countEvents = `SELECT COUNT(*) FROM events e` + eventsOf
	sameEvents  = countEvents + ` AND e.name = $7 AND e.fields = $8 AND e.at = $9`
	insertEvent = `INSERT INTO events (run, kind, step, task, sample, attempt, seq, name, fields, at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`
)

// PutEvent adds an event to the current attempt under the next number; it ignores e.Seq.
// If At is zero, it is set to the current time. An event with the same name, fields and
// time is recorded only once. A sealed or replaced attempt returns record.ErrFenced.
func (s *Store) PutEvent(ctx context.Context, e record.Event) error {
	fields, err := encode("fields", e.Fields)
	if err != nil {
		return fmt.Errorf("put event %s of %s: %w", e.Name, e.Address, err)
	}
	happened := database.Nanos(orNow(e.At))
	err = s.db.Write(ctx, database.SurvivesKill, func(t database.Tx) error {
		if err := openAttempt(t, e.Address); err != nil {
			return err
		}
		same, err := database.One(t.Ctx, t, database.Scalar[int], sameEvents, append(attemptKey(e.Address), e.Name, fields, happened)...)
		if err != nil || same > 0 {
			return err
		}
		seq, err := database.One(t.Ctx, t, database.Scalar[int], countEvents, attemptKey(e.Address)...)
		if err != nil {
			return err
		}
		_, err = t.Exec(insertEvent, append(attemptKey(e.Address), seq, e.Name, fields, happened)...)
		return err
	})
	if err != nil {
		return fmt.Errorf("put event %s of %s: %w", e.Name, e.Address, err)
	}
	return nil
}

// Events returns the events of an attempt in order. It is no error if there are none.
func (s *Store) Events(ctx context.Context, address record.Address) ([]record.Event, error) {
	all, err := database.List(ctx, s.db.Read(), func(row database.Scan) (record.Event, error) {
		e := record.Event{Address: address}
		err := row(&e.Seq, &e.Name, inJSON{&e.Fields}, at(&e.At))
		return e, err
	}, `SELECT e.seq, e.name, e.fields, e.at FROM events e`+eventsOf+` ORDER BY e.seq`, attemptKey(address)...)
	if err != nil {
		return nil, fmt.Errorf("read events of %s: %w", address, err)
	}
	return all, nil
}

// spanRow is a span as its table stores it.
type spanRow struct {
	record.Span
	attributes string // JSON
}

var spans = database.NewTable("spans s", append(addressed(func(r *spanRow) *record.Address { return &r.Address }),
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
// spans as well; an attempt that never began returns record.ErrNotFound. If what the attempt
// left was removed, it returns record.ErrFenced, which wraps record.ErrForgotten then.
func (s *Store) PutSpans(ctx context.Context, address record.Address, all []record.Span) error {
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
		if err := refuseLate(t, address); err != nil {
			return err
		}
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
func (s *Store) Spans(ctx context.Context, address record.Address) ([]record.Span, error) {
	all, err := database.List(ctx, s.db.Read(), func(row database.Scan) (record.Span, error) {
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
