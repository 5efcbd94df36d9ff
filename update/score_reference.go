package update

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/hf"
	"github.com/fulgurite/fulgurite/trace"
)

// scoreRows is how many rows are scored at a time. After each of these parts, progress is
// reported.
const scoreRows = 64

// score returns the numbers that f computes for rows. It calls f with a few rows at a
// time.
func (m *Maker) score(rows []model.Row, f func([]model.Row) ([][]float32, error)) ([][]float32, error) {
	out := make([][]float32, 0, len(rows))
	for some := range slices.Chunk(rows, scoreRows) {
		numbers, err := f(some)
		if err != nil {
			return nil, err
		}
		out = append(out, numbers...)
		m.work.Add(uint64(len(some)))
	}
	return out, nil
}

// logprobs returns a policy's log-probabilities of the batch's rows, each with the
// temperature and the forms with which it was sampled.
func (m *Maker) logprobs(ctx context.Context, policy model.RowScorer, b model.Batch) ([][]float32, error) {
	return m.score(b.EngineRows(), func(rows []model.Row) ([][]float32, error) {
		logprobs, _, err := policy.Score(ctx, rows)
		if err != nil {
			return nil, unrowed(fmt.Errorf("score the batch: %w", err))
		}
		return logprobs, nil
	})
}

// unrowed marks an error of an engine that takes none of the rows: no other try helps.
func unrowed(err error) error {
	if errors.Is(err, model.ErrRow) {
		return Invalid(err)
	}
	return err
}

// ScoreReference computes log-probabilities under version 0 of a policy, for the sampled
// tokens of the step towards version id, with the temperature and the forms under which
// they were sampled. The result is an encoded model.Values.
func (m *Maker) ScoreReference(ctx context.Context, id model.VersionID, run Run, trajectories []trace.Trajectory) ([]byte, error) {
	b := model.Batch{Policy: id.Policy, Step: id.Number}
	for i, trajectory := range trajectories {
		all := shares{calls: make([]float64, len(trajectory.History)), skip: make([]bool, len(trajectory.History))}
		sequences, err := rows(trajectory, i, all)
		if err != nil {
			return nil, Invalid(fmt.Errorf("attempt %s: %w", trajectory.Address, err))
		}
		b.Rows = append(b.Rows, sequences...)
	}
	if err := b.Restrict(m.Constrain); err != nil {
		return nil, Invalid(err)
	}
	reference, err := m.loadReference(ctx, id, run.Engine)
	if err != nil {
		return nil, err
	}
	logprobs, err := m.logprobs(ctx, reference, b)
	if err != nil {
		return nil, err
	}
	out := model.Values{Policy: id.Policy, Calls: make([][][]float32, len(trajectories))}
	for i, trajectory := range trajectories {
		if out.Calls[i], err = callLogprobs(trajectory, i, b.Rows, logprobs); err != nil {
			return nil, Invalid(fmt.Errorf("attempt %s: %w", trajectory.Address, err))
		}
	}
	data, err := hf.EncodeValues(out)
	if err != nil {
		return nil, Invalid(err)
	}
	return data, nil
}

// callLogprobs returns the log-probabilities of the completions of trajectory i, taken
// from the rows into which it was merged. They are 0 for tokens that are not trained.
func callLogprobs(t trace.Trajectory, i int, rows []model.BatchRow, logprobs [][]float32) ([][]float32, error) {
	out, index := make([][]float32, len(t.History)), map[int32]int{}
	next := make([]int, len(t.History)) // the next token of each completion
	for k, c := range t.History {
		out[k], index[int32(c.Seq)] = make([]float32, len(c.Completion)), k
	}
	for n, r := range rows {
		if r.Trajectory != i {
			continue
		}
		for at, sampled := range r.Sampled {
			if !sampled {
				continue
			}
			k := index[r.Calls[at]]
			next[k] = nextTrained(t.History[k], next[k])
			if next[k] == len(out[k]) {
				return nil, fmt.Errorf("its rows have more tokens of call %d than it sampled", r.Calls[at])
			}
			out[k][next[k]] = logprobs[n][at-1] // number j belongs to token j+1
			next[k]++
		}
	}
	for k, c := range t.History {
		if nextTrained(c, next[k]) != len(out[k]) {
			return nil, fmt.Errorf("its rows lack tokens of call %d", c.Seq)
		}
	}
	return out, nil
}

// nextTrained returns the index of the first trained token of a completion, beginning at
// from.
func nextTrained(c trace.Call, from int) int {
	for from < len(c.Completion) && c.Untrained != nil && c.Untrained[from] {
		from++
	}
	return from
}
