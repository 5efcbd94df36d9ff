package spec

import (
	"cmp"

	"github.com/fulgurite/fulgurite/credit"
)

// An algorithm is a preset: the names and numbers of the parts that a spec leaves out. It
// never changes what a spec gives itself.
type algorithm struct {
	credit Credit
	loss   Loss
}

// Algorithms lists the presets by name.
func Algorithms() []string { return sortedKeys(algorithms()) }

// algorithms returns the presets by name. Each follows the paper that docs/credit.md
// names, except that no preset has a KL to a reference. credit/golden/presets.py has the
// same presets a second time, in Python.
func algorithms() map[string]algorithm {
	grouped := Credit{Mean: credit.Group, Std: credit.Group}
	centred := Credit{Mean: credit.Group, Std: credit.None}
	clip := Loss{Type: credit.LossPPOClip, ClipLow: 0.2, ClipHigh: 0.2, Aggregation: credit.TokenMean}
	bySequence := clip
	bySequence.Aggregation = credit.SequenceMean
	byConstant := clip
	byConstant.Aggregation = credit.Constant
	whitened := func(c Credit) Credit { c.Whiten = credit.Batch; return c }
	return map[string]algorithm{
		"grpo":                 {grouped, bySequence},
		"dr_grpo":              {centred, byConstant},
		"dapo":                 {grouped, Loss{Type: credit.LossPPOClip, ClipLow: 0.2, ClipHigh: 0.28, Aggregation: credit.TokenMean}},
		"gspo":                 {grouped, Loss{Type: credit.LossGSPO, Aggregation: credit.SequenceMean}},
		"cispo":                {grouped, Loss{Type: credit.LossCISPO, Aggregation: credit.TokenMean}},
		"rloo":                 {Credit{Mean: credit.Group, Std: credit.None, LeaveOneOut: true}, byConstant}, // a reply is one action, whatever its length
		"maxrl":                {Credit{Mean: credit.Group, Std: credit.ByMean}, clip},
		"gdpo":                 {whitened(Credit{Combine: CombineSeparate, Mean: credit.Group, Std: credit.Group}), clip},
		"reinforce++":          {whitened(Credit{Mean: credit.None, Std: credit.None}), clip},
		"reinforce++_baseline": {whitened(centred), clip},
		"ppo":                  {Credit{Tokens: credit.GAE}, clip},
		"turn_ppo":             {Credit{Assignment: credit.TurnGAE}, clip},
		"gigpo":                {Credit{Assignment: credit.GiGPO, Mean: credit.Group, Std: credit.Group}, clip},
	}
}

// expanded returns s with the algorithm's settings where the spec has none.
func (s Spec) expanded() Spec {
	a, ok := algorithms()[s.Algorithm]
	if !ok {
		return s
	}
	c, preset := &s.Credit, a.credit
	c.Assignment = cmp.Or(c.Assignment, preset.Assignment)
	c.Tokens = cmp.Or(c.Tokens, preset.Tokens)
	if !c.estimated() { // an estimate replaces every comparison
		c.Combine = cmp.Or(c.Combine, preset.Combine)
		c.Mean, c.Std = cmp.Or(c.Mean, preset.Mean), cmp.Or(c.Std, preset.Std)
		c.LeaveOneOut = c.LeaveOneOut || preset.LeaveOneOut && c.Mean == credit.Group
	}
	c.Whiten = cmp.Or(c.Whiten, preset.Whiten)
	l, loss := &s.Loss, a.loss
	if l.Type == "" || l.Type == loss.Type { // the preset's bounds do not fit another loss
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
