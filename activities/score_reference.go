package activities

import (
	"context"
	"fmt"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/hf"
	"github.com/fulgurite/fulgurite/trace"
)

// ScoreReference has version 0 of a policy give its log-probabilities of what the
// attempts of a step sampled, each under the temperature and the forms that it was
// sampled under. They are part of the rewards where the spec has credit.kl_in_reward.
// Done again it comes to the same, and where the engine is deterministic to the same
// bits.
func (t *Trainer) ScoreReference(ctx context.Context, in ScoreReferenceInput) (_ ScoreReferenceResult, err error) {
	defer settle(&err)
	id := model.VersionID{Run: in.Run, Policy: in.Policy}
	name := fmt.Sprintf("log-probabilities of step %d by %s", in.Step, id)
	return inTurn(ctx, t, name, func(ctx context.Context) (ScoreReferenceResult, error) {
		data, err := t.scoreReference(ctx, in)
		if err != nil {
			return ScoreReferenceResult{}, fmt.Errorf("%s: %w", name, err)
		}
		digest, err := t.blobs().Put(ctx, data)
		if err != nil {
			return ScoreReferenceResult{}, fmt.Errorf("store the %s: %w", name, err)
		}
		return ScoreReferenceResult{Reference: digest}, nil
	})
}

func (t *Trainer) scoreReference(ctx context.Context, in ScoreReferenceInput) ([]byte, error) {
	run, err := t.training(ctx, in.Run)
	if err != nil {
		return nil, err
	}
	trajectories, err := t.Attempts.Trajectories(ctx, addresses(in.Run, in.Step, in.Groups))
	if err != nil {
		return nil, fmt.Errorf("read the trajectories: %w", err)
	}
	b := model.Batch{Policy: in.Policy, Step: in.Step}
	for i, trajectory := range trajectories {
		all := shares{calls: make([]float64, len(trajectory.History)), skip: make([]bool, len(trajectory.History))}
		sequences, err := rows(trajectory, i, all)
		if err != nil {
			return nil, invalid(fmt.Errorf("attempt %s: %w", trajectory.Address, err))
		}
		b.Rows = append(b.Rows, sequences...)
	}
	if err := b.Restrict(t.Constrain); err != nil {
		return nil, invalid(err)
	}
	l := lineage{id: model.VersionID{Run: in.Run, Policy: in.Policy, Number: in.Step}}
	reference, err := t.frozen(ctx, l, run.engine)
	if err != nil {
		return nil, err
	}
	p := policyUpdate{batch: b, work: &t.work}
	logprobs, err := p.score(ctx, reference)
	if err != nil {
		return nil, err
	}
	out := model.Values{Policy: in.Policy, Calls: make([][][]float32, len(trajectories))}
	for i, trajectory := range trajectories {
		if out.Calls[i], err = callLogprobs(trajectory, i, b.Rows, logprobs); err != nil {
			return nil, invalid(fmt.Errorf("attempt %s: %w", trajectory.Address, err))
		}
	}
	data, err := hf.EncodeValues(out)
	if err != nil {
		return nil, invalid(err)
	}
	return data, nil
}

// callLogprobs are those of the completions of the calls of trajectory i, from those
// of the rows that it was merged into; 0 for tokens that are not trained.
func callLogprobs(t trace.Trajectory, i int, rows []model.BatchRow, logprobs [][]float32) ([][]float32, error) {
	out, place := make([][]float32, len(t.History)), map[int32]int{}
	next := make([]int, len(t.History)) // token of each completion
	for k, c := range t.History {
		out[k], place[int32(c.Seq)] = make([]float32, len(c.Completion)), k
	}
	for n, r := range rows {
		if r.Trajectory != i {
			continue
		}
		for at, sampled := range r.Sampled {
			if !sampled {
				continue
			}
			k := place[r.Calls[at]]
			next[k] = following(t.History[k], next[k])
			if next[k] == len(out[k]) {
				return nil, fmt.Errorf("its rows have more tokens of call %d than it sampled", r.Calls[at])
			}
			out[k][next[k]] = logprobs[n][at-1] // number j is that of token j+1
			next[k]++
		}
	}
	for k, c := range t.History {
		if following(c, next[k]) != len(out[k]) {
			return nil, fmt.Errorf("its rows lack tokens of call %d", c.Seq)
		}
	}
	return out, nil
}

// following is the first trained token of a completion from one on.
func following(c trace.Call, from int) int {
	for from < len(c.Completion) && c.Untrained != nil && c.Untrained[from] {
		from++
	}
	return from
}
