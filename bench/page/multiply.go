package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // "pgx"
	_ "modernc.org/sqlite"             // "sqlite"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/hf"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/tasks/stream"
)

// multiply copies the rows of the first step and of the first evaluation to all others,
// and then records the batches, versions and other rows of a run. The steps are recorded
// last.
func (f *filler) multiply(ctx context.Context) (err error) {
	driver := "sqlite"
	if strings.HasPrefix(f.url, "postgres") {
		driver = "pgx"
	}
	db, err := sql.Open(driver, f.url)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	db.SetMaxOpenConns(1)
	if err := f.places(ctx, db); err != nil {
		return err
	}
	for _, table := range []string{"rollouts", "attempts", "calls", "exchanges"} {
		if err := f.copyRows(ctx, db, table); err != nil {
			return fmt.Errorf("multiply %s: %w", table, err)
		}
	}
	for _, statement := range []string{`DROP TABLE places`, `ANALYZE`} {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	if err := f.versions(ctx); err != nil {
		return err
	}
	return f.finished(ctx)
}

// places makes a table of the groups of the later steps, with the task of each.
func (f *filler) places(ctx context.Context, db *sql.DB) error {
	if _, err := db.ExecContext(ctx, `CREATE TABLE places (kind TEXT, step BIGINT, task BIGINT, origin BIGINT, task_id TEXT)`); err != nil {
		return err
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	add := func(kind record.Kind, step, task, origin, ordinal int) error {
		index, _ := stream.At(seed, len(f.tasks), ordinal)
		_, err := tx.ExecContext(ctx, `INSERT INTO places VALUES ($1, $2, $3, $4, $5)`, string(kind), step, task, origin, f.tasks[index].ID)
		return err
	}
	for step := 2; step <= f.steps && err == nil; step++ {
		for task := range tasksPerStep {
			ordinal := (step-1)*tasksPerStep + task
			err = errors.Join(err, add(record.Train, step, ordinal, task, ordinal))
			if step%gateEvery == 0 {
				err = errors.Join(err, add(record.Gate, step, task, task, task))
			}
		}
	}
	if err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

// copyRows inserts the rows of a table once for each of the places.
func (f *filler) copyRows(ctx context.Context, db *sql.DB, table string) error {
	rows, err := db.QueryContext(ctx, `SELECT * FROM `+table+` LIMIT 0`)
	if err != nil {
		return err
	}
	columns, err := rows.Columns()
	if err := errors.Join(err, rows.Err(), rows.Close()); err != nil {
		return err
	}
	values := make([]string, len(columns))
	for i, c := range columns {
		switch c {
		case "step", "task", "task_id":
			values[i] = "p." + c
		case "version":
			values[i] = "CASE WHEN p.kind = 'train' THEN p.step - 1 ELSE p.step END"
		default:
			values[i] = "x." + c
		}
	}
	_, err = db.ExecContext(ctx, fmt.Sprintf(`INSERT INTO %s (%s) SELECT %s FROM places p JOIN %s x ON x.run = '%s' AND x.kind = p.kind AND
x.step = CASE WHEN p.kind = 'train' THEN 1 ELSE 0 END AND x.task = p.origin ORDER BY p.kind, p.step, p.task`,
		table, strings.Join(columns, ", "), strings.Join(values, ", "), table, name))
	return err
}

// versions makes the versions, with evaluations and decisions about every tenth.
func (f *filler) versions(ctx context.Context) error {
	promoted := -1
	for number := range f.steps + 1 {
		v := model.Version{
			VersionID: model.VersionID{Run: name, Policy: model.DefaultPolicy, Number: number}, Parent: number - 1, Weights: fmt.Sprintf("sha256:%064d", number),
			Metrics: map[string]float64{"train/entropy": 1}, Created: at(number),
		}
		if _, _, err := f.store.PutVersion(ctx, v); err != nil {
			return err
		}
		if number%gateEvery != 0 {
			continue
		}
		if err := f.store.PutEvaluation(ctx, record.Evaluation{Run: name, Policy: model.DefaultPolicy, At: at(number), EvaluationResult: record.EvaluationResult{
			Kind: record.Gate, Version: number, Tasks: tasksPerStep, Rollouts: tasksPerStep * samplesPerTask, Mean: 0.5, StdError: 0.02,
		}}); err != nil {
			return err
		}
		id := fmt.Sprintf("gate-%d", number)
		var err error
		if number%(2*gateEvery) == 0 {
			err = f.store.Promote(ctx, record.Promotion{Run: name, Policy: model.DefaultPolicy, DecisionID: id, Version: number, Previous: promoted, Reason: "it is better", At: at(number)})
			promoted = number
		} else {
			err = f.store.PutDecision(ctx, record.Decision{Run: name, Policy: model.DefaultPolicy, DecisionID: id, Candidate: number, Promoted: promoted, Verdict: "refused", Reason: "not better", At: at(number)})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// at returns when a step was finished.
func at(step int) time.Time { return time.Unix(1_700_000_000+int64(step)*60, 0) }

// finished records batches and steps. The batch of each step is a copy of the first one,
// with the addresses of other attempts.
func (f *filler) finished(ctx context.Context) error {
	first, err := f.store.Batch(ctx, name, model.DefaultPolicy, 1)
	if err != nil {
		return err
	}
	file, err := f.blobs.Get(ctx, first.Digest)
	if err != nil {
		return err
	}
	batch, err := hf.DecodeBatch(file)
	if err != nil {
		return err
	}
	origins := make([]record.Address, len(batch.Trajectories))
	for i, t := range batch.Trajectories {
		if origins[i], err = record.ParseAddress(t.Attempt); err != nil {
			return err
		}
	}
	for step := 1; step <= f.steps; step++ {
		entry := first
		if step > 1 {
			if entry, err = f.batch(ctx, first, batch, origins, step); err != nil {
				return err
			}
		}
		metrics := map[string]float64{"batch/trained_tokens": float64(entry.Trained), "batch/rollouts": tasksPerStep * samplesPerTask}
		for i, key := range []string{"reward/mean", "reward/std", "batch/tokens", "train/entropy", "train/gradient_norm", "train/kl", "train/mismatch", "train/mismatch_max"} {
			metrics[key] = float64((step*(i+3))%97) / 97
		}
		for _, run := range []string{otherName, name} {
			if err := f.store.PutStep(ctx, record.Step{Run: run, Policy: model.DefaultPolicy, Step: step, Batch: entry.Digest, Metrics: metrics, At: at(step)}); err != nil {
				return err
			}
		}
	}
	return nil
}

// batch puts the batch of a step on record.
func (f *filler) batch(ctx context.Context, first record.Batch, b model.Batch, origins []record.Address, step int) (record.Batch, error) {
	b.Step = step
	for i, a := range origins {
		a.Step, a.Task = step, a.Task+(step-1)*tasksPerStep
		b.Trajectories[i].Attempt = a.String()
	}
	file, err := hf.EncodeBatch(b)
	if err != nil {
		return record.Batch{}, err
	}
	entry := first
	entry.Step = step
	if entry.Digest, err = f.blobs.Put(ctx, file); err != nil {
		return entry, err
	}
	entry, _, err = f.store.PutBatch(ctx, entry)
	return entry, err
}
