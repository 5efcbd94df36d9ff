package update

import (
	"fmt"
	"math"

	"github.com/fulgurite/fulgurite/credit"
	"github.com/fulgurite/fulgurite/internal/shell"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/spec"
)

// mismatchLimits has the limits, in nats, of how far the log-probabilities that an
// external server recorded may be from the trainer's. 0 means no limit.
type mismatchLimits struct {
	servers     int // number of external servers that sample; 0 if there is nothing to limit
	mean, worst float64
	sampled     model.VersionID // the one version that a step samples from
	// warnAbove is how far the mean may be from 0 without a warning if engine torch samples.
	// A larger mean does not end the run: there is no server that could be repaired, and
	// each version was checked with its canary.
	warnAbove float64
	torch     bool
}

// limitsOf returns the limits of the step that makes version v.
func limitsOf(s spec.Spec, v model.VersionID) mismatchLimits {
	v.Number = max(0, v.Number-1-s.Training.Lag)
	l := mismatchLimits{sampled: v}
	switch server := s.Sampling.Server; {
	case server != nil:
		l.servers, l.mean, l.worst = len(server.URLs), server.MismatchMean(s.Training.Lag), server.WorstMismatch
	case s.Sampling.Engine == spec.EngineTorch:
		l.torch, l.warnAbove = true, spec.Server{}.MismatchMean(s.Training.Lag)
	}
	return l
}

// hasWorst reports whether the worst token is a useful metric. It is not with engine
// native, which samples and trains with the same bits.
func (l mismatchLimits) hasWorst() bool { return l.servers > 0 || l.torch }

// unusual returns the mean gap of a step's first update, and whether it is larger than
// rounding explains.
func (l mismatchLimits) unusual(s credit.Stats) (mean float64, warn bool) {
	mean = meanGap(s)
	return mean, l.warnAbove > 0 && !(mean <= l.warnAbove)
}

func meanGap(s credit.Stats) float64 { return s.Gap / math.Max(1, float64(s.Count)) }

// check returns an error if the first update of a step exceeds a limit. The error has the
// gap of each server.
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
	return Final(fmt.Errorf("%s is %.4g nats, and %s is %.4g: what the servers recorded are not the log-probabilities of version %s, which was to sample, so nothing is trained on them%s; fix the servers and start another run from the last version (`%s`, then model.base: DIRECTORY), or one with a higher limit: this one would meet the same record again",
		metric, is, key, limit, l.sampled, where, shell.Command("export", l.sampled.String(), "DIRECTORY")))
}
