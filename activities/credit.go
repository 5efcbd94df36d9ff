package activities

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/fulgurite/fulgurite/internal/advantage"
	"github.com/fulgurite/fulgurite/model/hf"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/trace"
)

// ErrNothingRecorded means that no model call of a step was recorded, so that
// there is nothing to train on.
var ErrNothingRecorded = errors.New("no model call was recorded")

// ErrGroup means that a group does not have one reward for each attempt.
var ErrGroup = errors.New("bad group")

// AssignCredit makes the batch of a step from the attempts that count: rewards
// become advantages, calls become sequences, and both one immutable blob. The first
// batch of a step that was recorded stands.
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
	groups, err := c.samples(ctx, s, in)
	if err != nil {
		return AssignCreditResult{}, fmt.Errorf("step %d of %s: %w", in.Step, in.Run, err)
	}
	codec, err := c.Codecs.named(s.Model.Codec)
	if err != nil {
		return AssignCreditResult{}, err
	}
	batch, metrics, err := buildBatch(s, in, codec.VocabSize(), groups)
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

// samples are the attempts of a step with all that its credit reads of them.
func (c *Coordinator) samples(ctx context.Context, s spec.Spec, in AssignCreditInput) ([][]advantage.Sample, error) {
	for _, g := range in.Groups {
		if len(g.Attempts) != len(g.Rewards) {
			return nil, invalid(fmt.Errorf("%w: task %d has %d attempts and %d rewards", ErrGroup, g.Task, len(g.Attempts), len(g.Rewards)))
		}
	}
	trajectories, err := c.Attempts.Trajectories(ctx, addresses(in.Run, in.Step, in.Groups))
	if err != nil {
		return nil, fmt.Errorf("read its trajectories: %w", err)
	}
	groups := make([][]advantage.Sample, len(in.Groups))
	for g, group := range in.Groups {
		for _, reward := range group.Rewards {
			groups[g] = append(groups[g], advantage.Sample{Trajectory: trajectories[0], Reward: reward})
			trajectories = trajectories[1:]
		}
	}
	source := advantage.Source{Attempts: c.Attempts, Batches: c.Ledger, Blobs: c.Blobs, Run: in.Run, Policy: in.Policy}
	if advantage.Observes(s.Credit) {
		if err := source.Observe(ctx, groups); err != nil {
			return nil, err
		}
	}
	if advantage.Estimates(s.Credit) {
		earlier, err := source.Earlier(ctx, in.Step)
		if err != nil {
			return nil, err
		}
		if err := advantage.Estimate(s, earlier, groups); err != nil {
			return nil, invalid(err)
		}
	}
	if in.Values != "" {
		if err := c.valued(ctx, groups, in.Values); err != nil {
			return nil, err
		}
	}
	if in.Judgments != "" {
		return groups, c.judged(ctx, groups, in.Judgments)
	}
	return groups, nil
}

// valued gives the calls of groups the critic's values in a blob.
func (c *Coordinator) valued(ctx context.Context, groups [][]advantage.Sample, digest string) error {
	data, err := c.Blobs.Get(ctx, digest)
	if err != nil {
		return fmt.Errorf("read the critic's values %s: %w", digest, err)
	}
	values, err := hf.DecodeValues(data)
	if err == nil {
		err = advantage.Value(groups, values)
	}
	if err != nil {
		return invalid(fmt.Errorf("the critic's values %s: %w", digest, err))
	}
	return nil
}

// judged gives the calls of groups the judge's scores in a blob.
func (c *Coordinator) judged(ctx context.Context, groups [][]advantage.Sample, digest string) error {
	data, err := c.Blobs.Get(ctx, digest)
	if err != nil {
		return fmt.Errorf("read the judgments %s: %w", digest, err)
	}
	var judgments record.Judgments
	err = json.Unmarshal(data, &judgments)
	if err == nil {
		err = advantage.Judge(groups, judgments)
	}
	if err != nil {
		return invalid(fmt.Errorf("the judgments %s: %w", digest, err))
	}
	return nil
}

// addresses lists the attempts that count, in order of task and sample.
func addresses(run string, step int, groups []Group) []trace.Address {
	var out []trace.Address
	for _, g := range groups {
		for sample, attempt := range g.Attempts {
			out = append(out, trace.Address{
				RolloutID: trace.RolloutID{Run: run, Kind: cmp.Or(g.Kind, trace.Train), Step: step, Task: g.Task, Sample: sample},
				Attempt:   attempt,
			})
		}
	}
	return out
}
