// Package dataset exports the training data of a run for other trainers, as JSONL or
// Parquet files: a transition for each model call, or the merged sequences of each batch,
// with token ids, log-probabilities, loss masks, rewards and advantages. Of a run that
// learns from corrected texts or from preferences, it writes each prompt with the text, or
// with the chosen and the rejected reply.
//
// The package reads what is on record. Masks and advantages are those of the batch that
// was trained; forms and names of agents are those of its calls. It computes one number
// again, the shaped reward, which no record has.
// Rows are written step by step, in the order of the batch, so that a run of any length
// fits into memory and equal runs give equal files. docs/formats.md describes the
// columns.
package dataset

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/fulgurite/fulgurite/credit"
	"github.com/fulgurite/fulgurite/credit/assign"
	"github.com/fulgurite/fulgurite/credit/attribution"
	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/hf"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
)

// ErrRecords is wrapped when a batch was not made from the calls on record.
var ErrRecords = errors.New("batch and calls disagree")

// Store is the part of a store that a dataset reads.
type Store interface {
	Run(ctx context.Context, name string) (record.Run, error)
	Batches(ctx context.Context, run, policy string) ([]record.Batch, error)
	Trajectories(ctx context.Context, addresses []record.Address) ([]record.Trajectory, error)
	Exchanges(ctx context.Context, address record.Address) ([]record.Exchange, error)
	Spans(ctx context.Context, address record.Address) ([]record.Span, error)
	// Segment returns what a step learned from conversations, or record.ErrNotFound.
	Segment(ctx context.Context, run, policy string, step int) (record.Segment, error)
}

// Blobs keeps content under its digest.
type Blobs interface {
	Get(ctx context.Context, digest string) ([]byte, error)
}

// Codecs finds a codec by its name in a spec.
type Codecs interface {
	Named(name string) (dialog.Codec, error)
}

// Source is a policy of a run on record.
type Source struct {
	Store       Store
	Blobs       Blobs
	Codecs      Codecs // only Corrections and Pairs need it
	Run, Policy string
}

// Sequences calls yield with each row of each batch.
func (s Source) Sequences(ctx context.Context, yield func(Sequence) error) error {
	return s.sampled(ctx, func(digest string, b model.Batch, attempts []attempt) error {
		places := make([]int, len(b.Trajectories)) // rows of each trajectory so far
		for _, r := range b.Rows {
			a := attempts[r.Trajectory]
			row, err := sequence(s.Run, digest, b, r, a, a.rows[places[r.Trajectory]])
			if err != nil {
				return err
			}
			places[r.Trajectory]++
			if err := yield(row); err != nil {
				return err
			}
		}
		return nil
	})
}

// Transitions calls yield with each call of each trajectory of each batch.
func (s Source) Transitions(ctx context.Context, yield func(Transition) error) error {
	return s.sampled(ctx, func(_ string, b model.Batch, attempts []attempt) error {
		for i, a := range attempts {
			spans, err := s.Store.Spans(ctx, a.Address)
			if err != nil {
				return fmt.Errorf("read the spans of %s: %w", a.Address, err)
			}
			history, err := s.Store.Exchanges(ctx, a.Address)
			if err != nil {
				return err
			}
			names := attribution.Of(history, spans, a.Terms.Ignore)
			if len(history) < len(a.History) {
				return fmt.Errorf("%w: calls of %s were removed while they were read", ErrRecords, a.Address)
			}
			for k, c := range history[:len(a.History)] { // a conversation may have gone on since its step
				row, err := transition(b, b.Trajectories[i], c, names[k], a, a.trained[k])
				if err != nil {
					return err
				}
				row.Last = k == len(a.History)-1
				if err := yield(row); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// sampled calls use with each batch, whose rows were sampled by calls on record.
func (s Source) sampled(ctx context.Context, use func(digest string, b model.Batch, attempts []attempt) error) error {
	return s.batches(ctx, model.PolicyGradient, func(digest string, b model.Batch, of spec.Spec) error {
		attempts, err := s.attempts(ctx, of, b)
		if err != nil {
			return err
		}
		return use(digest, b, attempts)
	})
}

// batches calls use with each batch, in the order of steps. The rows of all of them must be
// of one objective.
func (s Source) batches(ctx context.Context, objective model.RowObjective, use func(digest string, b model.Batch, of spec.Spec) error) error {
	run, err := s.Store.Run(ctx, s.Run)
	if err != nil {
		return fmt.Errorf("read run %s: %w", s.Run, err)
	}
	of, err := spec.Stored(run.Spec)
	if err != nil {
		return fmt.Errorf("decode the spec of run %s: %w", s.Run, err)
	}
	list, err := s.Store.Batches(ctx, s.Run, s.Policy)
	if err != nil {
		return fmt.Errorf("list batches of %s: %w", s.Run, err)
	}
	for _, entry := range list {
		file, err := s.Blobs.Get(ctx, entry.Digest)
		if err != nil {
			return fmt.Errorf("read the batch of step %d: %w", entry.Step, err)
		}
		b, err := hf.DecodeBatch(file)
		if err != nil {
			return fmt.Errorf("batch of step %d (%s): %w", entry.Step, entry.Digest, err)
		}
		if err := checkRows(b, objective); err != nil {
			return fmt.Errorf("batch of step %d (%s) %w", entry.Step, entry.Digest, err)
		}
		if err := use(entry.Digest, b, of); err != nil {
			return fmt.Errorf("batch of step %d (%s): %w", entry.Step, entry.Digest, err)
		}
	}
	return nil
}

// attempts returns the records of each trajectory of a batch.
func (s Source) attempts(ctx context.Context, of spec.Spec, b model.Batch) ([]attempt, error) {
	addresses := make([]record.Address, len(b.Trajectories))
	for i, t := range b.Trajectories {
		var err error
		if addresses[i], err = record.ParseAddress(t.Attempt); err != nil {
			return nil, err
		}
	}
	trajectories, err := s.Store.Trajectories(ctx, addresses)
	if err != nil {
		return nil, fmt.Errorf("read its trajectories: %w", err)
	}
	if of.FromTraffic() {
		if err := s.cut(ctx, b, trajectories); err != nil {
			return nil, err
		}
	}
	rows := make([][]model.BatchRow, len(trajectories))
	for _, r := range b.Rows {
		rows[r.Trajectory] = append(rows[r.Trajectory], r)
	}
	out := make([]attempt, len(trajectories))
	for i, t := range trajectories {
		if out[i], err = join(t, rows[i]); err != nil {
			return nil, fmt.Errorf("attempt %s: %w", t.Address, err)
		}
		if err := out[i].addRewards(of, b.Trajectories[i].Reward); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// cut leaves in the trajectories of conversations the calls from which their step learned,
// since conversations go on. A conversation that was removed since has none.
func (s Source) cut(ctx context.Context, b model.Batch, trajectories []record.Trajectory) error {
	segment, err := s.Store.Segment(ctx, s.Run, s.Policy, b.Step)
	if err != nil {
		return fmt.Errorf("read the segment of step %d: %w", b.Step, err)
	}
	for i := range trajectories {
		t := &trajectories[i]
		k, ok := slices.BinarySearch(segment.Conversations, t.Address.Task)
		switch {
		case !ok:
			return fmt.Errorf("%w: conversation %s is no part of the segment of step %d", ErrRecords, t.Address, b.Step)
		case len(t.History) < segment.Calls[k]:
			return fmt.Errorf("%w: conversation %s was removed since, by retention or with its user", ErrRecords, t.Address)
		}
		t.History = t.History[:segment.Calls[k]]
	}
	return nil
}

// attempt is a trajectory together with the numbers with which each of its calls was
// trained.
type attempt struct {
	record.Trajectory
	// rows are its sequences as the batch has them, in the batch's order.
	rows    []record.Sequence
	trained []training // by call
	// rewards are those of the attempt, by name, and shaped is what credit makes of them; nil
	// if it can't.
	rewards []NamedReward
	shaped  *float64
}

// addRewards adds the rewards of the attempt, of which final is the one that its step
// counted, and their weighted sum after shaping.
func (a *attempt) addRewards(s spec.Spec, final float64) error {
	a.rewards = []NamedReward{{credit.Final, final}}
	for _, r := range a.Rewards {
		if r.CallID == "" && r.Name != credit.Final {
			a.rewards = append(a.rewards, NamedReward{r.Name, r.Value})
		}
	}
	sortByName(a.rewards)
	s.Credit.TrainAgents = "" // the rewards of an attempt don't depend on its agents
	trajectories, err := assign.Trajectories(s, [][]assign.Sample{{assign.NewSample(a.Trajectory, final)}})
	var shaped float64
	if err == nil {
		shaped, err = s.Credit.Plan().Reward(trajectories[0][0])
	}
	switch {
	case err == nil:
		a.shaped = &shaped
	case !assign.Ungiven(err):
		return fmt.Errorf("reward of %s: %w", a.Address, err)
	}
	return nil
}

// callRewards returns the rewards that were given to a call.
func (a *attempt) callRewards(id string) []NamedReward {
	out := []NamedReward{}
	for _, r := range a.Rewards {
		if r.CallID != "" && r.CallID == id {
			out = append(out, NamedReward{r.Name, r.Value})
		}
	}
	sortByName(out)
	return out
}

func sortByName(rewards []NamedReward) {
	slices.SortFunc(rewards, func(a, b NamedReward) int { return cmp.Compare(a.Name, b.Name) })
}

// training holds the numbers with which a call's completion was trained, token by token.
// For a call that was not trained, all numbers are 0.
type training struct {
	mask       []int32
	advantages []float32
	returns    []float32 // nil without a critic
}

// join finds the calls of a trajectory in its rows of a batch. Only the batch knows what
// was trained. Only the calls know which of the other tokens were sampled.
func join(t record.Trajectory, rows []model.BatchRow) (attempt, error) {
	a := attempt{Trajectory: t, trained: make([]training, len(t.History))}
	for k, c := range t.History {
		a.trained[k] = training{mask: make([]int32, len(c.Completion)), advantages: make([]float32, len(c.Completion))}
		if len(rows) > 0 && rows[0].Returns != nil {
			a.trained[k].returns = make([]float32, len(c.Completion))
		}
	}
	left := record.Merge(t.History)
	for i, r := range rows {
		at := slices.IndexFunc(left, func(s record.Sequence) bool { return isRow(s, r, t.History) })
		if at < 0 {
			return a, fmt.Errorf("%w: its row %d is from no call on record", ErrRecords, i)
		}
		a.rows = append(a.rows, left[at])
		a.note(left[at], r)
		left = slices.Delete(left, at, at+1)
	}
	return a, nil
}

// isRow reports whether the row was made of the sequence.
func isRow(s record.Sequence, r model.BatchRow, calls []record.Call) bool {
	if s.Temperature != r.Temperature || !slices.Equal(s.Tokens, r.Tokens) {
		return false
	}
	for i, sampled := range r.Sampled {
		if sampled && (s.Call[i] < 0 || calls[s.Call[i]].Seq != int(r.Calls[i])) {
			return false
		}
	}
	return true
}

// note records, for each call in the row, what the row trained.
func (a *attempt) note(s record.Sequence, r model.BatchRow) {
	next := make([]int, len(a.History)) // token of each call's completion
	for i, call := range s.Origin {
		if call < 0 {
			continue
		}
		t, k := &a.trained[call], next[call]
		next[call]++
		if !r.Sampled[i] {
			continue
		}
		t.mask[k], t.advantages[k] = 1, r.Advantages[i]
		if t.returns != nil {
			t.returns[k] = r.Returns[i]
		}
	}
}
