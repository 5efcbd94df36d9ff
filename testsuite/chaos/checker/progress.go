package checker

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

// Progress counts all rows of the kinds that a run adds. The number grows with each piece
// of recorded work.
func (d *Database) Progress(ctx context.Context) (int64, error) {
	var n int64
	err := d.db.QueryRowContext(ctx, `SELECT (SELECT COUNT(*) FROM calls) + (SELECT COUNT(*) FROM attempts)
+ (SELECT COUNT(*) FROM attempts WHERE ended > 0) + (SELECT COUNT(*) FROM versions) + (SELECT COUNT(*) FROM batches)
+ (SELECT COUNT(*) FROM steps) + (SELECT COUNT(*) FROM judgments) + (SELECT COUNT(*) FROM evaluations) + (SELECT COUNT(*) FROM runs WHERE finished > 0)`).Scan(&n)
	return n, err
}

// Midway counts the open attempts of a run whose last call was recorded after a time.
// Attempts of killed workers stay open, so the time tells which agents are at work.
func (d *Database) Midway(ctx context.Context, run string, after time.Time) (int, error) {
	var n int
	err := d.db.QueryRowContext(ctx, `SELECT COUNT(*) FROM attempts a WHERE a.run = $1 AND a.outcome = '' AND EXISTS (SELECT 1 FROM calls c
WHERE c.run = a.run AND c.kind = a.kind AND c.step = a.step AND c.task = a.task AND c.sample = a.sample AND c.attempt = a.attempt AND c.recorded > $2)`,
		run, after.UnixNano()).Scan(&n)
	return n, err
}

// TriedAgain counts the attempts, but for first ones, that began after a time.
func (d *Database) TriedAgain(ctx context.Context, run string, earliestRequest time.Time) (int, error) {
	var n int
	err := d.db.QueryRowContext(ctx, `SELECT COUNT(*) FROM attempts WHERE run = $1 AND attempt > 1 AND begun > $2`, run, earliestRequest.UnixNano()).Scan(&n)
	return n, err
}

// Leases counts the processes of a role that others may take for alive.
func (d *Database) Leases(ctx context.Context, role string) (int, error) {
	var n int
	err := d.db.QueryRowContext(ctx, `SELECT COUNT(*) FROM leases WHERE role = $1 AND expires > $2`, role, time.Now().UnixNano()).Scan(&n)
	return n, err
}

// RecordedAgain counts the calls of all runs that an earlier attempt has on record
// too, and that were not answered from there.
func (d *Database) RecordedAgain(ctx context.Context) (int, error) {
	var n int
	err := d.db.QueryRowContext(ctx, `SELECT COUNT(*) FROM calls a WHERE a.attempt > 1 AND a.replayed_from = 0 AND EXISTS (SELECT 1 FROM calls c
WHERE c.run = a.run AND c.kind = a.kind AND c.step = a.step AND c.task = a.task AND c.sample = a.sample AND c.attempt < a.attempt AND c.seed = a.seed)`).Scan(&n)
	return n, err
}

// Generation is a line of the sampler's log. It describes what was sampled, whether or
// not the reply reached anyone.
type Generation struct {
	ID       string    `json:"id"`
	Run      string    `json:"run"`
	Version  int       `json:"version"`
	Seed     uint64    `json:"seed,string"`
	Tokens   []int32   `json:"tokens"`
	Weights  string    `json:"weights"`
	Started  time.Time `json:"started"`
	Finished time.Time `json:"finished"`
}

// ReadGenerations reads a sampler's log. A line is written with one system call,
// so that even a killed sampler leaves none in part.
func ReadGenerations(r io.Reader) ([]Generation, error) {
	var all []Generation
	lines := bufio.NewReader(r)
	for n := 1; ; n++ {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) && len(line) == 0 {
			return all, nil
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("read generations: %w", err)
		}
		d := json.NewDecoder(bytes.NewReader(line))
		var g Generation
		if err := d.Decode(&g); err != nil {
			return nil, fmt.Errorf("read generation in line %d: %w", n, err)
		}
		if g.Run == "" || g.ID == "" || len(g.Tokens) == 0 || g.Started.IsZero() {
			return nil, fmt.Errorf("read generation in line %d: it lacks its run, id, tokens or time", n)
		}
		all = append(all, g)
	}
}
