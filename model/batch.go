package model

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// BatchFormat names the layout of a training batch; docs/formats.md describes it,
// model/files/hf reads and writes it. A batch with forms in some row has the format
// MaskedBatchFormat, because a trainer that does not know forms would learn from it
// wrongly.
const (
	BatchFormat       = "fulgurite.batch/1"
	MaskedBatchFormat = "fulgurite.batch/2"
	// PoliciesBatchFormat is the format of a batch with rows of several policies: a trainer
	// has to train each policy on its own rows alone.
	PoliciesBatchFormat = "fulgurite.batch/3"
	// FeedbackBatchFormat is the format of a batch whose rows have an objective: a trainer
	// that took them for sampled replies with advantages would learn nothing from them. The
	// rows may have forms and may be of several policies.
	FeedbackBatchFormat = "fulgurite.batch/4"
)

// ErrBatch is wrapped by every error of Batch.Check.
var ErrBatch = errors.New("bad batch")

// Batch is everything that one update learns from. It is immutable: written
// once, named by its digest, and enough to repeat the update.
type Batch struct {
	Format    string `json:"format"`
	Policy    string `json:"policy"`
	Step      int    `json:"step"` // from 1; the update makes version Step of version Step-1
	VocabSize int    `json:"vocab_size"`
	// Denominators were counted over the whole batch before any mask.
	Denominators BatchDenominators `json:"denominators"`
	Trajectories []BatchTrajectory `json:"trajectories"`
	// Values is the digest of the critic's values that advantages and returns were
	// made of; empty without a critic.
	Values string `json:"values,omitempty"`
	// Judgments is the digest of a judge's scores of the batch's calls; empty without a
	// judge.
	Judgments string `json:"judgments,omitempty"`
	// Reference is the digest of the log-probabilities under version 0 that are part of
	// the batch's rewards, in a file of Values; empty if the rewards contain none.
	Reference string `json:"reference,omitempty"`
	// Baselines holds running means of rewards after this step, with which the next step
	// continues; nil if no running means are kept.
	Baselines map[string]float64 `json:"baselines,omitempty"`
	Rows      []BatchRow         `json:"-"` // arrays, not JSON
}

// BatchDenominators are the divisors of a loss.
type BatchDenominators struct {
	Tokens    int `json:"tokens"`    // trained tokens: the sum over the trajectories
	Sequences int `json:"sequences"` // rows with a trained token
}

// BatchTrajectory is one attempt of the batch.
type BatchTrajectory struct {
	Attempt string  `json:"attempt"` // a record.Address
	Group   int     `json:"group"`   // ordinal of its group in the batch
	Reward  float64 `json:"reward"`
	// Advantage is that of the whole trajectory; with several policies the mean of those for
	// each of them.
	Advantage float64 `json:"advantage"`
	// Trained is the number of tokens trained, counted before any mask.
	Trained int `json:"trained"`
	// LeftOut says why no row was made of the attempt: an attempt of its group could not
	// be given credit. It is empty otherwise.
	LeftOut string `json:"left_out,omitempty"`
}

// BatchRow is one sequence. All its slices except Forms have the length of Tokens, and
// element t describes Tokens[t].
type BatchRow struct {
	Row
	// Sampled marks the tokens that are trained. It never marks the first token, which is
	// context only.
	Sampled []bool
	// Logprobs has the recorded log-probability of each Sampled token, 0 elsewhere.
	Logprobs []float32
	// Advantages is 0 where not Sampled.
	Advantages []float32
	// Calls holds the Seq of the attempt's call that sampled the token, and -1 for
	// context. A token that belongs to a call but is not Sampled was masked.
	Calls []int32
	// Policy is the policy that sampled the row; empty if the run trains only one.
	Policy string
	// Trajectory is an index into Batch.Trajectories.
	Trajectory int
	// Returns has the critic's target for each Sampled token, 0 elsewhere; nil in all
	// rows without a critic.
	Returns []float32
	// Forms holds the forms that restricted the sampling of tokens, ordered by Start.
	Forms []BatchForm
	// Objective says what is learned from the row. It is the same in all rows of a batch.
	Objective RowObjective
	// Pair numbers the pair that the row is a half of, and Chosen says which half: the
	// completion that somebody chose, or the one that was rejected. Only with Preference.
	Pair   int
	Chosen bool
}

// Trained counts the tokens of r that are trained.
func (r BatchRow) Trained() int {
	n := 0
	for _, s := range r.Sampled {
		if s {
			n++
		}
	}
	return n
}

// Count sets Format, Denominators and each trajectory's Trained from the rows as
// they are now. Call it once, when the rows are complete and nothing is masked yet.
func (b *Batch) Count() {
	b.Format, b.Denominators = b.format(), BatchDenominators{}
	for i := range b.Trajectories {
		b.Trajectories[i].Trained = 0
	}
	for _, r := range b.Rows {
		n := r.Trained()
		b.Denominators.Tokens += n
		b.Trajectories[r.Trajectory].Trained += n
		if n > 0 {
			b.Denominators.Sequences++
		}
	}
}

// EngineRows returns the rows as an engine takes them. They share their tokens with b.
func (b Batch) EngineRows() []Row {
	rows := make([]Row, len(b.Rows))
	for i, r := range b.Rows {
		rows[i] = r.Row
	}
	return rows
}

// Check returns an error that names the row and the token if something would make the
// batch's update wrong.
func (b Batch) Check() error {
	switch {
	case b.Format != b.format():
		return fmt.Errorf("%w: format is %q, want %q", ErrBatch, b.Format, b.format())
	case b.Policy == "":
		return fmt.Errorf("%w: policy is empty", ErrBatch)
	case b.Step < 1:
		return fmt.Errorf("%w: step is %d, want at least 1", ErrBatch, b.Step)
	case b.VocabSize < 1:
		return fmt.Errorf("%w: vocab_size is %d, want at least 1", ErrBatch, b.VocabSize)
	}
	for i, t := range b.Trajectories {
		if t.Attempt == "" || t.Group < 0 || t.Trained < 0 || !finite(t.Reward) || !finite(t.Advantage) {
			return fmt.Errorf("%w: trajectory %d (%s): group %d, reward %v, advantage %v, trained %d",
				ErrBatch, i, t.Attempt, t.Group, t.Reward, t.Advantage, t.Trained)
		}
	}
	for i, r := range b.Rows {
		if r.Policy == "" && b.SeveralPolicies() {
			return fmt.Errorf("%w: row %d names no policy, and others do", ErrBatch, i)
		}
		if (r.Returns == nil) != (b.Rows[0].Returns == nil) {
			return fmt.Errorf("%w: rows 0 and %d: one has returns, the other has none", ErrBatch, i)
		}
		if err := r.check(b.VocabSize, len(b.Trajectories)); err != nil {
			return fmt.Errorf("%w: row %d: %w", ErrBatch, i, err)
		}
	}
	if err := b.checkFeedback(); err != nil {
		return fmt.Errorf("%w: %w", ErrBatch, err)
	}
	return b.checkDenominators()
}

// SeveralPolicies reports whether the rows name the policies that they train.
func (b Batch) SeveralPolicies() bool {
	return slices.ContainsFunc(b.Rows, func(r BatchRow) bool { return r.Policy != "" })
}

// Of returns the part of the batch from which a policy is trained: its rows, with counts of
// them alone. Trajectories stay, so their numbers stay. A batch of one policy is returned
// unchanged. The rows share their arrays with b.
func (b Batch) Of(policy string) Batch {
	if !b.SeveralPolicies() {
		return b
	}
	part := b
	part.Policy, part.Rows = policy, nil
	part.Trajectories = slices.Clone(b.Trajectories)
	for _, r := range b.Rows {
		if r.Policy == policy {
			r.Policy = ""
			part.Rows = append(part.Rows, r)
		}
	}
	part.Count()
	return part
}

// format returns the value that Format must have.
func (b Batch) format() string {
	if slices.ContainsFunc(b.Rows, func(r BatchRow) bool { return r.Objective != PolicyGradient }) {
		return FeedbackBatchFormat
	}
	if b.SeveralPolicies() {
		return PoliciesBatchFormat
	}
	for _, r := range b.Rows {
		if len(r.Forms) > 0 {
			return MaskedBatchFormat
		}
	}
	return BatchFormat
}

// checkDenominators allows masked rows, hence fewer trained tokens than were
// counted, but never more.
func (b Batch) checkDenominators() error {
	trained, sequences, sum := make([]int, len(b.Trajectories)), 0, 0
	for _, r := range b.Rows {
		n := r.Trained()
		trained[r.Trajectory] += n
		if n > 0 {
			sequences++
		}
	}
	for i, t := range b.Trajectories {
		sum += t.Trained
		if trained[i] > t.Trained {
			return fmt.Errorf("%w: trajectory %d (%s) counts %d trained tokens, its rows have %d", ErrBatch, i, t.Attempt, t.Trained, trained[i])
		}
	}
	if sum != b.Denominators.Tokens {
		return fmt.Errorf("%w: denominators count %d tokens, the trajectories %d", ErrBatch, b.Denominators.Tokens, sum)
	}
	if sequences > b.Denominators.Sequences {
		return fmt.Errorf("%w: denominators count %d sequences, %d rows are trained", ErrBatch, b.Denominators.Sequences, sequences)
	}
	return nil
}

func (r BatchRow) check(vocab, trajectories int) error {
	n := len(r.Tokens)
	if n < 2 {
		return fmt.Errorf("%d tokens, want at least 2", n)
	}
	if len(r.Sampled) != n || len(r.Logprobs) != n || len(r.Advantages) != n || len(r.Calls) != n {
		return fmt.Errorf("%d tokens with %d sampled, %d logprobs, %d advantages, %d calls",
			n, len(r.Sampled), len(r.Logprobs), len(r.Advantages), len(r.Calls))
	}
	if r.Returns != nil && len(r.Returns) != n {
		return fmt.Errorf("%d tokens with %d returns", n, len(r.Returns))
	}
	if !finite(r.Temperature) || r.Temperature <= 0 {
		return fmt.Errorf("temperature is %v, want a positive number", r.Temperature)
	}
	if r.Trajectory < 0 || r.Trajectory >= trajectories {
		return fmt.Errorf("trajectory %d of %d", r.Trajectory, trajectories)
	}
	if r.Sampled[0] {
		return errors.New("token 0 is marked sampled, but has no context")
	}
	for t := range n {
		if err := r.checkToken(t, vocab); err != nil {
			return fmt.Errorf("token %d: %w", t, err)
		}
		if r.Returns != nil && (!finite(float64(r.Returns[t])) || !r.Sampled[t] && r.Returns[t] != 0) {
			return fmt.Errorf("token %d: return is %v, want a finite number, and 0 of context", t, r.Returns[t])
		}
	}
	return r.checkForms()
}

func (r BatchRow) checkToken(t, vocab int) error {
	logprob, advantage := r.Logprobs[t], r.Advantages[t]
	switch {
	case r.Tokens[t] < 0 || int(r.Tokens[t]) >= vocab:
		return fmt.Errorf("id %d is outside the vocabulary of %d", r.Tokens[t], vocab)
	case !finite(float64(advantage)):
		return fmt.Errorf("advantage is %v", advantage)
	case !finite(float64(logprob)) || logprob > 0:
		return fmt.Errorf("log-probability is %v, want a finite number of at most 0", logprob)
	case !r.Sampled[t] && (logprob != 0 || advantage != 0):
		return fmt.Errorf("log-probability %v and advantage %v of context, want 0", logprob, advantage)
	case r.Calls[t] < -1 || (r.Sampled[t] && r.Calls[t] < 0):
		return fmt.Errorf("sampled is %t, but its call is %d", r.Sampled[t], r.Calls[t])
	}
	return nil
}

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }
