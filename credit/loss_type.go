package credit

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

// LossTypes lists them.
func LossTypes() []LossType {
	return []LossType{LossPPOClip, LossGSPO, LossCISPO, LossDPPO, LossImportanceSampling, LossCrossEntropy}
}

// Surrogate is the surrogate that l names, with those of the bounds that it has; nil
// for an unknown name.
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
