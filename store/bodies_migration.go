package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/fulgurite/fulgurite/store/database"
	"github.com/fulgurite/fulgurite/trace"
)

// bodiesMigration is the number of the migration that moves the bodies of calls to a
// separate table.
const bodiesMigration = 13

// Rows of exchanges hold the bodies of calls. If base is not -1, request is a delta
// (package delta) to the response and the request, in this order, of the call whose seq
// is base. If base is -1, request is complete. cost is how many bytes must be read to get
// the request. digest is the SHA-256 of the request's length (8 bytes, little-endian),
// the request and the response.
const createExchanges = `CREATE TABLE exchanges (
    run      TEXT   NOT NULL,
    kind     TEXT   NOT NULL,
    step     BIGINT NOT NULL,
    task     BIGINT NOT NULL,
    sample   BIGINT NOT NULL,
    attempt  BIGINT NOT NULL,
    seq      BIGINT NOT NULL,
    base     BIGINT NOT NULL,
    cost     BIGINT NOT NULL,
    request  BYTEA  NOT NULL,
    response BYTEA  NOT NULL,
    digest   BYTEA  NOT NULL,
    PRIMARY KEY (run, kind, step, task, sample, attempt, seq)
)`

// nextBodies selects the call that follows another one, with its bodies in the old
// schema.
const nextBodies = `SELECT c.run, c.kind, c.step, c.task, c.sample, c.attempt, c.seq, c.parent, c.request, c.response FROM calls c
WHERE (c.run, c.kind, c.step, c.task, c.sample, c.attempt, c.seq) > ($1, $2, $3, $4, $5, $6, $7)
ORDER BY c.run, c.kind, c.step, c.task, c.sample, c.attempt, c.seq LIMIT 1`

// moveBodies moves bodies call by call, all in one transaction, so that only the bodies
// of a few calls are in memory.
func moveBodies(ctx context.Context, t *sql.Tx) error {
	if _, err := t.ExecContext(ctx, createExchanges); err != nil {
		return fmt.Errorf("make table: %w", err)
	}
	var last recent
	var c trace.Exchange
	c.Seq = -1
	for {
		var err error
		c, err = database.One(ctx, t, func(row database.Scan) (c trace.Exchange, err error) {
			err = row(&c.Run, &c.Kind, &c.Step, &c.Task, &c.Sample, &c.Attempt, &c.Seq, &c.Parent, (*[]byte)(&c.Request), (*[]byte)(&c.Response))
			return c, err
		}, nextBodies, append(attemptKey(c.Address), c.Seq)...)
		if errors.Is(err, sql.ErrNoRows) {
			break
		}
		if err == nil {
			err = last.move(ctx, t, c)
		}
		if err != nil {
			return fmt.Errorf("bodies after call %d of %s: %w", c.Seq, c.Address, err)
		}
	}
	for _, column := range []string{"request", "response"} {
		if _, err := t.ExecContext(ctx, `ALTER TABLE calls DROP COLUMN `+column); err != nil {
			return fmt.Errorf("drop column %s: %w", column, err)
		}
	}
	return nil
}

func (r *recent) move(ctx context.Context, t *sql.Tx, c trace.Exchange) error {
	bases, err := r.bases(ctx, t, c.Call)
	if err != nil {
		return err
	}
	x := pack(c.Address, c.Seq, c.Request, c.Response, bases)
	if _, err := x.insert(database.Tx{Ctx: ctx, Querier: t}); err != nil {
		return err
	}
	r.put(c.Address, &bodies{seq: c.Seq, cost: x.cost, request: c.Request, response: c.Response})
	return nil
}
