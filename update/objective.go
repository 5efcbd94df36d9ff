package update

import (
	"fmt"

	"github.com/fulgurite/fulgurite/credit"
	"github.com/fulgurite/fulgurite/spec"
)

// Objective is the loss that l asks for in the terms of package credit.
func Objective(l spec.Loss) (credit.Objective, error) {
	o := credit.Objective{
		Correction: credit.Correction{Kind: credit.CorrectionKind(l.Correction), Floor: l.ImportanceFloor, Cap: l.ImportanceCap},
		Entropy:    l.Entropy,
	}
	if l.KL != nil {
		o.KL = credit.KL{Estimator: credit.Estimator(l.KL.Estimator), Weight: l.KL.Weight}
	}
	switch l.Type {
	case spec.LossPPOClip:
		o.Surrogate = credit.PPOClip{Low: l.ClipLow, High: l.ClipHigh, Dual: l.DualClip}
	case spec.LossGSPO:
		o.Surrogate = credit.GSPO{Low: l.ClipLow, High: l.ClipHigh}
	case spec.LossCISPO:
		o.Surrogate = credit.CISPO{Low: l.ClipLow, High: l.ClipHigh}
	case spec.LossDPPO:
		o.Surrogate = credit.DPPO{Low: l.ClipLow, High: l.ClipHigh}
	case spec.LossImportanceSampling:
		o.Surrogate = credit.ImportanceSampling{}
	case spec.LossCrossEntropy:
		o.Surrogate = credit.CrossEntropy{}
	}
	if err := o.Check(); err != nil {
		return o, fmt.Errorf("loss.type %q: %w", l.Type, err)
	}
	return o, nil
}
