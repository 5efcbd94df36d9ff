package update

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/fulgurite/fulgurite/internal/memory"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/hf"
	"github.com/fulgurite/fulgurite/record"
)

// reference is the frozen policy that a KL penalty compares the trained policy with:
// version 0 of its run. It stays in memory, in addition to the policy that is trained,
// until the first step of a run that does not need it.
type reference struct {
	scorer   model.RowScorer
	manifest string
}

func (r *reference) drop() {
	if r.scorer != nil {
		r.scorer.Close()
	}
	*r = reference{}
}

// loadReference loads the reference for the step that makes version id.
func (m *Maker) loadReference(ctx context.Context, id model.VersionID, engine model.Engine) (model.RowScorer, error) {
	first := id
	first.Number = 0
	v, err := m.Versions.Version(ctx, first)
	if err != nil {
		return nil, fmt.Errorf("read the reference %s: %w", first, err)
	}
	if m.reference.scorer != nil && m.reference.manifest == v.Manifest {
		return m.reference.scorer, nil
	}
	m.reference.drop()              // before the next one is loaded, because both may not fit in memory
	c, err := m.loadWeights(ctx, v) // the reference is not trained
	if err != nil {
		return nil, fmt.Errorf("load the reference %s: %w", first, unreadable(err, id))
	}
	scorer, err := newRowScorer(engine, c)
	if err != nil {
		return nil, engineError(fmt.Errorf("reference %s: engine %s: %w", first, engine.Name(), err))
	}
	m.reference = reference{scorer, v.Manifest}
	m.work.Add(1)
	memory.Dropped(size(c)) // the engine has copied it
	return scorer, nil
}

// newRowScorer returns a scorer of rows with the weights of c. If the engine has one, it
// takes less memory than a trainer.
func newRowScorer(engine model.Engine, c model.Checkpoint) (model.RowScorer, error) {
	if e, ok := engine.(model.ScoringEngine); ok {
		return e.NewRowScorer(c)
	}
	t, err := engine.NewTrainer(c)
	if err != nil {
		return nil, err // an interface that holds a nil trainer would not be nil
	}
	return t, nil
}

// scoreRows is how many rows are scored at a time. After each of these parts, progress is
// reported.
const scoreRows = 64

// score returns the numbers that f computes for rows. It calls f with a few rows at a
// time.
func (m *Maker) score(rows []model.Row, f func([]model.Row) ([][]float32, error)) ([][]float32, error) {
	out := make([][]float32, 0, len(rows))
	for some := range slices.Chunk(rows, scoreRows) {
		numbers, err := f(some)
		if err != nil {
			return nil, err
		}
		out = append(out, numbers...)
		m.work.Add(uint64(len(some)))
	}
	return out, nil
}

// logprobs returns a policy's log-probabilities of the batch's rows, each with the
// temperature and the forms with which it was sampled.
func (m *Maker) logprobs(ctx context.Context, policy model.RowScorer, b model.Batch) ([][]float32, error) {
	return m.rowLogprobs(ctx, policy, b.EngineRows())
}

// rowLogprobs returns a policy's log-probabilities of rows.
func (m *Maker) rowLogprobs(ctx context.Context, policy model.RowScorer, rows []model.Row) ([][]float32, error) {
	return m.score(rows, func(rows []model.Row) ([][]float32, error) {
		logprobs, _, err := policy.Score(ctx, rows)
		if err != nil {
			return nil, unrowed(fmt.Errorf("score the batch: %w", err))
		}
		return logprobs, nil
	})
}

// unrowed marks an error of an engine that takes none of the rows: no other try helps.
func unrowed(err error) error {
	if errors.Is(err, model.ErrRow) {
		return Invalid(err)
	}
	return err
}

// ScoreReference computes log-probabilities under version 0 of a policy, for the sampled
// tokens of the step towards version id, with the temperature and the forms under which
// they were sampled. policies are those of several policies whose rewards contain the
// divergence: version 0 of each scores the calls that the policy answered. Other calls have
// zeros. policies is nil if the run trains one. The result is an encoded model.Values.
func (m *Maker) ScoreReference(ctx context.Context, id model.VersionID, policies []string, run Run, trajectories []record.Trajectory) ([]byte, error) {
	b := model.Batch{Policy: id.Policy, Step: id.Number}
	for i, trajectory := range trajectories {
		all := shares{calls: make([]float64, len(trajectory.History)), skip: make([]bool, len(trajectory.History))}
		sequences, err := rows(trajectory, i, all)
		if err != nil {
			return nil, Invalid(fmt.Errorf("attempt %s: %w", trajectory.Address, err))
		}
		b.Rows = append(b.Rows, sequences...)
	}
	if err := b.Restrict(m.Constrain); err != nil {
		return nil, Invalid(err)
	}
	logprobs := make([][]float32, len(b.Rows))
	for i, r := range b.Rows {
		logprobs[i] = make([]float32, max(0, len(r.Tokens)-1))
	}
	if policies == nil {
		if err := m.scoreFirst(ctx, id, "", run, b, logprobs); err != nil {
			return nil, err
		}
	}
	for _, policy := range policies {
		own := id
		own.Policy = policy
		if err := m.scoreFirst(ctx, own, policy, run, b, logprobs); err != nil {
			return nil, fmt.Errorf("policy %s: %w", policy, err)
		}
	}
	out := model.Values{Policy: id.Policy, Calls: make([][][]float32, len(trajectories))}
	for i, trajectory := range trajectories {
		var err error
		if out.Calls[i], err = callLogprobs(trajectory, i, b.Rows, logprobs); err != nil {
			return nil, Invalid(fmt.Errorf("attempt %s: %w", trajectory.Address, err))
		}
	}
	data, err := hf.EncodeValues(out)
	if err != nil {
		return nil, Invalid(err)
	}
	return data, nil
}

// scoreFirst sets the log-probabilities of the rows that a policy sampled to those under its
// version 0. The empty policy has all rows.
func (m *Maker) scoreFirst(ctx context.Context, id model.VersionID, policy string, run Run, b model.Batch, logprobs [][]float32) error {
	var own []model.Row
	var at []int // the row of the batch
	for i, r := range b.Rows {
		if policy == "" || r.Policy == policy {
			own, at = append(own, r.Row), append(at, i)
		}
	}
	reference, err := m.loadReference(ctx, id, run.Engine)
	if err != nil {
		return err
	}
	scores, err := m.rowLogprobs(ctx, reference, own)
	if err != nil {
		return err
	}
	for i, row := range at {
		logprobs[row] = scores[i]
	}
	return nil
}

// callLogprobs returns the log-probabilities of the completions of trajectory i, taken
// from the rows into which it was merged. They are 0 for tokens that are not trained.
func callLogprobs(t record.Trajectory, i int, rows []model.BatchRow, logprobs [][]float32) ([][]float32, error) {
	out, index := make([][]float32, len(t.History)), map[int32]int{}
	next := make([]int, len(t.History)) // the next token of each completion
	for k, c := range t.History {
		out[k], index[int32(c.Seq)] = make([]float32, len(c.Completion)), k
	}
	for n, r := range rows {
		if r.Trajectory != i {
			continue
		}
		for at, sampled := range r.Sampled {
			if !sampled {
				continue
			}
			k := index[r.Calls[at]]
			next[k] = nextTrained(t.History[k], next[k])
			if next[k] == len(out[k]) {
				return nil, fmt.Errorf("its rows have more tokens of call %d than it sampled", r.Calls[at])
			}
			out[k][next[k]] = logprobs[n][at-1] // number j belongs to token j+1
			next[k]++
		}
	}
	for k, c := range t.History {
		if nextTrained(c, next[k]) != len(out[k]) {
			return nil, fmt.Errorf("its rows lack tokens of call %d", c.Seq)
		}
	}
	return out, nil
}

// nextTrained returns the index of the first trained token of a completion, beginning at
// from.
func nextTrained(c record.Call, from int) int {
	for from < len(c.Completion) && c.Untrained != nil && c.Untrained[from] {
		from++
	}
	return from
}

// tokenScores collects the trainer's scores of the trained tokens of a batch.
type tokenScores struct {
	model.Scores
	batch model.Batch
	first []int // index of the first token of each row
}

func newTokenScores(digest string, b model.Batch) *tokenScores {
	s := &tokenScores{Scores: model.Scores{Batch: digest}, batch: b, first: make([]int, len(b.Rows))}
	n := 0
	for i, r := range b.Rows {
		s.first[i] = n
		n += r.Trained()
	}
	s.Logprobs, s.Entropies = make([]float32, n), make([]float32, n)
	for i := range n {
		s.Logprobs[i], s.Entropies[i] = float32(math.NaN()), float32(math.NaN())
	}
	return s
}

// add adds the numbers of a row of the batch, for each of its tokens but the first,
// unless an earlier update has already read the row. It may be called for several rows at
// the same time. A nil tokenScores collects nothing.
func (s *tokenScores) add(row int, logprobs, entropies []float32) {
	if s == nil {
		return
	}
	at := s.first[row]
	for i, sampled := range s.batch.Rows[row].Sampled[1:] {
		if !sampled {
			continue
		}
		if math.IsNaN(float64(s.Entropies[at])) {
			s.Logprobs[at], s.Entropies[at] = logprobs[i], entropies[i]
		}
		at++
	}
}

// save stores the scores and returns their digest.
func (s *tokenScores) save(ctx context.Context, m *Maker) (string, error) {
	file, err := hf.EncodeScores(s.Scores)
	if err != nil {
		return "", err
	}
	digest, err := m.blobs().Put(ctx, file)
	if err != nil {
		return "", fmt.Errorf("keep the scores of batch %s: %w", s.Batch, err)
	}
	return digest, nil
}
