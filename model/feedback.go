package model

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// RowObjective says what is learned from a row of a batch.
type RowObjective string

// The objectives of rows.
const (
	// PolicyGradient is that of tokens that the policy sampled and that have advantages.
	PolicyGradient RowObjective = ""
	// Supervised is that of text that the policy did not sample, such as a reply that a
	// person corrected: its Sampled tokens become more likely.
	Supervised RowObjective = "supervised"
	// Preference is that of a pair of rows with one prompt: of their completions, somebody
	// chose the one and rejected the other.
	Preference RowObjective = "preference"
)

// SupervisedRow returns a row that trains the tokens of a completion after those of a
// prompt. Neither may be empty. trajectory is an index into Batch.Trajectories.
func SupervisedRow(prompt, completion []int32, trajectory int) BatchRow {
	n, begin := len(prompt)+len(completion), len(prompt)
	r := BatchRow{
		Row: Row{Tokens: slices.Concat(prompt, completion), Temperature: 1}, Sampled: make([]bool, n), Logprobs: make([]float32, n),
		Advantages: make([]float32, n), Calls: make([]int32, n), Trajectory: trajectory, Objective: Supervised,
	}
	for i := range n {
		r.Sampled[i] = i >= begin
		if i < begin {
			r.Calls[i] = -1
		}
	}
	return r
}

// PreferenceRows returns the two rows of a pair: the chosen and the rejected completion of
// a prompt. None of the three may be empty. pair is a number that no other pair of the
// batch has. The trajectories are indices into Batch.Trajectories; they may be equal, and
// must be of one group.
func PreferenceRows(prompt, chosen, rejected []int32, pair, trajectoryChosen, trajectoryRejected int) [2]BatchRow {
	rows := [2]BatchRow{SupervisedRow(prompt, chosen, trajectoryChosen), SupervisedRow(prompt, rejected, trajectoryRejected)}
	for i := range rows {
		rows[i].Objective, rows[i].Pair, rows[i].Chosen = Preference, pair, i == 0
	}
	return rows
}

// Objective returns the objective of the batch's rows.
func (b Batch) Objective() RowObjective {
	if len(b.Rows) == 0 {
		return PolicyGradient
	}
	return b.Rows[0].Objective
}

// BatchPair has the indices of the two rows of a pair.
type BatchPair struct{ Chosen, Rejected int }

// Pairs returns the pairs among the rows with the given indices, in the order in which
// their first halves come. It returns an error that names the pair if a half is missing or
// there twice.
func (b Batch) Pairs(rows []int) ([]BatchPair, error) {
	const missing = -1
	var pairs []BatchPair
	index := map[int]int{} // into pairs, by number
	for _, i := range rows {
		r := b.Rows[i]
		at, ok := index[r.Pair]
		if !ok {
			at = len(pairs)
			index[r.Pair], pairs = at, append(pairs, BatchPair{missing, missing})
		}
		half := &pairs[at].Rejected
		if r.Chosen {
			half = &pairs[at].Chosen
		}
		if *half != missing {
			return nil, fmt.Errorf("pair %d: rows %d and %d are both its %s half", r.Pair, *half, i, halfOf(r.Chosen))
		}
		*half = i
	}
	for _, p := range pairs {
		if p.Chosen == missing || p.Rejected == missing {
			return nil, fmt.Errorf("pair %d: row %d has no %s half", b.Rows[max(p.Chosen, p.Rejected)].Pair, max(p.Chosen, p.Rejected), halfOf(p.Chosen == missing))
		}
	}
	return pairs, nil
}

func halfOf(chosen bool) string {
	if chosen {
		return "chosen"
	}
	return "rejected"
}

// checkFeedback returns an error if rows differ in their objective, or lack something
// that it needs.
func (b Batch) checkFeedback() error {
	of := b.Objective()
	for i, r := range b.Rows {
		if r.Objective != of {
			return fmt.Errorf("row 0 has the objective %q and row %d %q: make a batch for each objective", of, i, r.Objective)
		}
		if err := r.checkObjective(); err != nil {
			return fmt.Errorf("row %d: %w", i, err)
		}
	}
	if of != Preference {
		return nil
	}
	all := make([]int, len(b.Rows))
	for i := range all {
		all[i] = i
	}
	pairs, err := b.Pairs(all)
	if err != nil {
		return err
	}
	for _, p := range pairs {
		if err := b.checkPair(p); err != nil {
			return fmt.Errorf("pair %d, rows %d and %d: %w", b.Rows[p.Chosen].Pair, p.Chosen, p.Rejected, err)
		}
	}
	return nil
}

// checkObjective returns an error if a row has something that is not of its objective.
func (r BatchRow) checkObjective() error {
	switch r.Objective {
	case PolicyGradient, Supervised, Preference:
	default:
		return fmt.Errorf("unknown objective %q, want %q or %q", r.Objective, Supervised, Preference)
	}
	if r.Objective != Preference && (r.Pair != 0 || r.Chosen) {
		return fmt.Errorf("pair is %d and chosen %t, but the objective is %q", r.Pair, r.Chosen, r.Objective)
	}
	if r.Objective == PolicyGradient {
		return nil
	}
	if r.Returns != nil {
		return fmt.Errorf("it has returns, and no critic learns from the objective %q", r.Objective)
	}
	for t := range r.Tokens {
		if r.Logprobs[t] != 0 || r.Advantages[t] != 0 {
			return fmt.Errorf("token %d: log-probability %v and advantage %v, want 0 with the objective %q", t, r.Logprobs[t], r.Advantages[t], r.Objective)
		}
	}
	if r.Objective == Preference && r.Trained() == 0 {
		return errors.New("no token is trained, so half of its pair is missing")
	}
	if r.Pair < 0 || r.Pair > math.MaxInt32 {
		return fmt.Errorf("pair is %d, want a number from 0 to %d", r.Pair, math.MaxInt32)
	}
	return nil
}

// checkPair returns an error if the completions of a pair can't be compared, or might not
// be in one minibatch.
func (b Batch) checkPair(p BatchPair) error {
	chosen, rejected := b.Rows[p.Chosen], b.Rows[p.Rejected]
	switch groups := [2]int{b.Trajectories[chosen.Trajectory].Group, b.Trajectories[rejected.Trajectory].Group}; {
	case !slices.Equal(chosen.prompt(), rejected.prompt()):
		return errors.New("their prompts, the tokens before the first that is sampled, differ")
	case chosen.Temperature != rejected.Temperature:
		return fmt.Errorf("temperatures %v and %v, want equal ones", chosen.Temperature, rejected.Temperature)
	case chosen.Policy != rejected.Policy:
		return fmt.Errorf("policies %q and %q, want one", chosen.Policy, rejected.Policy)
	case groups[0] != groups[1]:
		return fmt.Errorf("groups %d and %d, want one", groups[0], groups[1])
	case slices.Equal(chosen.Tokens, rejected.Tokens) && slices.Equal(chosen.Sampled, rejected.Sampled):
		return errors.New("their completions are equal")
	}
	return nil
}

// prompt returns the tokens before the first that is sampled.
func (r BatchRow) prompt() []int32 { return r.Tokens[:max(0, slices.Index(r.Sampled, true))] }
