package spec

import (
	"cmp"
	"errors"
	"fmt"
	"math"

	"github.com/fulgurite/fulgurite/credit"
	"github.com/fulgurite/fulgurite/spec/bounds"
)

// Loss is the policy loss.
type Loss struct {
	// Type is "ppo_clip", "gspo", "cispo", "dppo_tv", "importance_sampling" or
	// "cross_entropy". docs/credit.md has the formulas.
	Type credit.LossType `json:"type,omitempty"`
	// ClipLow is how far below 1 the probability ratio still counts; with "dppo_tv" how
	// far a probability may fall. Absent means 0.2, with "gspo" 0.0003, with "cispo" 1,
	// unless algorithm sets it. Not with "importance_sampling" and "cross_entropy".
	ClipLow float64 `json:"clip_low,omitempty"`
	// ClipHigh is how far above 1 the probability ratio still counts; with "dppo_tv" how
	// far a probability may rise. Absent means 0.28, with "gspo" 0.0004, with "cispo" 4,
	// with "dppo_tv" 0.2, unless algorithm sets it. Not with "importance_sampling" and
	// "cross_entropy".
	ClipHigh float64 `json:"clip_high,omitempty"`
	// DualClip bounds the loss of tokens that have a negative advantage and became likely:
	// at this multiple of the advantage, more than 1. Absent or 0 means no bound. Only
	// with "ppo_clip".
	DualClip float64 `json:"dual_clip,omitempty"`
	// Aggregation says how the losses of tokens become one number: with "token_mean" every
	// token counts the same, with "sequence_mean" every trajectory, and "constant" divides
	// the sum of each trajectory by loss.length.
	Aggregation credit.Aggregation `json:"aggregation,omitempty"`
	// Length is what "constant" divides the sum over a trajectory's tokens by. Absent
	// means the largest number of tokens that an attempt may sample. Only with
	// loss.aggregation "constant".
	Length int `json:"length,omitempty"`
	// KL is a penalty that holds the policy close to version 0. Absent means no penalty in
	// the loss.
	KL *KL `json:"kl,omitempty"`
	// Entropy is the weight of a bonus for the entropy of the policy. Absent or 0 means no
	// bonus.
	Entropy float64 `json:"entropy,omitempty"`
	// Correction says what is done if the policy that sampled differs from the policy at
	// the start of the step. "none" does nothing. All others use the ratio of the two
	// policies as a weight: "decoupled" truncates it for each token, "mis" leaves tokens
	// out beyond the bounds, "sequence" truncates its product over a call, "geometric"
	// leaves calls out by its geometric mean, "k3" leaves calls out by their estimated
	// divergence. Absent means "decoupled" with a training.lag, else "none".
	Correction credit.CorrectionKind `json:"correction,omitempty"`
	// ImportanceCap is the upper bound of the weights of loss.correction. "decoupled" and
	// "sequence" truncate weights to it; "mis", "geometric" and "k3" leave out tokens or
	// calls that are beyond it. Absent means 2, with "geometric" 1.01, with "k3" 0.01. Not
	// with "none".
	ImportanceCap float64 `json:"importance_cap,omitempty"`
	// ImportanceFloor is the lower bound of the weights of loss.correction: "mis" and
	// "geometric" leave out tokens or calls below it. Absent means 0.5, with "geometric"
	// 0.99. Only with these two.
	ImportanceFloor float64 `json:"importance_floor,omitempty"`
	// Preference has what a step reads that learns from preferences: pairs of replies, of
	// which somebody chose one. Other steps ignore it. Absent means the defaults of its keys.
	Preference *LossPreference `json:"preference,omitempty"`
}

// LossPreference says what the loss of preferences is, DPO.
type LossPreference struct {
	// Beta says how much the policy is held to the reference. Less of it lets the policy move
	// further. At most 10; absent means 0.1.
	Beta float64 `json:"beta,omitempty"`
	// Reference is the version that the policy is held to: "parent", the one that the step
	// starts from, or "first", version 0 of the run, so that many steps together can't move
	// further than one. Absent means "parent".
	Reference string `json:"reference,omitempty"`
}

// Values of loss.preference.reference.
const (
	ReferenceParent = "parent"
	ReferenceFirst  = "first"
)

func (p LossPreference) withDefaults() LossPreference {
	p.Beta, p.Reference = cmp.Or(p.Beta, 0.1), cmp.Or(p.Reference, ReferenceParent)
	return p
}

// HoldsPreferencesToFirst reports whether steps on preferences have version 0 as their
// reference.
func (l Loss) HoldsPreferencesToFirst() bool {
	return l.Preference != nil && l.Preference.Reference == ReferenceFirst
}

// KL is a penalty on the divergence from a frozen reference, version 0.
type KL struct {
	// Estimator says how the divergence from version 0 is estimated: "k1", "k2", "k3" or,
	// only in loss.kl, "unbiased". Absent means "k3" in loss.kl and "k1" in
	// credit.kl_in_reward.
	Estimator credit.Estimator `json:"estimator,omitempty"`
	// Weight is the factor of the penalty.
	Weight float64 `json:"weight"`
}

// clips reports whether ClipLow and ClipHigh have an effect.
func (l Loss) clips() bool {
	return l.Type != credit.LossImportanceSampling && l.Type != credit.LossCrossEntropy
}

// correctable reports whether the loss can be corrected by the ratio of the policy
// before the step to the sampler.
func (l Loss) correctable() bool {
	return l.Type != credit.LossDPPO && l.Type != credit.LossCrossEntropy
}

func (l Loss) withDefaults(lag, tokens int) Loss {
	l.Type = cmp.Or(l.Type, credit.LossPPOClip)
	low, high := 0.2, 0.28
	switch l.Type {
	case credit.LossGSPO:
		low, high = 3e-4, 4e-4
	case credit.LossCISPO:
		low, high = 1, 4
	case credit.LossDPPO:
		high = 0.2
	}
	if l.clips() {
		l.ClipLow, l.ClipHigh = cmp.Or(l.ClipLow, low), cmp.Or(l.ClipHigh, high)
	}
	l.Aggregation = cmp.Or(l.Aggregation, credit.TokenMean)
	if l.Aggregation == credit.Constant {
		l.Length = cmp.Or(l.Length, tokens)
	}
	if l.KL != nil {
		kl := *l.KL // the caller's copy does not change
		kl.Estimator = cmp.Or(kl.Estimator, credit.KL3)
		l.KL = &kl
	}
	if l.Preference != nil {
		preference := l.Preference.withDefaults() // the caller's copy does not change
		l.Preference = &preference
	}
	if lag > 0 && l.correctable() {
		l.Correction = cmp.Or(l.Correction, credit.Decoupled)
	}
	l.Correction = cmp.Or(l.Correction, credit.Uncorrected)
	floor, most := l.importance()
	l.ImportanceFloor, l.ImportanceCap = cmp.Or(l.ImportanceFloor, floor), cmp.Or(l.ImportanceCap, most)
	return l
}

// importance returns the default bounds of the correction's weights; 0 means that there is
// no such bound.
func (l Loss) importance() (floor, most float64) {
	switch l.Correction {
	case credit.Decoupled, credit.Sequence:
		return 0, 2
	case credit.MIS:
		return 0.5, 2
	case credit.Geometric:
		return 0.99, 1.01
	case credit.K3:
		return 0, 0.01
	}
	return 0, 0
}

func (s Spec) checkLoss(f *Faults) {
	l := s.Loss
	f.choice("loss.type", string(l.Type))
	f.choice("loss.aggregation", string(l.Aggregation))
	if l.clips() {
		f.number("loss.clip_low", l.ClipLow, bounds.Positive(1))
		f.number("loss.clip_high", l.ClipHigh, bounds.Positive(math.Inf(1)))
	} else {
		f.unused("loss.clip_low", l.ClipLow != 0, "loss.type "+string(l.Type)+" clips nothing")
		f.unused("loss.clip_high", l.ClipHigh != 0, "loss.type "+string(l.Type)+" clips nothing")
	}
	switch {
	case l.DualClip == 0:
	case l.Type != credit.LossPPOClip:
		f.unused("loss.dual_clip", true, `only loss.type "ppo_clip" has it`)
	default:
		f.number("loss.dual_clip", l.DualClip, bounds.Bounds{Low: 1, High: math.Inf(1), Above: true})
	}
	if l.Aggregation == credit.Constant {
		f.whole("loss.length", l.Length, 1, 1e9)
	} else {
		f.unused("loss.length", l.Length != 0, `only loss.aggregation "constant" divides by it`)
	}
	if l.KL != nil {
		f.choice("loss.kl.estimator", string(l.KL.Estimator))
		f.number("loss.kl.weight", l.KL.Weight, bounds.Positive(math.Inf(1)))
	}
	if l.Preference != nil {
		f.number("loss.preference.beta", l.Preference.Beta, bounds.Positive(10))
		f.choice("loss.preference.reference", l.Preference.Reference)
	}
	f.number("loss.entropy", l.Entropy, bounds.Between(0, math.Inf(1)))
	l.checkCorrection(f)
}

func (l Loss) checkCorrection(f *Faults) {
	f.choice("loss.correction", string(l.Correction))
	if l.Correction != credit.Uncorrected && !l.correctable() {
		f.add("loss.correction", "leave it out", "loss.type %s has no place for it", l.Type)
	}
	floor, most := l.importance()
	if most > 0 {
		f.number("loss.importance_cap", l.ImportanceCap, bounds.Positive(math.Inf(1)))
	} else {
		f.unused("loss.importance_cap", l.ImportanceCap != 0, `loss.correction "none" weighs nothing`)
	}
	if floor > 0 {
		f.number("loss.importance_floor", l.ImportanceFloor, bounds.Positive(math.Inf(1)))
	} else {
		f.unused("loss.importance_floor", l.ImportanceFloor != 0, `only loss.correction "mis" and "geometric" have a lower bound`)
	}
	if floor > 0 && l.ImportanceFloor >= l.ImportanceCap {
		f.add("loss.importance_floor", "give less than loss.importance_cap", "%g is not below %g", l.ImportanceFloor, l.ImportanceCap)
	}
}

// Objective returns the loss in the terms of package credit.
func (l Loss) Objective() (credit.Objective, error) {
	o := credit.Objective{
		Surrogate:  l.Type.Surrogate(l.ClipLow, l.ClipHigh, l.DualClip),
		Correction: credit.Correction{Kind: l.Correction, Floor: l.ImportanceFloor, Cap: l.ImportanceCap},
		Entropy:    l.Entropy,
	}
	if l.KL != nil {
		o.KL = credit.KL(*l.KL)
	}
	if err := o.Check(); err != nil {
		return o, fmt.Errorf("loss.type %q: %w", l.Type, err)
	}
	return o, nil
}

// SupervisedLoss returns the loss of steps that learn from text that the policy did not
// sample. It has the KL and the entropy of l.
func (l Loss) SupervisedLoss() (credit.Supervised, error) {
	o := credit.Supervised{Entropy: l.Entropy}
	if l.KL != nil {
		o.KL = credit.KL(*l.KL)
	}
	if err := o.Check(); err != nil {
		return o, fmt.Errorf("loss.kl.estimator: %w: start a run with k2 or k3", err)
	}
	return o, nil
}

// PreferenceLoss returns the loss of steps that learn from preferences. It refuses the parts
// of l that it has no place for: the loss holds the policy to its own reference.
func (l Loss) PreferenceLoss() (credit.Preference, error) {
	if l.KL != nil {
		return credit.Preference{}, errors.New("loss.kl: preferences have a reference of their own: start a run without the key, and hold the policy with loss.preference.beta; loss.preference.reference first makes version 0 the reference")
	}
	if l.Entropy != 0 {
		return credit.Preference{}, errors.New("loss.entropy: the loss of preferences has no place for a bonus: set it to 0")
	}
	var beta LossPreference
	if l.Preference != nil {
		beta = *l.Preference
	}
	p := credit.Preference{Beta: beta.withDefaults().Beta}
	if err := p.Check(); err != nil {
		return p, fmt.Errorf("loss.preference: %w", err)
	}
	return p, nil
}

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
