package activities

import (
	"context"
	"fmt"
	"slices"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/hf"
	"github.com/fulgurite/fulgurite/trace"
)

// ScoreBatch has the critic, as it is before the step, estimate what the attempts
// of a step would still earn, before each token of their completions. Done again it
// comes to the same values, and where the engine is deterministic to the same bits.
func (t *Trainer) ScoreBatch(ctx context.Context, in ScoreBatchInput) (_ ScoreBatchResult, err error) {
	defer settle(&err)
	id := model.VersionID{Run: in.Run, Policy: model.CriticPolicy, Number: in.Step - 1}
	return inTurn(ctx, t, fmt.Sprintf("values of step %d by %s", in.Step, id), func(ctx context.Context) (ScoreBatchResult, error) {
		values, err := t.scoreBatch(ctx, in, id)
		if err != nil {
			return ScoreBatchResult{}, fmt.Errorf("values of step %d by %s: %w", in.Step, id, err)
		}
		digest, err := t.blobs().Put(ctx, values)
		if err != nil {
			return ScoreBatchResult{}, fmt.Errorf("store the values of step %d: %w", in.Step, err)
		}
		return ScoreBatchResult{Values: digest}, nil
	})
}

func (t *Trainer) scoreBatch(ctx context.Context, in ScoreBatchInput, id model.VersionID) ([]byte, error) {
	run, err := t.training(ctx, in.Run)
	if err != nil {
		return nil, err
	}
	trajectories, err := t.Attempts.Trajectories(ctx, addresses(in.Run, in.Step, in.Groups))
	if err != nil {
		return nil, fmt.Errorf("read the trajectories: %w", err)
	}
	v, err := t.Versions.Version(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("read the critic: %w", err)
	}
	critic, err := hold[model.Critic](ctx, t, run.engine, v)
	if err != nil {
		next := id
		next.Number++
		return nil, fmt.Errorf("load the critic: %w", unreadable(err, next))
	}
	var rows []model.Row
	sequences := make([][]trace.Sequence, len(trajectories))
	for i, trajectory := range trajectories {
		sequences[i] = trace.Merge(trajectory.History)
		for _, s := range sequences[i] {
			rows = append(rows, model.Row{Tokens: s.Tokens})
		}
	}
	values, err := t.values(ctx, critic, rows)
	if err != nil {
		return nil, err
	}
	out := model.Values{Policy: id.Policy, Version: id.Number, Calls: make([][][]float32, len(trajectories))}
	for i, trajectory := range trajectories {
		n := len(sequences[i])
		if out.Calls[i], err = callValues(trajectory.History, sequences[i], values[:n]); err != nil {
			return nil, invalid(fmt.Errorf("attempt %s: %w", trajectory.Address, err))
		}
		values = values[n:]
	}
	data, err := hf.EncodeValues(out)
	if err != nil {
		return nil, invalid(fmt.Errorf("%w: lower critic.learning_rate", err))
	}
	return data, nil
}

// values are a critic's of rows, with signs of progress on the way.
func (t *Trainer) values(ctx context.Context, critic model.Critic, rows []model.Row) ([][]float32, error) {
	out := make([][]float32, 0, len(rows))
	for from := 0; from < len(rows); from += scoreRows {
		to := min(from+scoreRows, len(rows))
		some, err := critic.Values(ctx, rows[from:to])
		if err != nil {
			return nil, fmt.Errorf("estimate values: %w", err)
		}
		out = append(out, some...)
		t.work.Add(uint64(to - from))
	}
	return out, nil
}

// callValues finds the values of each call's completion in those of the sequences
// that its trajectory was merged into. A value depends on nothing but the tokens
// before it, so any sequence will do that begins with the call.
func callValues(calls []trace.Call, sequences []trace.Sequence, values [][]float32) ([][]float32, error) {
	out := make([][]float32, len(calls))
	for i, c := range calls {
		from, to := len(c.Prompt), len(c.Prompt)+len(c.Completion)
		at := slices.IndexFunc(sequences, func(s trace.Sequence) bool {
			return len(s.Tokens) >= to && slices.Equal(s.Tokens[:from], c.Prompt) && slices.Equal(s.Tokens[from:to], c.Completion)
		})
		if at < 0 || from == 0 {
			return nil, fmt.Errorf("call %d has a prompt of %d tokens and is in no sequence", c.Seq, from)
		}
		out[i] = values[at][from-1 : to-1] // value j is that before token j+1
	}
	return out, nil
}
