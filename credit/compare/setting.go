package compare

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/fulgurite/fulgurite/credit"
	"github.com/fulgurite/fulgurite/credit/assign"
	"github.com/fulgurite/fulgurite/spec"
)

// ErrUnknown is wrapped when a name is neither an assignment nor an algorithm.
var ErrUnknown = errors.New("unknown way to assign credit")

// Own is the name of the run's own setting.
const Own = "own"

// Setting is one way to assign credit.
type Setting struct {
	Name string
	Spec spec.Spec
}

// assignments returns the names of assignments in specs. The judge's assignment uses the
// scores on record.
func assignments() []string {
	var all []string
	for _, a := range credit.Assignments() {
		all = append(all, string(a))
	}
	return all
}

// Settings returns the run's own setting and then one for each name. If the name is an
// assignment, it replaces the run's assignment; otherwise it is an algorithm, whose
// credit replaces the run's. The rewards of attempts and calls stay those of the run.
func Settings(own spec.Spec, names []string) ([]Setting, error) {
	all := []Setting{{Own, own}}
	for _, name := range names {
		s := own
		switch {
		case slices.Contains(assignments(), name):
			s.Algorithm, s.Credit = "", assigned(own.Credit, credit.Assignment(name))
		case slices.Contains(spec.Algorithms(), name):
			s.Algorithm, s.Credit = name, earning(own.Credit)
		default:
			return nil, fmt.Errorf("%w %q: give an assignment (%s) or an algorithm (%s)",
				ErrUnknown, name, strings.Join(assignments(), ", "), strings.Join(spec.Algorithms(), ", "))
		}
		s.Critic = nil
		all = append(all, Setting{name, s.WithDefaults()})
	}
	return all, nil
}

// assigned returns c with another assignment. The comparison of rewards stays the same,
// unless the old or the new assignment compares rewards with estimates.
func assigned(c spec.Credit, assignment credit.Assignment) spec.Credit {
	out := earning(c)
	out.Assignment = assignment
	if !estimates(c) && !estimates(out) {
		out.Mean, out.Std, out.LeaveOneOut, out.Whiten, out.Combine = c.Mean, c.Std, c.LeaveOneOut, c.Whiten, c.Combine
	}
	out.Discount, out.Lambda, out.StepWeight = c.Discount, c.Lambda, c.StepWeight
	return out
}

// earning returns the part of c that determines what attempts and calls earn, and which
// calls are trained.
func earning(c spec.Credit) spec.Credit {
	return spec.Credit{
		Rewards: c.Rewards, Signals: c.Signals, Overlong: c.Overlong, FormatPenalty: c.FormatPenalty, Truncated: c.Truncated, KLInReward: c.KLInReward,
		TrainAgents: c.TrainAgents, PerAgent: c.PerAgent,
	}
}

// estimates reports whether rewards are compared with estimates.
func estimates(c spec.Credit) bool {
	return c.UsesCritic() || c.Assignment == credit.ValueDifference
}

// NeverTeaches reports whether the run's own setting gives no trained token of the step
// an advantage, whatever rewards its attempts get.
func (s *Step) NeverTeaches() (bool, error) {
	if estimates(s.Spec.Credit) && s.learned != nil && !s.valued {
		return false, s.learned
	}
	return assign.NeverTeaches(s.Spec, s.groups)
}

// Agents returns, for each group, in how many of its attempts each agent made a trained
// call.
func (s *Step) Agents() ([]map[string]int, error) {
	own, err := s.assign(Setting{Own, s.Spec})
	if err != nil {
		return nil, err
	}
	out := make([]map[string]int, len(own.trajectories))
	for g, trajectories := range own.trajectories {
		out[g] = map[string]int{}
		for _, t := range trajectories {
			seen := map[string]bool{}
			for _, c := range t.Calls {
				if c.Trains() && !seen[c.Agent] {
					seen[c.Agent] = true
					out[g][c.Agent]++
				}
			}
		}
	}
	return out, nil
}
