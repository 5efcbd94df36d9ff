package update

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/fulgurite/fulgurite/credit"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/hf"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
)

// Critic makes version t of a policy's critic from its parent and the returns in the
// step's batch; for one of several policies, those of its rows. Like Policy it continues a
// step that was cut off, with the same result to the bit.
func (m *Maker) Critic(ctx context.Context, t Target, policy string, run Run) (model.Version, error) {
	if run.Spec.Critic == nil {
		return model.Version{}, Invalid(fmt.Errorf("spec of run %s: it has no critic", run.Name))
	}
	m.begin()
	parent, err := m.parent(ctx, t)
	if err != nil {
		return model.Version{}, err
	}
	of := policy
	if len(run.Spec.Policies) > 0 {
		of = model.DefaultPolicy // the batch is of all policies
	}
	batch, err := m.batch(ctx, t, of)
	if err != nil {
		return model.Version{}, err
	}
	batch = batch.Of(policy)
	p, u, err := m.criticPlan(t, run, parent, batch)
	if err != nil {
		return model.Version{}, err
	}
	if p.updates == 0 { // nothing to learn
		return m.execute(ctx, p, "critic.learning_rate", func(tally) map[string]float64 { return map[string]float64{} })
	}
	err = m.timeScores(func() error {
		start, err := p.begin(ctx) // also if the step continues: the old values are those of the parent
		if err == nil {
			u.old, err = m.values(ctx, start.critic, batch.EngineRows())
		}
		return err
	})
	if err != nil {
		return model.Version{}, fmt.Errorf("version %s: %w", t.ID, err)
	}
	return m.execute(ctx, p, "critic.learning_rate", u.metrics)
}

// criticPlan returns the updates from parent to version t.
func (m *Maker) criticPlan(t Target, run Run, parent model.Version, batch model.Batch) (updatePlan, *criticUpdate, error) {
	s, training := run.Spec, run.Spec.Training
	training.Passes = s.Critic.Passes
	training.Optimizer.LearningRate, training.Optimizer.Schedule = s.Critic.LearningRate, spec.ScheduleConstant
	u := &criticUpdate{
		batch: batch, loss: credit.ValueLoss{Clip: s.Critic.Clip}, adamW: adamW(training.Optimizer, t.ID.Number, 1),
		updates: minibatches(batch, training, s.Seed, t.ID.Number), work: &m.work,
	}
	if len(u.updates) > 0 && batch.Rows[0].Returns == nil {
		return updatePlan{}, nil, Invalid(fmt.Errorf("batch %s of version %s has no returns to learn", t.Batch, t.ID))
	}
	if err := u.adamW.Check(); err != nil {
		return updatePlan{}, nil, Invalid(fmt.Errorf("version %s: %w", t.ID, err))
	}
	key, err := basis(struct {
		Engine, Fingerprint, Parent, Batch string
		Seed                               uint64
		Step                               int
		Training                           spec.Training
		Critic                             spec.Critic
	}{run.Engine.Name(), run.Engine.Fingerprint(), parent.Manifest, t.Batch, s.Seed, t.ID.Number, training, *s.Critic})
	return updatePlan{
		Target: t, run: run, codec: s.Model.Codec, basis: key, updates: len(u.updates), update: u.update,
		begin: m.beginFrom(parent, t, run),
	}, u, err
}

// The names of the metrics of a critic's step.
const (
	criticLoss     = "critic/loss"
	criticGradient = "critic/gradient_norm"
	criticVariance = "critic/explained_variance"
	criticMean     = "critic/value_mean"
)

// criticUpdate makes the updates of one step of the critic.
type criticUpdate struct {
	batch   model.Batch
	loss    credit.ValueLoss
	adamW   model.AdamW
	updates []minibatch
	// old are the values of the batch's rows by the critic that the step starts from.
	old  [][]float32
	work *atomic.Uint64
}

// update makes update number u. Its loss is the mean over the trained tokens of its part
// of the batch.
func (c *criticUpdate) update(ctx context.Context, l learner, u int) (map[string]float64, error) {
	m := c.updates[u]
	rows := make([]model.Row, len(m.rows))
	for i, row := range m.rows {
		rows[i] = model.Row{Tokens: c.batch.Rows[row].Tokens}
	}
	losses := make([]float64, len(rows))
	norm, err := l.critic.Update(ctx, rows, func(i int, values, gradient []float32) {
		r, old := c.batch.Rows[m.rows[i]], c.old[m.rows[i]]
		weight := m.denominators.Weight(credit.TokenMean, r.Trajectory)
		for j, v := range values {
			if !r.Sampled[j+1] {
				continue
			}
			loss, derivative := c.loss.Evaluate(float64(v), float64(old[j]), float64(r.Returns[j+1]))
			losses[i] += weight * loss
			gradient[j] = float32(weight * derivative)
		}
		c.work.Add(1)
	}, c.adamW)
	if err != nil {
		return nil, err
	}
	sum := 0.0
	for _, l := range losses { // in order of rows, so that metrics repeat to the bit
		sum += l
	}
	return map[string]float64{criticLoss: bounded(sum), criticGradient: bounded(norm)}, nil
}

// metrics returns the metrics of the step: how well the critic predicted the batch before
// it learned from it, and the mean of each metric over the updates.
func (c *criticUpdate) metrics(done tally) map[string]float64 {
	var values, returns []float64
	mean := 0.0
	for i, r := range c.batch.Rows {
		for t, sampled := range r.Sampled {
			if !sampled {
				continue
			}
			v := float64(c.old[i][t-1])
			values, returns = append(values, v), append(returns, float64(r.Returns[t]))
			mean += v
		}
	}
	return map[string]float64{
		criticLoss: done.value(criticLoss), criticGradient: done.value(criticGradient),
		criticVariance: bounded(credit.ExplainedVariance(values, returns)), criticMean: bounded(mean / float64(len(values))),
	}
}

// ScoreCritic estimates the remaining return of the next step's trajectories before each
// token of the completions, by version id of the critic. policies are those of several
// policies that have a critic: the critic of each, with the number of id, estimates the
// returns of the calls that the policy answered. Other calls have zeros. policies is nil if
// the run trains one. The result is an encoded model.Values.
func (m *Maker) ScoreCritic(ctx context.Context, id model.VersionID, policies []string, run Run, trajectories []record.Trajectory) ([]byte, error) {
	out := model.Values{Policy: id.Policy, Version: id.Number, Calls: make([][][]float32, len(trajectories))}
	for i, trajectory := range trajectories {
		out.Calls[i] = make([][]float32, len(trajectory.History))
		for k, c := range trajectory.History {
			out.Calls[i][k] = make([]float32, len(c.Completion))
		}
	}
	if policies == nil {
		if err := m.estimate(ctx, id, "", run, trajectories, out.Calls); err != nil {
			return nil, err
		}
	}
	for _, policy := range policies {
		critic, own := id, run
		critic.Policy, own.Spec = model.CriticName(policy), run.Spec.ForPolicy(policy)
		if err := m.estimate(ctx, critic, policy, own, trajectories, out.Calls); err != nil {
			return nil, fmt.Errorf("policy %s: %w", policy, err)
		}
	}
	data, err := hf.EncodeValues(out)
	if err != nil {
		return nil, Final(fmt.Errorf("%w: lower critic.learning_rate and start another run", err))
	}
	return data, nil
}

// estimate sets the values of the calls that a policy answered, by trajectory and call, to
// those of version id of its critic. The empty policy has all calls.
func (m *Maker) estimate(ctx context.Context, id model.VersionID, policy string, run Run, trajectories []record.Trajectory, calls [][][]float32) error {
	v, err := m.Versions.Version(ctx, id)
	if err != nil {
		return fmt.Errorf("read the critic: %w", err)
	}
	l, err := m.load(ctx, run, v)
	if err != nil {
		next := id
		next.Number++
		return fmt.Errorf("load the critic: %w", unreadable(err, next))
	}
	var rows []model.Row
	sequences := make([][]record.Sequence, len(trajectories))
	for i, trajectory := range trajectories {
		sequences[i] = slices.DeleteFunc(record.Merge(trajectory.History), func(s record.Sequence) bool { return policy != "" && s.Policy != policy })
		for _, s := range sequences[i] {
			rows = append(rows, model.Row{Tokens: s.Tokens})
		}
	}
	values, err := m.values(ctx, l.critic, rows)
	if err != nil {
		return err
	}
	for i, trajectory := range trajectories {
		n := len(sequences[i])
		if err := setCallValues(calls[i], trajectory.History, policy, sequences[i], values[:n]); err != nil {
			return Invalid(fmt.Errorf("attempt %s: %w", trajectory.Address, err))
		}
		values = values[n:]
	}
	return nil
}

// values returns a critic's values of rows.
func (m *Maker) values(ctx context.Context, critic model.Critic, rows []model.Row) ([][]float32, error) {
	return m.score(rows, func(rows []model.Row) ([][]float32, error) {
		values, err := critic.Values(ctx, rows)
		if err != nil {
			return nil, unrowed(fmt.Errorf("estimate values: %w", err))
		}
		return values, nil
	})
}

// setCallValues sets the values of the completion of each call that a policy answered,
// taken from the values of the sequences into which its calls were merged. A value depends
// only on the tokens before it, so any sequence that begins with the call has the same
// values. The empty policy has all calls.
func setCallValues(out [][]float32, calls []record.Call, policy string, sequences []record.Sequence, values [][]float32) error {
	for i, c := range calls {
		if policy != "" && c.Policy != policy {
			continue
		}
		from, to := len(c.Prompt), len(c.Prompt)+len(c.Completion)
		at := slices.IndexFunc(sequences, func(s record.Sequence) bool {
			return len(s.Tokens) >= to && slices.Equal(s.Tokens[:from], c.Prompt) && slices.Equal(s.Tokens[from:to], c.Completion)
		})
		if at < 0 || from == 0 {
			return fmt.Errorf("call %d has a prompt of %d tokens and is in no sequence", c.Seq, from)
		}
		out[i] = values[at][from-1 : to-1] // value j is the value before token j+1
	}
	return nil
}
