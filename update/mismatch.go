package update

import (
	"fmt"
	"math"

	"github.com/fulgurite/fulgurite/credit"
	"github.com/fulgurite/fulgurite/spec"
)

// mismatchLimits are how far, in nats, the log-probabilities that a server of others
// recorded may be from the trainer's. 0 is no limit.
type mismatchLimits struct {
	served      bool // by a server of others; else there is nothing to limit
	mean, worst float64
}

func limitsOf(s spec.Spec) mismatchLimits {
	if s.Sampling.Server == nil {
		return mismatchLimits{}
	}
	return mismatchLimits{true, s.Sampling.Server.MismatchMean(s.Training.Lag), s.Sampling.Server.WorstMismatch}
}

// check reports what of a step's first update is beyond the limits.
func (l mismatchLimits) check(s credit.Stats) error {
	mean := s.Gap / math.Max(1, float64(s.Count))
	if l.mean > 0 && !(mean <= l.mean) {
		return l.refuse("train/mismatch", mean, "sampling.server.mismatch", l.mean)
	}
	if l.worst > 0 && !(s.GapMax <= l.worst) {
		return l.refuse("train/mismatch_max", s.GapMax, "sampling.server.worst_mismatch", l.worst)
	}
	return nil
}

func (mismatchLimits) refuse(metric string, is float64, key string, limit float64) error {
	return fmt.Errorf("%s is %.4g nats, and %s is %.4g: what the servers recorded are not the log-probabilities of the version that sampled, so nothing is trained on them; mend the servers and start another run from the last version (fulgurite export), or give a higher limit",
		metric, is, key, limit)
}
