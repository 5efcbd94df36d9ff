package update

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/fulgurite/fulgurite/credit"
	"github.com/fulgurite/fulgurite/credit/assign"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/trace"
)

// ErrNothingRecorded means that no model call of a step was recorded, so that
// there is nothing to train on.
var ErrNothingRecorded = errors.New("no model call was recorded")

// NewBatch turns the rewards and calls of a step's groups into rows with advantages, and
// returns the batch and its metrics. b has the batch's policy, number, vocabulary and the
// digests of its credit's inputs. baselines are the running baselines of the step before.
func NewBatch(s spec.Spec, b model.Batch, baselines map[string]float64, groups [][]assign.Sample) (model.Batch, map[string]float64, error) {
	samples, calls := 0, 0
	for _, g := range groups {
		for _, one := range g {
			samples, calls = samples+1, calls+len(one.History)
		}
	}
	if calls == 0 {
		return model.Batch{}, nil, fmt.Errorf("%w in %d rollouts: does the agent use the base URL it is given?", ErrNothingRecorded, samples)
	}
	trajectories, given, err := assign.Advantages(s, baselines, groups)
	if err != nil {
		return model.Batch{}, nil, err
	}
	b.Baselines = given.Baselines
	for g := range groups {
		for i, one := range groups[g] {
			b.Trajectories = append(b.Trajectories, model.BatchTrajectory{
				Attempt: one.Address.String(), Group: g, Reward: *one.Reward, Advantage: given.Trajectory[g][i],
			})
			sequences, err := rows(one.Trajectory, len(b.Trajectories)-1, sharesOf(trajectories[g][i], given, g, i))
			if err != nil {
				return model.Batch{}, nil, fmt.Errorf("attempt %s: %w", one.Address, err)
			}
			b.Rows = append(b.Rows, sequences...)
		}
	}
	b.Count()
	return b, batchMetrics(s, b, groups, trajectories, given), nil
}

// shares has the credit of the calls of one trajectory.
type shares struct {
	calls  []float64
	tokens [][]float64 // by call and trained token; nil if each token has the advantage of its call
	// returns has the critic's targets, by call and trained token. It is nil without a
	// critic.
	returns [][]float64
	skip    []bool // calls of agents that are not trained
}

func sharesOf(t credit.Trajectory, given credit.Advantages, group, sample int) shares {
	s := shares{calls: given.Call[group][sample], skip: make([]bool, len(t.Calls))}
	if given.Token != nil {
		s.tokens = given.Token[group][sample]
	}
	if given.Returns != nil {
		s.returns = given.Returns[group][sample]
	}
	for k, c := range t.Calls {
		s.skip[k] = c.Skip
	}
	return s
}

// rows returns the merged sequences of a trajectory. Each sampled token has the advantage
// of its call. A call of an agent that is not trained is context, as the results of tools
// are; a sequence without any trained call is left out.
func rows(t trace.Trajectory, ordinal int, given shares) ([]model.BatchRow, error) {
	var out []model.BatchRow
	next := make([]int, len(t.History)) // the next trained token of each call
	for _, s := range trace.Merge(t.History) {
		n := len(s.Tokens)
		r := model.BatchRow{
			Row:     model.Row{Tokens: s.Tokens, Temperature: s.Temperature},
			Sampled: s.Sampled, Logprobs: s.Logprobs, Advantages: make([]float32, n), Calls: make([]int32, n), Trajectory: ordinal,
		}
		if given.returns != nil {
			r.Returns = make([]float32, n)
		}
		skipped, trained := false, false
		for i, call := range s.Call {
			r.Calls[i] = -1
			switch {
			case call < 0:
			case given.skip[call]:
				skipped = true
				r.Sampled[i], r.Logprobs[i] = false, 0
			default:
				trained = true
				r.Calls[i] = int32(t.History[call].Seq)
				given.fill(&r, i, call, next[call])
				next[call]++
			}
		}
		if skipped && !trained {
			continue
		}
		var err error
		if r.Forms, err = forms(s); err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	return out, nil
}

// fill writes the credit of trained token k of a call to token i of a row.
func (s shares) fill(r *model.BatchRow, i, call, k int) {
	r.Advantages[i] = float32(s.calls[call])
	if s.tokens != nil {
		r.Advantages[i] = float32(s.tokens[call][k])
	}
	if s.returns != nil {
		r.Returns[i] = float32(s.returns[call][k])
	}
}

// forms returns the forms that restricted tokens of a sequence. A form that only ended a
// reply is left out.
func forms(s trace.Sequence) ([]model.BatchForm, error) {
	var out []model.BatchForm
	for _, f := range s.Forms {
		form := model.BatchForm{Start: f.Start, Length: f.Length}
		if err := json.Unmarshal(f.Form, &form.Form); err != nil {
			return nil, fmt.Errorf("form of a call: %w", err)
		}
		if form.Form.Masks() {
			out = append(out, form)
		}
	}
	return out, nil
}
