package dataset

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/fulgurite/fulgurite/credit"
	"github.com/fulgurite/fulgurite/credit/assign"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/trace"
)

// attempt is a trajectory together with the numbers with which each of its calls was
// trained.
type attempt struct {
	trace.Trajectory
	// rows are its sequences as the batch has them, in the batch's order.
	rows    []trace.Sequence
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
func join(t trace.Trajectory, rows []model.BatchRow) (attempt, error) {
	a := attempt{Trajectory: t, trained: make([]training, len(t.History))}
	for k, c := range t.History {
		a.trained[k] = training{mask: make([]int32, len(c.Completion)), advantages: make([]float32, len(c.Completion))}
		if len(rows) > 0 && rows[0].Returns != nil {
			a.trained[k].returns = make([]float32, len(c.Completion))
		}
	}
	left := trace.Merge(t.History)
	for i, r := range rows {
		at := slices.IndexFunc(left, func(s trace.Sequence) bool { return isRow(s, r, t.History) })
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
func isRow(s trace.Sequence, r model.BatchRow, calls []trace.Call) bool {
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
func (a *attempt) note(s trace.Sequence, r model.BatchRow) {
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
