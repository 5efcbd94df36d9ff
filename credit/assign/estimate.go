package assign

import (
	"context"
	"fmt"
	"slices"

	"github.com/fulgurite/fulgurite/credit"
	"github.com/fulgurite/fulgurite/credit/signals"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/hf"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/trace"
)

const (
	// learnedSteps is how many steps before a step its estimates are learned from
	// too. Policies change; what older ones came to says little.
	learnedSteps = 4
	// lastTokens is how many of the last tokens of a prompt are features.
	lastTokens = 64
	// lastTurn is the turn from which on turns are not told apart.
	lastTurn = 15
)

// Earlier reads the groups of the steps before one, from which its estimates are
// learned too.
func (s Source) Earlier(ctx context.Context, step int) ([][]Sample, error) {
	var all [][]Sample
	for k := max(1, step-learnedSteps); k < step; k++ {
		groups, _, err := s.Step(ctx, k)
		if err == nil {
			err = s.Observe(ctx, groups)
		}
		if err != nil {
			return nil, err
		}
		all = append(all, groups...)
	}
	return all, nil
}

// Estimate fills in what each call of each sample could expect, learned from the
// other groups and from earlier ones. All have been observed.
func Estimate(of spec.Spec, earlier, groups [][]Sample) error {
	all := slices.Concat(earlier, groups)
	trajectories, err := Trajectories(of, all)
	if err != nil {
		return err
	}
	examples, err := examples(of.Credit.Plan(), all, trajectories)
	if err != nil {
		return err
	}
	estimators, err := credit.FitValues(examples)
	if err != nil {
		return err
	}
	estimators = estimators[len(earlier):]
	for g, samples := range groups {
		for i := range samples {
			one := &samples[i]
			one.Before = make([]float64, len(one.History))
			for k, c := range one.History {
				one.Before[k] = estimators[g].Value(features(c, one.Calls[k], k))
			}
		}
	}
	return nil
}

// Step reads the attempts that a step was trained on, and its batch.
func (s Source) Step(ctx context.Context, step int) ([][]Sample, model.Batch, error) {
	b, err := s.batch(ctx, step)
	if err != nil {
		return nil, b, err
	}
	addresses := make([]trace.Address, len(b.Trajectories))
	last := -1
	for i, t := range b.Trajectories {
		if addresses[i], err = trace.ParseAddress(t.Attempt); err != nil {
			return nil, b, fmt.Errorf("batch of step %d of %s: %w", step, s.Run, err)
		}
		last = max(last, t.Group)
	}
	trajectories, err := s.Attempts.Trajectories(ctx, addresses)
	if err != nil {
		return nil, b, fmt.Errorf("read the trajectories of step %d: %w", step, err)
	}
	groups := make([][]Sample, last+1)
	for i, t := range b.Trajectories {
		groups[t.Group] = append(groups[t.Group], NewSample(trajectories[i], t.Reward))
	}
	return groups, b, nil
}

// batch is that of a step.
func (s Source) batch(ctx context.Context, step int) (model.Batch, error) {
	entry, err := s.Batches.Batch(ctx, s.Run, s.Policy, step)
	if err != nil {
		return model.Batch{}, err
	}
	data, err := s.Blobs.Get(ctx, entry.Digest)
	if err != nil {
		return model.Batch{}, fmt.Errorf("read the batch of step %d of %s: %w", step, s.Run, err)
	}
	b, err := hf.DecodeBatch(data)
	if err != nil {
		return b, fmt.Errorf("batch %s of step %d of %s: %w", entry.Digest, step, s.Run, err)
	}
	return b, nil
}

// examples are what was known before each call that is trained, and what its attempt
// came to.
func examples(p credit.Plan, groups [][]Sample, trajectories [][]credit.Trajectory) ([][]credit.Example, error) {
	out := make([][]credit.Example, len(groups))
	for g, samples := range groups {
		for i, one := range samples {
			reward, err := p.Reward(trajectories[g][i])
			if err != nil {
				return nil, err
			}
			for k, c := range one.History {
				if !trajectories[g][i].Calls[k].Skip {
					out[g] = append(out[g], credit.Example{Features: features(c, one.Calls[k], k), Outcome: reward})
				}
			}
		}
	}
	return out, nil
}

// features are what tells calls apart that may expect different rewards: whose turn
// it is and which, the state, both together, and the end of the prompt, token by
// token and in pairs.
func features(c trace.Call, seen signals.Call, turn int) []uint64 {
	turn = min(turn, lastTurn)
	state := text(seen.State)
	out := []uint64{
		number('n', uint64(turn)), number('a', text(seen.Agent)), number('s', state), number('b', state, uint64(turn)),
	}
	end := c.Prompt[max(0, len(c.Prompt)-lastTokens):]
	for i, token := range end {
		out = append(out, number('t', uint64(token)))
		if i > 0 {
			out = append(out, number('p', uint64(end[i-1]), uint64(token)))
		}
	}
	return out
}

// The hash is FNV-1a of 64 bits.
const (
	fnvOffset uint64 = 14695981039346656037
	fnvPrime  uint64 = 1099511628211
)

// number is the feature of a kind that has those numbers.
func number(kind byte, of ...uint64) uint64 {
	h := (fnvOffset ^ uint64(kind)) * fnvPrime
	for _, v := range of {
		for range 8 {
			h = (h ^ v&0xff) * fnvPrime
			v >>= 8
		}
	}
	return h
}

func text(s string) uint64 {
	h := fnvOffset
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * fnvPrime
	}
	return h
}
