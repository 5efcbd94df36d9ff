package store

import (
	"context"
	"fmt"

	"github.com/fulgurite/fulgurite/store/database"
	"github.com/fulgurite/fulgurite/trace"
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
// time is recorded only once. A sealed or replaced attempt returns trace.ErrFenced.
func (s *Store) PutEvent(ctx context.Context, e trace.Event) error {
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
func (s *Store) Events(ctx context.Context, address trace.Address) ([]trace.Event, error) {
	all, err := database.List(ctx, s.db.Read(), func(row database.Scan) (trace.Event, error) {
		e := trace.Event{Address: address}
		err := row(&e.Seq, &e.Name, inJSON{&e.Fields}, at(&e.At))
		return e, err
	}, `SELECT e.seq, e.name, e.fields, e.at FROM events e`+eventsOf+` ORDER BY e.seq`, attemptKey(address)...)
	if err != nil {
		return nil, fmt.Errorf("read events of %s: %w", address, err)
	}
	return all, nil
}
