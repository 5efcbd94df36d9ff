package credit

import "math"

// Surrogate is the part of an objective that depends on advantages. It is one of the
// types below. r is π_θ/π_old, where π_old is μ or, with a correction, π_prox.
type Surrogate interface {
	// byCall reports whether r is the ratio of the whole call.
	byCall() bool
	// term returns the loss of a token and its derivative by log π_θ.
	term(token) term
}

// token has the numbers of one token that a surrogate reads.
type token struct {
	current, old float64 // log-probabilities
	ratio        float64
	advantage    float64
}

// term is a token's part of a surrogate.
type term struct {
	loss, derivative float64
	low, high        bool // the lower or the upper bound decided
}

// PPOClip is the clipped surrogate of PPO (Schulman et al., 2017, arXiv:1707.06347) with
// separate bounds below and above (DAPO, arXiv:2503.14476):
//
//	L_t = −min(r·A, clip(r, 1−Low, 1+High)·A)
//
// Its derivative by log π_θ is −r·A if the unclipped term is the smaller one (or both are
// equal), else 0. If A is negative, L_t then has no upper bound. With Dual > 1 (Ye et
// al., 2020, arXiv:1912.09729), L_t is at most −Dual·A, and the derivative is 0 where
// this bound holds.
type PPOClip struct {
	Low, High float64
	Dual      float64 // 0 means no dual clip
}

func (p PPOClip) byCall() bool { return false }

func (p PPOClip) term(t token) term {
	free := t.ratio * t.advantage
	clipped := math.Min(math.Max(t.ratio, 1-p.Low), 1+p.High) * t.advantage
	unclipped := free <= clipped // false for NaN
	switch {
	case unclipped && p.Dual > 0 && t.advantage < 0 && t.ratio > p.Dual:
		return term{loss: -p.Dual * t.advantage, high: true}
	case unclipped:
		return term{loss: -free, derivative: -free}
	}
	return term{loss: -clipped, low: t.ratio < 1, high: t.ratio > 1}
}

// GSPO (Zheng et al., 2025, arXiv:2507.18071) clips the ratio of a whole call of n
// tokens, here in its form for single tokens:
//
//	s   = exp(1/n · Σ_t log r_t)
//	L_t = −min(s_t·A, clip(s_t, 1−Low, 1+High)·A),  s_t = sg[s]·π_θ/sg[π_θ]
//
// Its derivative by log π_θ of the token is −s·A or 0, as for PPOClip. If all tokens of a
// call have the same advantage and the same weight, this is also the derivative of the
// form for sequences.
type GSPO struct {
	Low, High float64
}

func (g GSPO) byCall() bool { return true }

func (g GSPO) term(t token) term { return PPOClip{Low: g.Low, High: g.High}.term(t) }

// CISPO (MiniMax, 2025, arXiv:2506.13585) clips the ratio, but every token keeps a
// gradient:
//
//	L_t = −sg[clip(r, 1−Low, 1+High)]·A·log π_θ
//
// Its derivative is −clip(r)·A. If Low is 1 there is no lower bound; that is the form of
// ScaleRL (arXiv:2510.13786), whose only bound is 1+High.
type CISPO struct {
	Low, High float64
}

func (c CISPO) byCall() bool { return false }

func (c CISPO) term(t token) term {
	clipped := math.Min(math.Max(t.ratio, 1-c.Low), 1+c.High)
	slope := -clipped * t.advantage
	return term{loss: slope * t.current, derivative: slope, low: t.ratio < clipped, high: t.ratio > clipped}
}

// DPPO is DPPO with binary total variation (arXiv:2602.04879): a token has a gradient as
// long as its probability has moved by no more than a bound.
//
//	L_t = −r·A, or 0 where A > 0 and π_θ − π_old > High, or A < 0 and π_old − π_θ > Low
//
// Its derivative is −r·A, or 0. Some implementations add a term that draws π_θ to π_old;
// this one does not.
type DPPO struct {
	Low, High float64
}

func (d DPPO) byCall() bool { return false }

func (d DPPO) term(t token) term {
	moved := math.Exp(t.current) - math.Exp(t.old)
	switch {
	case t.advantage > 0 && moved > d.High:
		return term{high: true}
	case t.advantage < 0 && -moved > d.Low:
		return term{low: true}
	}
	return ImportanceSampling{}.term(t)
}

// ImportanceSampling is REINFORCE with the ratio, L_t = −r·A; its derivative is the
// same number.
type ImportanceSampling struct{}

func (ImportanceSampling) byCall() bool { return false }

func (ImportanceSampling) term(t token) term {
	if t.advantage == 0 {
		return term{} // also where the ratio overflows
	}
	free := t.ratio * t.advantage
	return term{loss: -free, derivative: -free}
}

// CrossEntropy is −log π_θ of the tokens, for training on demonstrations. It reads no
// advantages, and ratios are used only for Stats.
type CrossEntropy struct{}

func (CrossEntropy) byCall() bool { return false }

func (CrossEntropy) term(t token) term { return term{loss: -t.current, derivative: -1} }

// LossType names a surrogate with its bounds.
type LossType string

// The types of loss.
const (
	LossPPOClip            LossType = "ppo_clip"
	LossGSPO               LossType = "gspo"
	LossCISPO              LossType = "cispo"
	LossDPPO               LossType = "dppo_tv"
	LossImportanceSampling LossType = "importance_sampling"
	LossCrossEntropy       LossType = "cross_entropy"
)

// LossTypes returns all types of loss.
func LossTypes() []LossType {
	return []LossType{LossPPOClip, LossGSPO, LossCISPO, LossDPPO, LossImportanceSampling, LossCrossEntropy}
}

// Surrogate returns the surrogate that l names, with those of the bounds that it uses. It
// returns nil for an unknown name.
func (l LossType) Surrogate(low, high, dual float64) Surrogate {
	switch l {
	case LossPPOClip:
		return PPOClip{Low: low, High: high, Dual: dual}
	case LossGSPO:
		return GSPO{Low: low, High: high}
	case LossCISPO:
		return CISPO{Low: low, High: high}
	case LossDPPO:
		return DPPO{Low: low, High: high}
	case LossImportanceSampling:
		return ImportanceSampling{}
	case LossCrossEntropy:
		return CrossEntropy{}
	}
	return nil
}
