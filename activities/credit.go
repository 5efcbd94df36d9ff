package activities

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/fulgurite/fulgurite/credit/assign"
	"github.com/fulgurite/fulgurite/model"
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
	stands, err := c.Ledger.Batch(ctx, in.Run, in.Policy, in.Step)
	if err == nil {
		return AssignCreditResult{Batch: stands.Digest, Metrics: stands.Metrics}, nil
	}
	if !errors.Is(err, trace.ErrNotFound) {
		return AssignCreditResult{}, fmt.Errorf("look for the batch of step %d: %w", in.Step, err)
	}
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
	baselines, err := c.source(in).Baselines(ctx, s.Credit, in.Step)
	if err != nil {
		return AssignCreditResult{}, fmt.Errorf("step %d of %s: %w", in.Step, in.Run, err)
	}
	batch, metrics, err := buildBatch(s, in, codec.VocabSize(), baselines, groups)
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
	stands, _, err = c.Ledger.PutBatch(ctx, record.Batch{
		Run: in.Run, Policy: in.Policy, Step: in.Step, Digest: digest, Sequences: len(batch.Rows),
		Tokens: int(metrics["batch/tokens"]), Trained: batch.Denominators.Tokens, Metrics: metrics,
	})
	if err != nil {
		return AssignCreditResult{}, fmt.Errorf("record the batch of step %d: %w", in.Step, err)
	}
	return AssignCreditResult{Batch: stands.Digest, Metrics: stands.Metrics}, nil
}

// source is the policy of a step on record.
func (c *Coordinator) source(in AssignCreditInput) assign.Source {
	return assign.Source{Attempts: c.Attempts, Batches: c.Ledger, Blobs: c.Blobs, Run: in.Run, Policy: in.Policy}
}

// samples are the attempts of a step with all that its credit reads of them.
func (c *Coordinator) samples(ctx context.Context, s spec.Spec, in AssignCreditInput) ([][]assign.Sample, error) {
	for _, g := range in.Groups {
		if len(g.Attempts) != len(g.Rewards) {
			return nil, invalid(fmt.Errorf("%w: task %d has %d attempts and %d rewards", ErrGroup, g.Task, len(g.Attempts), len(g.Rewards)))
		}
	}
	trajectories, err := c.Attempts.Trajectories(ctx, addresses(in.Run, in.Step, in.Groups))
	if err != nil {
		return nil, fmt.Errorf("read its trajectories: %w", err)
	}
	groups := make([][]assign.Sample, len(in.Groups))
	for g, group := range in.Groups {
		for _, reward := range group.Rewards {
			groups[g] = append(groups[g], assign.NewSample(trajectories[0], reward))
			trajectories = trajectories[1:]
		}
	}
	source := c.source(in)
	if assign.Observes(s.Credit) {
		if err := source.Observe(ctx, groups); err != nil {
			return nil, err
		}
	}
	if assign.Estimates(s.Credit) {
		earlier, err := source.Earlier(ctx, in.Step)
		if err != nil {
			return nil, err
		}
		if err := assign.Estimate(s, earlier, groups); err != nil {
			return nil, invalid(err)
		}
	}
	if in.Values != "" {
		if err := c.scored(ctx, groups, "the critic's values", in.Values, assign.Value); err != nil {
			return nil, err
		}
	}
	if in.Reference != "" {
		if err := c.scored(ctx, groups, "the log-probabilities under version 0", in.Reference, assign.Refer); err != nil {
			return nil, err
		}
	}
	if in.Judgments != "" {
		return groups, c.judged(ctx, groups, in.Judgments)
	}
	return groups, nil
}

// scored gives the tokens of groups the numbers of a model that are in a blob.
func (c *Coordinator) scored(ctx context.Context, groups [][]assign.Sample, name, digest string, give func([][]assign.Sample, model.Values) error) error {
	data, err := c.Blobs.Get(ctx, digest)
	if err != nil {
		return fmt.Errorf("read %s %s: %w", name, digest, err)
	}
	values, err := hf.DecodeValues(data)
	if err == nil {
		err = give(groups, values)
	}
	if err != nil {
		return invalid(fmt.Errorf("%s %s: %w", name, digest, err))
	}
	return nil
}

// judged gives the calls of groups the judge's scores in a blob.
func (c *Coordinator) judged(ctx context.Context, groups [][]assign.Sample, digest string) error {
	data, err := c.Blobs.Get(ctx, digest)
	if err != nil {
		return fmt.Errorf("read the judgments %s: %w", digest, err)
	}
	var judgments record.Judgments
	err = json.Unmarshal(data, &judgments)
	if err == nil {
		err = assign.Judge(groups, judgments)
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
