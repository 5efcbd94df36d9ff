package compare

import "github.com/fulgurite/fulgurite/credit/assign"

// NeverTeaches reports whether the run's own setting gives no trained token of the step
// an advantage, whatever rewards its attempts get.
func (s *Step) NeverTeaches() (bool, error) {
	if estimates(s.Spec.Credit) && s.learned != nil && !s.valued {
		return false, s.learned
	}
	return assign.NeverTeaches(s.Spec, s.groups)
}

// Agents counts in how many attempts of each group an agent made a trained call, by
// its name.
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
				if !c.Skip && !seen[c.Agent] {
					seen[c.Agent] = true
					out[g][c.Agent]++
				}
			}
		}
	}
	return out, nil
}
