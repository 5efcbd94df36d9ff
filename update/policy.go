package update

import (
	"context"
	"fmt"
	"maps"
	"math"
	"strings"
	"sync/atomic"
	"time"

	"github.com/fulgurite/fulgurite/credit"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/hf"
	"github.com/fulgurite/fulgurite/spec"
)

// Policy makes version t of a policy from its parent and the step's batch. The step has
// passes × minibatches optimizer updates, one by default, and none if no token is trained. A step that was cut off
// continues from its last saved update, with the same result to the bit.
func (m *Maker) Policy(ctx context.Context, t Target, run Run) (model.Version, error) {
	m.begin()
	parent, err := m.parent(ctx, t)
	if err != nil {
		return model.Version{}, err
	}
	of := t.ID.Policy
	if len(run.Spec.Policies) > 0 {
		of = model.DefaultPolicy // the batch is of all policies
	}
	batch, err := m.batch(ctx, t, of)
	if err != nil {
		return model.Version{}, err
	}
	batch = batch.Of(t.ID.Policy)
	p, u, err := m.policyPlan(t, run, parent, batch)
	if err != nil {
		return model.Version{}, err
	}
	if p.updates == 0 { // nothing to train: the version has the weights and moments of its parent
		m.Warn(ctx, "the step has no token to train, so the version is its parent without an update", "version", t.ID.String())
		p.scores = nil
		return m.execute(ctx, p, "training.optimizer.learning_rate", u.metrics)
	}
	if err := m.timeScores(func() error { return m.scoreBatch(ctx, p, u) }); err != nil {
		return model.Version{}, fmt.Errorf("version %s: %w", t.ID, err)
	}
	if u.limits.servers > 1 || u.limits.several {
		if u.servers, err = m.serversOf(ctx, batch, u.limits); err != nil {
			return model.Version{}, fmt.Errorf("version %s: %w", t.ID, err)
		}
	}
	v, err := m.execute(ctx, p, "training.optimizer.learning_rate", u.metrics)
	if err == nil && m.Trained != nil {
		m.Trained(batch.Denominators.Tokens)
	}
	return v, err
}

// timeScores measures how long score takes, without the parent that it may load.
func (m *Maker) timeScores(score func() error) error {
	loaded, began := m.spent.Load, time.Now()
	err := score()
	m.spent.Score += time.Since(began) - (m.spent.Load - loaded)
	return err
}

// scoreBatch scores the batch by those policies whose log-probabilities the objective
// reads. A step that continues does this again.
func (m *Maker) scoreBatch(ctx context.Context, p updatePlan, u *policyUpdate) error {
	switch {
	case u.toFirst:
		first, err := m.loadReference(ctx, p.ID, p.run.Engine)
		if err != nil {
			return err
		}
		if u.first, err = m.logprobs(ctx, first, u.batch); err != nil {
			return err
		}
	case u.objective.KL.Weight == 0 && u.refers: // the next step needs the reference again
	case u.objective.KL.Weight == 0:
		m.reference.drop()
	default:
		reference, err := m.loadReference(ctx, p.ID, p.run.Engine)
		if err != nil {
			return err
		}
		if u.reference, err = m.logprobs(ctx, reference, u.batch); err != nil {
			return err
		}
	}
	if !u.objective.Correction.Corrects() && u.preference == nil {
		return nil
	}
	start, err := p.begin(ctx) // the proximal policy is the parent, also of a step that continues
	if err == nil {
		u.proximal, err = m.logprobs(ctx, start.policy, u.batch)
	}
	return err
}

// policyPlan returns the updates from parent to version t.
func (m *Maker) policyPlan(t Target, run Run, parent model.Version, batch model.Batch) (updatePlan, *policyUpdate, error) {
	s, steps := run.Spec, run.Spec.Training.Total(run.Tasks)
	u := &policyUpdate{
		batch: batch, logprobs: m.rowLogprobs, adamW: adamW(s.Training.Optimizer, t.ID.Number, steps),
		updates: minibatches(batch, s.Training, s.Seed, t.ID.Number), work: &m.work,
		aggregation: s.Loss.Aggregation, length: s.Loss.Length, refers: s.Credit.KLInReward != nil,
		limits: limitsOf(s, t), scores: newTokenScores(t.Batch, batch), warn: m.Warn,
	}
	if err := u.setLoss(s.Loss); err != nil {
		return updatePlan{}, nil, Invalid(fmt.Errorf("version %s: %w", t.ID, err))
	}
	if err := u.adamW.Check(); err != nil {
		return updatePlan{}, nil, Invalid(fmt.Errorf("version %s: %w", t.ID, err))
	}
	key, err := basis(struct {
		Engine, Fingerprint, Parent, Batch string
		Seed                               uint64
		Step, Steps                        int
		Training                           spec.Training
		Loss                               spec.Loss
	}{run.Engine.Name(), run.Engine.Fingerprint(), parent.Manifest, t.Batch, s.Seed, t.ID.Number, steps, s.Training, s.Loss})
	return updatePlan{
		Target: t, run: run, codec: s.Model.Codec, basis: key, updates: len(u.updates), update: u.update,
		begin: m.beginFrom(parent, t, run), canary: canaryOf(s, batch), scores: u.scores,
	}, u, err
}

// parent reads the version from which t is made.
func (m *Maker) parent(ctx context.Context, t Target) (model.Version, error) {
	id := t.ID
	id.Number = t.Parent
	v, err := m.Versions.Version(ctx, id)
	if err != nil {
		return v, fmt.Errorf("read the parent of version %s: %w", t.ID, err)
	}
	return v, nil
}

// beginFrom returns a function that loads the parent of t.
func (m *Maker) beginFrom(parent model.Version, t Target, run Run) func(context.Context) (learner, error) {
	return func(ctx context.Context) (learner, error) {
		l, err := m.load(ctx, run, parent)
		if err != nil {
			return learner{}, fmt.Errorf("load the parent of version %s: %w", t.ID, unreadable(err, t.ID))
		}
		return l, nil
	}
}

// batch reads the batch of t. The policy of the given name sampled its rows.
func (m *Maker) batch(ctx context.Context, t Target, policy string) (model.Batch, error) {
	id := t.ID
	id.Policy = policy
	data, err := m.blobs().Get(ctx, t.Batch)
	if err != nil {
		return model.Batch{}, fmt.Errorf("read batch %s of version %s: %w", t.Batch, id, unreadable(err, id))
	}
	b, err := hf.DecodeBatch(data)
	if err != nil {
		return model.Batch{}, Invalid(fmt.Errorf("batch %s of version %s: %w", t.Batch, id, err))
	}
	if b.Policy != id.Policy || b.Step != id.Number {
		return model.Batch{}, Invalid(fmt.Errorf("batch %s of version %s is that of step %d of policy %s", t.Batch, id, b.Step, b.Policy))
	}
	if err := b.Restrict(m.Constrain); err != nil {
		return model.Batch{}, Invalid(fmt.Errorf("batch %s of version %s: %w", t.Batch, id, err))
	}
	return b, nil
}

// policyUpdate makes the updates of one step.
type policyUpdate struct {
	batch model.Batch
	// objective is the loss of policy gradients. Of batches of feedback it has only the KL
	// and the entropy.
	objective credit.Objective
	// loss is the loss of a row; nil if the rows are pairs, whose loss is preference.
	loss        credit.Loss
	preference  *credit.Preference
	logprobs    func(context.Context, model.RowScorer, []model.Row) ([][]float32, error)
	aggregation credit.Aggregation
	length      int // the divisor of credit.Constant
	adamW       model.AdamW
	updates     []minibatch
	// proximal and reference are the log-probabilities of the batch's rows under the
	// policy that the step starts from and under version 0; nil unless the objective
	// reads them.
	proximal, reference [][]float32
	// first are the log-probabilities of the rows of pairs under version 0, if that is their
	// reference (toFirst); otherwise proximal is.
	first   [][]float32
	toFirst bool
	// refers is true if ScoreReference needs the reference, even if the objective does
	// not.
	refers bool
	limits mismatchLimits
	// servers are the servers that sampled the batch's calls. They are nil unless there
	// are several servers, or several versions that sampled.
	servers servers
	scores  *tokenScores // nil if they are not needed
	work    *atomic.Uint64
	warn    func(ctx context.Context, message string, pairs ...any)
}

// update makes update u and returns its metrics.
func (p *policyUpdate) update(ctx context.Context, l learner, u int) (map[string]float64, error) {
	m := p.updates[u]
	m.denominators.Length = p.length
	rows := make([]model.Row, len(m.rows))
	for i, row := range m.rows {
		rows[i] = p.batch.Rows[row].Row
		rows[i].Needed = p.batch.Rows[row].Sampled[1:]
	}
	var pairs pairLosses
	if p.preference != nil {
		var err error
		if pairs, err = p.pairs(ctx, l.policy, rows, u); err != nil {
			return nil, err
		}
	}
	stats := make([]credit.Stats, len(rows))
	norm, err := l.policy.Update(ctx, rows, func(i int, logprobs, entropies, gradient, entropyGradient []float32) {
		p.scores.add(m.rows[i], logprobs, entropies)
		tokens := p.tokens(m.rows[i], logprobs, entropies)
		p.weigh(tokens, m, m.rows[i])
		if p.preference != nil {
			stats[i] = pairs.evaluate(i, tokens)
		} else {
			stats[i] = p.loss.Evaluate(tokens)
		}
		narrow(gradient, tokens.Gradient)
		narrow(entropyGradient, tokens.EntropyGradient)
		p.work.Add(1)
	}, p.adamW)
	if err != nil {
		return nil, err
	}
	var sum credit.Stats
	for _, s := range stats { // in order of rows, so that metrics repeat to the bit
		sum.Add(s)
	}
	metrics := p.describe(sum)
	if p.preference != nil {
		pairs.describe(metrics)
	}
	if u > 0 { // the earlier updates have moved the policy away from the sampler
		maps.DeleteFunc(metrics, func(name string, _ float64) bool { return ofFirst(name) })
	} else {
		servers, gap := p.scores.byServer(m.rows, p.servers), gapOf(sum)
		if p.limits.several {
			gap = sumOf(servers)
			putMismatch(metrics, gap)
		}
		if err := p.limits.check(gap, servers); err != nil {
			return nil, Invalid(err)
		}
		putServers(metrics, servers)
		if mean, usual, warn := p.limits.unusual(gap); warn {
			p.warn(ctx, "what sampled has other log-probabilities than the trainer", "version", p.limits.sampled.String(), "train/mismatch", mean, "usual", usual)
		}
	}
	metrics["train/gradient_norm"], metrics[learningRate] = norm, p.adamW.LearningRate
	for name, v := range metrics {
		metrics[name] = bounded(v)
	}
	return metrics, nil
}

// tokens returns the tokens of a row of the batch in the objective's form, without their
// weights.
func (p *policyUpdate) tokens(row int, logprobs, entropies []float32) credit.Tokens {
	r, t := p.batch.Rows[row], newTokens(logprobs)
	t.Call, t.Entropy, t.EntropyGradient = r.Calls[1:], wide(entropies), make([]float64, len(logprobs))
	if p.proximal != nil {
		t.Proximal = wide(p.proximal[row])
	}
	if p.reference != nil {
		t.Reference = wide(p.reference[row])
	}
	return t
}

// weigh sets which tokens of a row are trained, and how much they count in minibatch m.
func (p *policyUpdate) weigh(t credit.Tokens, m minibatch, row int) {
	r := p.batch.Rows[row]
	weight := m.denominators.Weight(p.aggregation, r.Trajectory)
	for j := range t.Weight {
		if r.Sampled[j+1] {
			t.Sampled[j], t.Advantage[j], t.Weight[j] = float64(r.Logprobs[j+1]), float64(r.Advantages[j+1]), weight
		}
	}
}

// describe returns the statistics of an update's tokens as metrics. It leaves out those
// of parts that the objective does not have.
func (p *policyUpdate) describe(s credit.Stats) map[string]float64 {
	n := math.Max(1, float64(s.Count))
	metrics := map[string]float64{"train/loss": s.Loss, "train/entropy": s.Entropy / n}
	if p.reference != nil {
		metrics["train/kl_ref"] = s.Reference / n
	}
	if p.feedback() { // nobody recorded log-probabilities to compare with
		return metrics
	}
	maps.Copy(metrics, map[string]float64{
		"train/ratio": s.Ratio / n, "train/ratio_max": s.RatioMax,
		"train/clip_fraction": s.Clipped() / n, "train/clip_fraction_low": s.ClippedLow / n, "train/clip_fraction_high": s.ClippedHigh / n,
		"train/kl": s.KL / n, "train/mismatch": s.Gap / n,
	})
	if p.limits.hasWorst() {
		metrics["train/mismatch_max"] = s.GapMax
	}
	if p.proximal != nil {
		metrics["train/importance_mean"] = s.Importance / n
		metrics["train/importance_capped"] = s.Capped / n
		metrics["train/importance_ess"] = s.Effective()
		metrics["train/rejected"] = s.Rejected / n
		metrics["train/staleness"] = s.Staleness / n
	}
	return metrics
}

// metrics returns the metrics of the step: for each metric its mean, or maximum, over the
// updates. With more than one update it also has the value of the last one.
func (p *policyUpdate) metrics(done tally) map[string]float64 {
	out := map[string]float64{"train/updates": float64(done.updates)}
	for name := range done.last {
		if ofFirst(name) {
			continue
		}
		if name == learningRate { // it is the same for all updates of a step
			out[name] = p.adamW.LearningRate
			continue
		}
		out[name] = done.value(name)
		if done.updates > 1 {
			out["train/last_"+strings.TrimPrefix(name, "train/")] = done.last[name]
		}
	}
	for name, v := range done.sums {
		if ofFirst(name) {
			out[name] = v
		}
	}
	return out
}

const learningRate = "train/learning_rate"

// ofFirst reports whether a metric is computed for a step's first update only: how far
// the sampler was from the trainer, in total and by server.
func ofFirst(name string) bool { return strings.HasPrefix(name, "train/mismatch") }

// largest bounds the magnitude of an update's metrics. The ratio of a token that was
// almost impossible may overflow although the clip keeps the update sound, and neither
// manifests nor JSON can hold infinity.
const largest = 1e300

func bounded(v float64) float64 {
	if math.IsNaN(v) {
		return 0
	}
	return math.Max(-largest, math.Min(v, largest))
}

func newTokens(logprobs []float32) credit.Tokens {
	n := len(logprobs)
	return credit.Tokens{
		Current: wide(logprobs), Sampled: make([]float64, n), Advantage: make([]float64, n),
		Weight: make([]float64, n), Gradient: make([]float64, n),
	}
}

func wide(src []float32) []float64 {
	out := make([]float64, len(src))
	for i, v := range src {
		out[i] = float64(v)
	}
	return out
}

func narrow(dst []float32, src []float64) {
	for i, v := range src {
		dst[i] = float32(v)
	}
}
