package activities

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/fulgurite/fulgurite/credit/assign"
	"github.com/fulgurite/fulgurite/internal/truncate"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/hf"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/update"
)

// ErrGroup means that a group does not have one reward for each attempt.
var ErrGroup = errors.New("bad group")

// AssignCredit makes the batch of a step from the attempts that count: rewards become
// advantages, calls become sequences, and both become one immutable blob. The first
// recorded batch of a step counts.
func (c *Coordinator) AssignCredit(ctx context.Context, in AssignCreditInput) (_ AssignCreditResult, err error) {
	defer temporalError(&err)
	recorded, err := c.Ledger.Batch(ctx, in.Run, in.Policy, in.Step)
	if err == nil {
		return AssignCreditResult{Batch: recorded.Digest, Metrics: recorded.Metrics}, nil
	}
	if !errors.Is(err, record.ErrNotFound) {
		return AssignCreditResult{}, fmt.Errorf("look for the batch of step %d: %w", in.Step, err)
	}
	began := time.Now()
	_, s, err := readSpec(ctx, c.Runs, in.Run)
	if err != nil {
		return AssignCreditResult{}, err
	}
	groups, err := c.samples(ctx, s, in.StepGroups)
	if err == nil {
		err = c.addScores(ctx, in, groups)
	}
	if err != nil {
		return AssignCreditResult{}, fmt.Errorf("step %d of %s: %w", in.Step, in.Run, err)
	}
	codec, err := c.Codecs.named(s.Model.Codec)
	if err != nil {
		return AssignCreditResult{}, err
	}
	baselines, err := c.source(in.StepGroups).Baselines(ctx, s, in.Step)
	if err != nil {
		return AssignCreditResult{}, fmt.Errorf("step %d of %s: %w", in.Step, in.Run, err)
	}
	made, err := update.NewBatch(s, model.Batch{
		Policy: in.Policy, Step: in.Step, VocabSize: codec.VocabSize(), Values: in.Values, Judgments: in.Judgments, Reference: in.Reference,
	}, baselines, groups)
	if err != nil {
		return AssignCreditResult{}, invalid(fmt.Errorf("batch of step %d of %s: %w", in.Step, in.Run, err))
	}
	batch, metrics := made.Batch, made.Metrics
	data, err := hf.EncodeBatch(batch)
	if err != nil {
		return AssignCreditResult{}, invalid(fmt.Errorf("batch of step %d of %s: %w", in.Step, in.Run, err))
	}
	digest, err := c.Blobs.Put(ctx, data)
	if err != nil {
		return AssignCreditResult{}, fmt.Errorf("store the batch of step %d: %w", in.Step, err)
	}
	recorded, _, err = c.Ledger.PutBatch(ctx, record.Batch{
		Run: in.Run, Policy: in.Policy, Step: in.Step, Digest: digest, Sequences: len(batch.Rows),
		Tokens: int(metrics["batch/tokens"]), Trained: batch.Denominators.Tokens, Metrics: metrics, Begun: began,
	})
	if err != nil {
		return AssignCreditResult{}, fmt.Errorf("record the batch of step %d: %w", in.Step, err)
	}
	return AssignCreditResult{Batch: recorded.Digest, Metrics: recorded.Metrics, LeftOut: fewWords(made.LeftOut), Idle: truncate.Ellipsis(made.Idle, failureBytes)}, nil
}

// maxLeftOut bounds how many left-out groups a result names; the batch has all.
const maxLeftOut = 3

// fewWords returns the first reasons, shortened.
func fewWords(reasons []string) []string {
	var out []string
	for _, why := range reasons[:min(len(reasons), maxLeftOut)] {
		out = append(out, truncate.Ellipsis(why, failureBytes))
	}
	return out
}

// source gives credit assignment access to the records of a policy.
func (c *Coordinator) source(of StepGroups) assign.Source {
	return assign.Source{Attempts: c.Attempts, Batches: c.Ledger, Blobs: c.Blobs, Run: of.Run, Policy: of.Policy}
}

// samples returns the attempts of a step with the parts of their records that its credit
// reads.
func (c *Coordinator) samples(ctx context.Context, s spec.Spec, of StepGroups) ([][]assign.Sample, error) {
	for _, g := range of.Groups {
		if len(g.Attempts) != len(g.Rewards) {
			return nil, invalid(fmt.Errorf("%w: task %d has %d attempts and %d rewards", ErrGroup, g.Task, len(g.Attempts), len(g.Rewards)))
		}
	}
	trajectories, err := c.Attempts.Trajectories(ctx, addresses(of))
	if err != nil {
		return nil, fmt.Errorf("read its trajectories: %w", err)
	}
	groups := make([][]assign.Sample, len(of.Groups))
	for g, group := range of.Groups {
		for _, reward := range group.Rewards {
			groups[g] = append(groups[g], assign.NewSample(trajectories[0], reward))
			trajectories = trajectories[1:]
		}
	}
	source := c.source(of)
	if assign.NeedsSignals(s) {
		if err := source.Observe(ctx, groups); err != nil {
			return nil, err
		}
	}
	if assign.NeedsEstimates(s) {
		earlier, err := source.Earlier(ctx, of.Step)
		if err != nil {
			return nil, err
		}
		faults, err := assign.Faults(s, groups)
		if err == nil {
			err = assign.Estimate(s, earlier, assign.Without(groups, faults))
		}
		if err != nil && !assign.NothingToTrain(err) { // the batch says so
			return nil, invalid(err)
		}
	}
	return groups, nil
}

// addScores adds to groups the scores of the critic, version 0 and the judge.
func (c *Coordinator) addScores(ctx context.Context, in AssignCreditInput, groups [][]assign.Sample) error {
	if in.Values != "" {
		if err := c.addValues(ctx, groups, "the critic's values", in.Values, assign.SetValues); err != nil {
			return err
		}
	}
	if in.Reference != "" {
		if err := c.addValues(ctx, groups, "the log-probabilities under version 0", in.Reference, assign.SetReference); err != nil {
			return err
		}
	}
	if in.Judgments != "" {
		return c.addJudgments(ctx, groups, in.Judgments)
	}
	return nil
}

// addValues reads a model's numbers from a blob and adds them to the tokens of groups.
func (c *Coordinator) addValues(ctx context.Context, groups [][]assign.Sample, name, digest string, add func([][]assign.Sample, model.Values) error) error {
	data, err := c.Blobs.Get(ctx, digest)
	if err != nil {
		return fmt.Errorf("read %s %s: %w", name, digest, err)
	}
	values, err := hf.DecodeValues(data)
	if err == nil {
		err = add(groups, values)
	}
	if err != nil {
		return invalid(fmt.Errorf("%s %s: %w", name, digest, err))
	}
	return nil
}

// addJudgments reads the judge's scores from a blob and adds them to the calls of groups.
func (c *Coordinator) addJudgments(ctx context.Context, groups [][]assign.Sample, digest string) error {
	data, err := c.Blobs.Get(ctx, digest)
	if err != nil {
		return fmt.Errorf("read the judgments %s: %w", digest, err)
	}
	var judgments record.Judgments
	err = json.Unmarshal(data, &judgments)
	if err == nil {
		err = assign.SetJudgments(groups, judgments)
	}
	if err != nil {
		return invalid(fmt.Errorf("the judgments %s: %w", digest, err))
	}
	return nil
}

// addresses lists the attempts that count, in order of task and sample.
func addresses(of StepGroups) []record.Address {
	var out []record.Address
	for _, g := range of.Groups {
		for sample, attempt := range g.Attempts {
			out = append(out, record.Address{
				RolloutID: record.RolloutID{Run: of.Run, Kind: cmp.Or(g.Kind, record.Train), Step: of.Step, Task: g.Task, Sample: sample},
				Attempt:   attempt,
			})
		}
	}
	return out
}

// FlatGroups reports which groups would get no advantage, so that others may replace
// them. It assigns credit with the code of AssignCredit, from the same records, and
// writes nothing. The run's history keeps the result, so a span that arrives later does
// not change it.
func (c *Coordinator) FlatGroups(ctx context.Context, in FlatGroupsInput) (_ FlatGroupsResult, err error) {
	defer temporalError(&err)
	_, s, err := readSpec(ctx, c.Runs, in.Run)
	if err != nil {
		return FlatGroupsResult{}, err
	}
	groups, err := c.samples(ctx, s, in.StepGroups)
	if err != nil {
		return FlatGroupsResult{}, fmt.Errorf("step %d of %s: %w", in.Step, in.Run, err)
	}
	flat, err := assign.FlatGroups(s, groups)
	if err != nil {
		return FlatGroupsResult{}, invalid(fmt.Errorf("groups of step %d of %s: %w", in.Step, in.Run, err))
	}
	return FlatGroupsResult{Flat: flat}, nil
}
