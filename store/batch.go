package store

import (
	"context"
	"fmt"

	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/store/database"
)

const (
	insertBatch = `INSERT INTO batches (run, policy, step, digest, sequences, tokens, trained, metrics, begun, at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) ON CONFLICT DO NOTHING`
	selectBatches = `SELECT run, policy, step, digest, sequences, tokens, trained, metrics, begun, at FROM batches WHERE run = $1 AND policy = $2`
	selectBatch   = selectBatches + ` AND step = $3`
)

// PutBatch stores b unless the step has a batch. It returns the step's batch and whether
// this call stored it. If At is zero, it is set to the current time.
func (s *Store) PutBatch(ctx context.Context, b record.Batch) (record.Batch, bool, error) {
	metrics, err := encode("metrics", b.Metrics)
	if err != nil {
		return record.Batch{}, false, fmt.Errorf("put batch of %s/%s step %d: %w", b.Run, b.Policy, b.Step, err)
	}
	args := []any{b.Run, b.Policy, b.Step, b.Digest, b.Sequences, b.Tokens, b.Trained, metrics, database.Nanos(b.Begun), database.Nanos(orNow(b.At))}
	var stored record.Batch
	var created bool
	err = s.db.Write(ctx, database.SurvivesPowerLoss, func(t database.Tx) (err error) {
		stored, created, err = database.InsertOrFind(t, insertBatch, args, func() (record.Batch, error) {
			return database.One(t.Ctx, t, readBatch, selectBatch, b.Run, b.Policy, b.Step)
		})
		return err
	})
	if err != nil {
		return record.Batch{}, false, fmt.Errorf("put batch of %s/%s step %d: %w", b.Run, b.Policy, b.Step, err)
	}
	return stored, created, nil
}

// Batch returns the batch of a step, or trace.ErrNotFound.
func (s *Store) Batch(ctx context.Context, run, policy string, step int) (record.Batch, error) {
	b, err := database.One(ctx, s.db.Read(), readBatch, selectBatch, run, policy, step)
	if err != nil {
		return record.Batch{}, fmt.Errorf("read batch of %s/%s step %d: %w", run, policy, step, notFound(err))
	}
	return b, nil
}

// Batches returns the batches of a policy by step. It is no error if there are none.
func (s *Store) Batches(ctx context.Context, run, policy string) ([]record.Batch, error) {
	all, err := database.List(ctx, s.db.Read(), readBatch, selectBatches+` ORDER BY step`, run, policy)
	if err != nil {
		return nil, fmt.Errorf("list batches of %s/%s: %w", run, policy, err)
	}
	return all, nil
}

func readBatch(row database.Scan) (b record.Batch, err error) {
	err = row(&b.Run, &b.Policy, &b.Step, &b.Digest, &b.Sequences, &b.Tokens, &b.Trained, inJSON{&b.Metrics}, at(&b.Begun), at(&b.At))
	return b, err
}
