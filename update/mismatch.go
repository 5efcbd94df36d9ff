package update

import (
	"fmt"
	"math"

	"github.com/fulgurite/fulgurite/credit"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/spec"
)

// mismatchLimits are how far, in nats, the log-probabilities that a server of others
// recorded may be from the trainer's. 0 is no limit.
type mismatchLimits struct {
	servers     int // of others that sample; 0 where there is nothing to limit
	mean, worst float64
	sampled     model.VersionID // the one version that a step samples from
	// usual is how far the mean may be from 0 without a warning where engine torch samples. It
	// ends no run: nobody has a server to mend, and each version was checked by its canary.
	usual float64
	torch bool
}

// limitsOf are the limits of the step that makes version v.
func limitsOf(s spec.Spec, v model.VersionID) mismatchLimits {
	v.Number = max(0, v.Number-1-s.Training.Lag)
	l := mismatchLimits{sampled: v}
	switch server := s.Sampling.Server; {
	case server != nil:
		l.servers, l.mean, l.worst = len(server.URLs), server.MismatchMean(s.Training.Lag), server.WorstMismatch
	case s.Sampling.Engine == spec.EngineTorch:
		l.torch, l.usual = true, spec.Server{}.MismatchMean(s.Training.Lag)
	}
	return l
}

// hasWorst reports whether the worst token is of interest: engine native, which computes what it
// trains to the bit, has none.
func (l mismatchLimits) hasWorst() bool { return l.servers > 0 || l.torch }

// unusual reports whether a step's first update is further from the sampler than rounding brings
// it.
func (l mismatchLimits) unusual(s credit.Stats) (mean float64, warn bool) {
	mean = meanGap(s)
	return mean, l.usual > 0 && !(mean <= l.usual)
}

func meanGap(s credit.Stats) float64 { return s.Gap / math.Max(1, float64(s.Count)) }

// check reports what of a step's first update is beyond the limits, and what there is of that at
// each server.
func (l mismatchLimits) check(s credit.Stats, servers []mismatch) error {
	mean := meanGap(s)
	if l.mean > 0 && !(mean <= l.mean) {
		return l.refuse("train/mismatch", mean, "sampling.server.mismatch", l.mean, servers)
	}
	if l.worst > 0 && !(s.GapMax <= l.worst) {
		return l.refuse("train/mismatch_max", s.GapMax, "sampling.server.worst_mismatch", l.worst, servers)
	}
	return nil
}

func (l mismatchLimits) refuse(metric string, is float64, key string, limit float64, servers []mismatch) error {
	where := ""
	if len(servers) > 0 {
		where = "; by server: " + textOf(servers)
	}
	return fmt.Errorf("%s is %.4g nats, and %s is %.4g: what the servers recorded are not the log-probabilities of version %s, which was to sample, so nothing is trained on them%s; mend the servers and start another run from the last version (fulgurite export, then model.base), or one with a higher limit: `fulgurite retry` meets the same record",
		metric, is, key, limit, l.sampled, where)
}
