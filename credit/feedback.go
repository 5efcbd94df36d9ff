package credit

import (
	"fmt"
	"math"
)

// Supervised is the loss of text that the policy did not sample, such as a reply that a
// person corrected:
//
//	L_t = −log π_θ + KL.Weight·kl − Entropy·H
//
// times the token's own weight. Nobody sampled the text from μ, so there are no ratios,
// clips or corrections: Evaluate reads neither Sampled nor Proximal nor Advantage. The
// derivative by log π_θ is −1 and that of the KL. The text is no sample of π_θ either, so
// the estimators are only penalties for leaving the reference at these tokens, and their
// mean is no divergence.
type Supervised struct {
	KL      KL
	Entropy float64 // weight of the bonus for entropy H
}

// Check returns an error if the loss cannot be computed without the probabilities of a
// sampler.
func (l Supervised) Check() error {
	if l.KL.Weight != 0 && l.KL.Estimator == Unbiased {
		return fmt.Errorf("%w: the estimator %q needs the probability with which each token was sampled, and supervised text has none", ErrObjective, l.KL.Estimator)
	}
	return Objective{Surrogate: CrossEntropy{}, KL: l.KL, Entropy: l.Entropy}.Check()
}

// Evaluate implements Loss. In Stats it sets Count, Loss, Entropy and Reference.
func (l Supervised) Evaluate(t Tokens) Stats {
	clear(t.Gradient)
	clear(t.EntropyGradient)
	var s Stats
	for i, w := range t.Weight {
		if w == 0 {
			continue
		}
		x := CrossEntropy{}.term(token{current: t.Current[i]})
		s.Count++
		s.Loss += w * x.loss
		t.Gradient[i] = w * x.derivative
	}
	Objective{KL: l.KL, Entropy: l.Entropy}.regularize(t, &s)
	return s
}

// Preference is the loss of DPO (Rafailov et al., 2023, arXiv:2305.18290, eq. 7) for a
// pair of completions of one prompt, of which somebody chose the one and rejected the
// other:
//
//	L = −log σ(m),  m = Beta·[(log π_θ(c) − log π_ref(c)) − (log π_θ(r) − log π_ref(r))]
//
// log π(c) is the sum of the log-probabilities of the chosen completion's trained tokens,
// and log π(r) that of the rejected one's. The loss of a batch is the mean over its pairs.
type Preference struct {
	// Beta says how much the policy is held to the reference. It is positive; less of it
	// lets the policy move further.
	Beta float64
}

// Pair has the log-probabilities of a chosen and a rejected completion: sums over trained
// tokens, in nats.
type Pair struct {
	Chosen, Rejected                   float64 // under the policy being trained
	ReferenceChosen, ReferenceRejected float64 // under the reference
}

// PairLoss is the loss of a pair.
type PairLoss struct {
	Loss float64
	// Margin is m: how much more the implicit reward Beta·log(π_θ/π_ref) of the chosen
	// completion is than that of the rejected one.
	Margin float64
	// Derivative is that of Loss by the log-probability of each trained token of the chosen
	// completion, −Beta·σ(−m). For each trained token of the rejected one it is the
	// opposite.
	Derivative float64
}

// Check returns an error if the loss is not valid.
func (p Preference) Check() error {
	if !positive(p.Beta) {
		return fmt.Errorf("%w: beta is %v, want a positive number", ErrObjective, p.Beta)
	}
	return nil
}

// Evaluate returns the loss of a pair.
func (p Preference) Evaluate(x Pair) PairLoss {
	m := p.Beta * ((x.Chosen - x.ReferenceChosen) - (x.Rejected - x.ReferenceRejected))
	// −log σ(m) = log(1 + e^−m), in a form that does not overflow for negative m.
	return PairLoss{Loss: math.Max(-m, 0) + math.Log1p(math.Exp(-math.Abs(m))), Margin: m, Derivative: -p.Beta / (1 + math.Exp(m))}
}
