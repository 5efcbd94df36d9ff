package update

import (
	"context"
	"fmt"
	"slices"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/hf"
	"github.com/fulgurite/fulgurite/trace"
)

// ScoreCritic estimates the remaining return of the next step's trajectories before each
// token of the completions, by version id of the critic. The result is an encoded
// model.Values.
func (m *Maker) ScoreCritic(ctx context.Context, id model.VersionID, run Run, trajectories []trace.Trajectory) ([]byte, error) {
	v, err := m.Versions.Version(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("read the critic: %w", err)
	}
	l, err := m.load(ctx, run, v)
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
	values, err := m.values(ctx, l.critic, rows)
	if err != nil {
		return nil, err
	}
	out := model.Values{Policy: id.Policy, Version: id.Number, Calls: make([][][]float32, len(trajectories))}
	for i, trajectory := range trajectories {
		n := len(sequences[i])
		if out.Calls[i], err = callValues(trajectory.History, sequences[i], values[:n]); err != nil {
			return nil, Invalid(fmt.Errorf("attempt %s: %w", trajectory.Address, err))
		}
		values = values[n:]
	}
	data, err := hf.EncodeValues(out)
	if err != nil {
		return nil, Final(fmt.Errorf("%w: lower critic.learning_rate and start another run", err))
	}
	return data, nil
}

// values returns a critic's values of rows.
func (m *Maker) values(ctx context.Context, critic model.Critic, rows []model.Row) ([][]float32, error) {
	return m.score(rows, func(rows []model.Row) ([][]float32, error) {
		values, err := critic.Values(ctx, rows)
		if err != nil {
			return nil, unrowed(fmt.Errorf("estimate values: %w", err))
		}
		return values, nil
	})
}

// callValues returns the values of each call's completion, taken from the values of the
// sequences into which its trajectory was merged. A value depends only on the tokens
// before it, so any sequence that begins with the call has the same values.
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
		out[i] = values[at][from-1 : to-1] // value j is the value before token j+1
	}
	return out, nil
}
