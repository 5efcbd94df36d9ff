package activities

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"

	"github.com/fulgurite/fulgurite/credit"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/hf"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/trace"
)

// ErrNothingRecorded means that no model call of a step was recorded, so that
// there is nothing to train on.
var ErrNothingRecorded = errors.New("no model call was recorded")

// AssignCredit makes the batch of a step from the attempts that count: rewards
// become advantages, calls become sequences, and both one immutable blob.
func (c *Coordinator) AssignCredit(ctx context.Context, in AssignCreditInput) (_ AssignCreditResult, err error) {
	defer settle(&err)
	run, err := c.Runs.Run(ctx, in.Run)
	if err != nil {
		return AssignCreditResult{}, fmt.Errorf("read run %s: %w", in.Run, err)
	}
	s, err := decodeSpec(run)
	if err != nil {
		return AssignCreditResult{}, err
	}
	trajectories, err := c.Attempts.Trajectories(ctx, addresses(in))
	if err != nil {
		return AssignCreditResult{}, fmt.Errorf("read the trajectories of step %d: %w", in.Step, err)
	}
	codec, err := c.Codecs(s.Model.Codec)
	if err != nil {
		return AssignCreditResult{}, invalid(err)
	}
	batch, metrics, err := buildBatch(s, in, codec.VocabSize(), trajectories)
	if err != nil {
		return AssignCreditResult{}, invalid(fmt.Errorf("batch of step %d of %s: %w", in.Step, in.Run, err))
	}
	data, err := hf.EncodeBatch(batch)
	if err != nil {
		return AssignCreditResult{}, invalid(fmt.Errorf("batch of step %d of %s: %w", in.Step, in.Run, err))
	}
	digest, err := c.Blobs.Put(ctx, data)
	if err != nil {
		return AssignCreditResult{}, fmt.Errorf("store the batch of step %d: %w", in.Step, err)
	}
	stands, _, err := c.Ledger.PutBatch(ctx, record.Batch{
		Run: in.Run, Policy: in.Policy, Step: in.Step, Digest: digest, Sequences: len(batch.Rows),
		Tokens: int(metrics["batch/tokens"]), Trained: batch.Denominators.Tokens, Metrics: metrics,
	})
	if err != nil {
		return AssignCreditResult{}, fmt.Errorf("record the batch of step %d: %w", in.Step, err)
	}
	return AssignCreditResult{Batch: stands.Digest, Metrics: stands.Metrics}, nil
}

// addresses lists the attempts that count, in order of task and sample.
func addresses(in AssignCreditInput) []trace.Address {
	var out []trace.Address
	for _, g := range in.Groups {
		for sample, attempt := range g.Attempts {
			out = append(out, trace.Address{
				RolloutID: trace.RolloutID{Run: in.Run, Kind: cmp.Or(g.Kind, trace.Train), Step: in.Step, Task: g.Task, Sample: sample},
				Attempt:   attempt,
			})
		}
	}
	return out
}

// buildBatch is the path from rewards and calls to rows with advantages.
func buildBatch(s spec.Spec, in AssignCreditInput, vocab int, trajectories []trace.Trajectory) (model.Batch, map[string]float64, error) {
	groups := make([][]float64, len(in.Groups))
	for i, g := range in.Groups {
		groups[i] = g.Rewards
	}
	advantages, err := normalization(s.Credit).Advantages(groups)
	if err != nil {
		return model.Batch{}, nil, err
	}
	b := model.Batch{Policy: in.Policy, Step: in.Step, VocabSize: vocab}
	for g := range groups {
		for sample := range groups[g] {
			t := trajectories[len(b.Trajectories)]
			perCall, err := credit.Assignment(s.Credit.Assignment).Calls(advantages[g][sample], len(t.History), s.Credit.Discount)
			if err != nil {
				return model.Batch{}, nil, err
			}
			b.Trajectories = append(b.Trajectories, model.BatchTrajectory{
				Attempt: t.Address.String(), Group: g, Reward: groups[g][sample], Advantage: advantages[g][sample],
			})
			sequences, err := rows(t, len(b.Trajectories)-1, perCall)
			if err != nil {
				return model.Batch{}, nil, fmt.Errorf("attempt %s: %w", t.Address, err)
			}
			b.Rows = append(b.Rows, sequences...)
		}
	}
	b.Count()
	if b.Denominators.Tokens == 0 {
		return model.Batch{}, nil, fmt.Errorf("%w in %d rollouts: does the agent use the base URL it is given?", ErrNothingRecorded, len(trajectories))
	}
	return b, batchMetrics(b, groups, trajectories), nil
}

// rows are the merged sequences of a trajectory with the advantage of the call
// that sampled each token.
func rows(t trace.Trajectory, ordinal int, perCall []float64) ([]model.BatchRow, error) {
	var out []model.BatchRow
	for _, s := range trace.Merge(t.History) {
		n := len(s.Tokens)
		r := model.BatchRow{
			Row:     model.Row{Tokens: s.Tokens, Temperature: s.Temperature},
			Sampled: s.Sampled, Logprobs: s.Logprobs, Advantages: make([]float32, n), Calls: make([]int32, n), Trajectory: ordinal,
		}
		for i, call := range s.Call {
			r.Calls[i] = -1
			if call >= 0 {
				r.Advantages[i] = float32(perCall[call])
				r.Calls[i] = int32(t.History[call].Seq)
			}
		}
		var err error
		if r.Forms, err = forms(s); err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	return out, nil
}

// forms are those of a sequence that decide how likely its tokens were: one that
// only ended a reply does not.
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

// batchMetrics describes a batch under names that training dashboards use.
func batchMetrics(b model.Batch, groups [][]float64, trajectories []trace.Trajectory) map[string]float64 {
	var reward, squares, calls, tokens, flat float64
	for _, t := range b.Trajectories {
		reward += t.Reward
		squares += t.Reward * t.Reward
	}
	for _, t := range trajectories {
		calls += float64(len(t.History))
	}
	for _, r := range b.Rows {
		tokens += float64(len(r.Tokens))
	}
	for _, g := range groups {
		if !credit.Varies(g) {
			flat++
		}
	}
	n := float64(len(b.Trajectories))
	mean := reward / n
	return map[string]float64{
		"reward/mean":                mean,
		"reward/std":                 math.Sqrt(math.Max(0, squares/n-mean*mean)),
		"batch/rollouts":             n,
		"batch/calls":                calls,
		"batch/sequences":            float64(len(b.Rows)),
		"batch/tokens":               tokens,
		"batch/trained_tokens":       float64(b.Denominators.Tokens),
		"batch/zero_variance_groups": flat,
	}
}
