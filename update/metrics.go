package update

import (
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/fulgurite/fulgurite/credit"
	"github.com/fulgurite/fulgurite/credit/assign"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
)

// batchMetrics describes a batch under names that training dashboards use. Rewards are
// the given ones, before any shaping. Advantages are counted by trained token, as in the
// loss, and a group has no variance if all its advantages are 0.
//
// What the attempts of a step that teaches nothing have in common is in batch/failed
// (attempts whose agent failed), batch/silent (attempts without a call), batch/cut_off
// (replies that reached the limit of tokens) and batch/unparsed (replies that could not be
// parsed). Numbers of one of several policies are named policy/NAME/….
func batchMetrics(s spec.Spec, b model.Batch, groups [][]assign.Sample, g givenCredit) map[string]float64 {
	out := map[string]float64{}
	rewards := make([]float64, len(b.Trajectories))
	for i, t := range b.Trajectories {
		rewards[i] = t.Reward
	}
	spread(rewards).put(out, "reward")
	putAdvantages(out, b)
	putAttempts(out, groups)
	kept := assign.Without(groups, g.leftOut)
	for _, one := range s.TrainedSpecs() {
		putMasked(out, one.Credit, g.trajectories)
	}
	unmerged, flat := 0.0, float64(len(kept))
	if g.idle == "" {
		for _, one := range s.TrainedSpecs() {
			putNamed(out, one.Credit, g.trajectories)
			putSignals(out, one.Credit, kept, g.trajectories)
		}
		putReference(out, s, kept, g.trajectories)
		for i, samples := range kept {
			for j, one := range samples {
				for k, c := range one.History {
					if g.trajectories[i][j].Calls[k].Trains() {
						unmerged += float64(len(c.Prompt) + len(c.Completion))
					}
				}
			}
			if g.advantages.Teaches(g.trajectories, i) {
				flat--
			}
		}
	}
	for _, name := range s.TrainedPolicies() {
		putPolicy(out, name, b.Of(name))
	}
	tokens := 0.0
	for _, r := range b.Rows {
		tokens += float64(len(r.Tokens))
	}
	out["batch/rollouts"] = float64(len(b.Trajectories))
	out["batch/sequences"] = float64(len(b.Rows))
	out["batch/tokens"] = tokens
	// The number of tokens that training would read without merging calls.
	out["batch/tokens_unmerged"] = unmerged
	out["batch/trained_tokens"] = float64(b.Denominators.Tokens)
	out["batch/zero_variance_groups"] = flat
	if len(g.leftOut) > 0 {
		out["batch/left_out_groups"] = float64(len(g.leftOut))
	}
	if baseline, ok := g.advantages.Baselines[credit.AllAgents]; ok || g.advantages.Baselines != nil && len(s.Policies) == 0 {
		out["batch/baseline"] = baseline
	}
	for name, v := range out {
		out[name] = bounded(v)
	}
	return out
}

// putPolicy describes what one of several policies is trained on.
func putPolicy(out map[string]float64, policy string, b model.Batch) {
	own := map[string]float64{"batch/sequences": float64(len(b.Rows)), "batch/trained_tokens": float64(b.Denominators.Tokens)}
	putAdvantages(own, b)
	for name, v := range own {
		out[PolicyMetric(policy, name)] = v
	}
}

// PolicyMetric returns the name of a metric of one of several policies.
func PolicyMetric(policy, name string) string { return "policy/" + policy + "/" + name }

// putAttempts counts what may be the reason that attempts teach nothing.
func putAttempts(out map[string]float64, groups [][]assign.Sample) {
	calls, failed, silent, cutOff, unparsed := 0.0, 0.0, 0.0, 0.0, 0.0
	for _, samples := range groups {
		for _, one := range samples {
			calls += float64(len(one.History))
			if one.Outcome == record.AgentFailed {
				failed++
			}
			if len(one.History) == 0 {
				silent++
			}
			for _, c := range one.History {
				if c.CutOff() {
					cutOff++
				}
				if c.ParseError != "" {
					unparsed++
				}
			}
		}
	}
	out["batch/calls"], out["batch/failed"], out["batch/silent"] = calls, failed, silent
	out["batch/cut_off"], out["batch/unparsed"] = cutOff, unparsed
}

// putMasked counts the replies that credit.truncated takes out of the loss, and their
// tokens.
func putMasked(out map[string]float64, c spec.Credit, trajectories [][]credit.Trajectory) {
	if c.Truncated != spec.TruncatedMask {
		return
	}
	replies, tokens := 0.0, 0.0
	for _, g := range trajectories {
		for _, t := range g {
			for _, call := range t.Calls {
				if call.Masked {
					replies, tokens = replies+1, tokens+float64(call.Tokens)
				}
			}
		}
	}
	out["batch/masked"], out["batch/masked_tokens"] = replies, tokens
}

// putNamed describes the named rewards.
func putNamed(out map[string]float64, c spec.Credit, trajectories [][]credit.Trajectory) {
	for _, name := range slices.Sorted(maps.Keys(c.Rewards)) {
		var of []float64
		for _, g := range trajectories {
			for _, t := range g {
				of = append(of, t.Rewards[name])
			}
		}
		if name != credit.Final {
			spread(of).put(out, "reward/"+name)
		}
	}
}

func putAdvantages(out map[string]float64, b model.Batch) {
	var of []float64
	zero := 0.0
	for _, r := range b.Rows {
		for i, sampled := range r.Sampled {
			if !sampled {
				continue
			}
			of = append(of, float64(r.Advantages[i]))
			if r.Advantages[i] == 0 {
				zero++
			}
		}
	}
	spread(of).put(out, "advantage")
	out["advantage/zero_fraction"] = zero / math.Max(1, float64(len(of)))
}

// putSignals counts, for each weighted signal, the calls in which it fired, and adds up
// its weighted values.
func putSignals(out map[string]float64, c spec.Credit, groups [][]assign.Sample, trajectories [][]credit.Trajectory) {
	for name := range c.Signals {
		out["signals/"+name], out["signals/"+name+"_sum"] = 0, 0
	}
	for g, samples := range groups {
		for i, one := range samples {
			for k, call := range one.Calls {
				if trajectories[g][i].Calls[k].Skip {
					continue
				}
				for _, s := range call.Signals {
					if w, ok := c.Signals[s.Name]; ok {
						out["signals/"+s.Name]++
						out["signals/"+s.Name+"_sum"] += w * s.Value
					}
				}
			}
		}
	}
}

// putReference measures the divergence of the policy that sampled from version 0, if that
// is part of rewards: the mean estimate per trained token, and the mean penalty per
// rollout. With several policies it does so for each whose rewards contain it, and for all
// of these together.
func putReference(out map[string]float64, s spec.Spec, groups [][]assign.Sample, trajectories [][]credit.Trajectory) {
	var all divergence
	for _, one := range s.TrainedSpecs() {
		kl, policy := one.Credit.Plan().KL, ""
		if kl.Weight == 0 {
			continue
		}
		if len(s.Policies) > 0 {
			policy = one.PolicyNames()[0]
		}
		own := divergenceOf(kl, policy, groups, trajectories)
		if policy != "" {
			own.put(out, func(name string) string { return PolicyMetric(policy, name) })
		}
		all.sum, all.tokens, all.penalty, all.rollouts = all.sum+own.sum, all.tokens+own.tokens, all.penalty+own.penalty, own.rollouts
	}
	if all.rollouts > 0 {
		all.put(out, func(name string) string { return name })
	}
}

// divergence sums up estimates of the divergence from version 0 over trained tokens.
type divergence struct{ sum, tokens, penalty, rollouts float64 }

// divergenceOf returns the divergence of the calls of a policy; "" is the only one.
func divergenceOf(kl credit.KL, policy string, groups [][]assign.Sample, trajectories [][]credit.Trajectory) (d divergence) {
	for g, samples := range trajectories {
		for i, t := range samples {
			d.rollouts++
			for k, c := range t.Calls {
				if !c.Trains() || policy != "" && groups[g][i].History[k].Policy != policy {
					continue
				}
				for j := range c.Reference {
					d.sum += kl.Estimate(c.Sampled[j], c.Reference[j])
					d.tokens++
				}
			}
		}
	}
	d.penalty = kl.Weight * d.sum
	return d
}

func (d divergence) put(out map[string]float64, named func(string) string) {
	out[named("batch/kl_ref")] = d.sum / math.Max(1, d.tokens)
	out[named("batch/kl_penalty")] = d.penalty / math.Max(1, d.rollouts)
}

// moments describes some numbers; the deviation is of the numbers themselves, not an
// estimate for a population.
type moments struct{ mean, std, low, high float64 }

func spread(of []float64) moments {
	if len(of) == 0 {
		return moments{}
	}
	var sum, squares float64
	for _, v := range of {
		sum += v
		squares += v * v
	}
	n := float64(len(of))
	mean := sum / n
	return moments{mean, math.Sqrt(math.Max(0, squares/n-mean*mean)), slices.Min(of), slices.Max(of)}
}

func (m moments) put(out map[string]float64, name string) {
	out[name+"/mean"], out[name+"/std"], out[name+"/min"], out[name+"/max"] = m.mean, m.std, m.low, m.high
}

// tally sums up the metrics of the updates that are done.
type tally struct {
	updates int
	sums    map[string]float64 // or the greatest; see isMaximum
	last    map[string]float64
}

func (t *tally) add(metrics map[string]float64) {
	t.updates++
	t.last = metrics
	if t.sums == nil {
		t.sums = map[string]float64{}
	}
	for name, v := range metrics {
		if isMaximum(name) {
			t.sums[name] = math.Max(t.sums[name], v)
			continue
		}
		t.sums[name] += v
	}
}

// value returns the mean of a metric over the updates, or its maximum.
func (t *tally) value(name string) float64 {
	if isMaximum(name) {
		return t.sums[name]
	}
	return t.sums[name] / float64(t.updates)
}

// isMaximum reports whether a metric is a maximum. The mean of maxima would tell little,
// so their maximum is used. No such metric is negative.
func isMaximum(name string) bool { return strings.HasSuffix(name, "_max") }
