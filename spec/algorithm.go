package spec

import "cmp"

// An algorithm is a preset: names and numbers of parts that a spec leaves out.
// Whatever a spec gives itself stays.
type algorithm struct {
	credit Credit
	loss   Loss
}

// Algorithms lists the presets by name.
func Algorithms() []string { return sortedKeys(algorithms()) }

// algorithms are the presets. Each follows the paper that docs/credit.md names, but
// for the KL to a reference, which no preset has; credit/golden/presets.py writes them
// down once more.
func algorithms() map[string]algorithm {
	grouped := Credit{Mean: levelGroup, Std: levelGroup}
	centred := Credit{Mean: levelGroup, Std: levelNone}
	clip := Loss{Type: LossPPOClip, ClipLow: 0.2, ClipHigh: 0.2, Aggregation: "token_mean"}
	bySequence := clip
	bySequence.Aggregation = "sequence_mean"
	byConstant := clip
	byConstant.Aggregation = AggregationConstant
	whitened := func(c Credit) Credit { c.Whiten = levelBatch; return c }
	return map[string]algorithm{
		"grpo":                 {grouped, bySequence},
		"dr_grpo":              {centred, byConstant},
		"dapo":                 {grouped, Loss{Type: LossPPOClip, ClipLow: 0.2, ClipHigh: 0.28, Aggregation: "token_mean"}},
		"gspo":                 {grouped, Loss{Type: LossGSPO, Aggregation: "sequence_mean"}},
		"cispo":                {grouped, Loss{Type: LossCISPO, Aggregation: "token_mean"}},
		"rloo":                 {Credit{Mean: levelGroup, Std: levelNone, LeaveOneOut: true}, byConstant}, // a reply is one action, whatever its length
		"maxrl":                {Credit{Mean: levelGroup, Std: stdMean}, clip},
		"gdpo":                 {whitened(Credit{Combine: CombineSeparate, Mean: levelGroup, Std: levelGroup}), clip},
		"reinforce++":          {whitened(Credit{Mean: levelNone, Std: levelNone}), clip},
		"reinforce++_baseline": {whitened(centred), clip},
		"ppo":                  {Credit{Tokens: TokensGAE}, clip},
		"turn_ppo":             {Credit{Assignment: AssignmentTurnGAE}, clip},
		"gigpo":                {Credit{Assignment: AssignmentGiGPO, Mean: levelGroup, Std: levelGroup}, clip},
	}
}

// expanded fills in what the algorithm says and the spec does not.
func (s Spec) expanded() Spec {
	a, ok := algorithms()[s.Algorithm]
	if !ok {
		return s
	}
	c, preset := &s.Credit, a.credit
	c.Assignment = cmp.Or(c.Assignment, preset.Assignment)
	c.Tokens = cmp.Or(c.Tokens, preset.Tokens)
	if !c.estimated() { // which replaces every comparison
		c.Combine = cmp.Or(c.Combine, preset.Combine)
		c.Mean, c.Std = cmp.Or(c.Mean, preset.Mean), cmp.Or(c.Std, preset.Std)
		c.LeaveOneOut = c.LeaveOneOut || preset.LeaveOneOut && c.Mean == levelGroup
	}
	c.Whiten = cmp.Or(c.Whiten, preset.Whiten)
	l, loss := &s.Loss, a.loss
	if l.Type == "" || l.Type == loss.Type { // another loss has other bounds
		l.Type, l.ClipLow, l.ClipHigh = loss.Type, cmp.Or(l.ClipLow, loss.ClipLow), cmp.Or(l.ClipHigh, loss.ClipHigh)
	}
	l.Aggregation = cmp.Or(l.Aggregation, loss.Aggregation)
	return s
}

func (s Spec) checkAlgorithm(f *Faults) {
	if s.Algorithm != "" {
		f.choice("algorithm", s.Algorithm)
	}
}
