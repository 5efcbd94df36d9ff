package search

import (
	"fmt"
	"slices"
)

// maxTries is how often a task without a score is asked for in one measurement.
const maxTries = 2

// measurement measures a candidate on validation tasks. Candidates are compared only if
// both have a score on each of the tasks:
//
//   - Tasks without a score are asked for once more. The driver has tried them again before
//     it said so, but an outage may be over.
//   - Tasks on which the seed still has no score leave the validation split for the whole
//     search, because nothing could be compared with the seed there. Done names them.
//   - Another candidate that still misses a task is not whole: it joins no archive and no
//     beam, is nobody's parent, and can't win. Otherwise a prompt that makes an agent hang
//     on hard tasks would gain by it.
type measurement struct {
	ID        string    `json:"id"`
	Candidate Candidate `json:"candidate"`
	Tasks     []int     `json:"tasks"`
	// Scores are one for each task.
	Scores []*float64 `json:"scores"`
	Tries  int        `json:"tries"`
}

func newMeasurement(id string, c Candidate, tasks []int) *measurement {
	return &measurement{ID: id, Candidate: c, Tasks: tasks, Scores: make([]*float64, len(tasks))}
}

// missing returns the tasks that have no score yet.
func (m *measurement) missing() []int {
	var out []int
	for i, score := range m.Scores {
		if score == nil {
			out = append(out, m.Tasks[i])
		}
	}
	return out
}

func (m *measurement) whole() bool { return len(m.missing()) == 0 }

// measure asks for the scores that are missing, unless they were asked for often enough or
// the budget does not cover them. Then the measurement has ended.
func (s *state) measure(m *measurement) (asked bool) {
	missing := m.missing()
	if len(missing) == 0 || m.Tries == maxTries {
		return false
	}
	id := m.ID
	if m.Tries > 0 {
		id = fmt.Sprintf("%s.%d", m.ID, m.Tries+1)
	}
	asked = s.request(Request{
		ID: id, Kind: Evaluate, Candidate: m.Candidate, Split: SplitValidation, Purpose: PurposeValidation,
		Tasks: missing, Samples: s.Settings.ValidationSamples,
	})
	if asked {
		m.Tries++
	}
	return asked
}

// owns reports whether a request is one of the measurement's.
func (m *measurement) owns(request string) bool {
	return request == m.ID || m.Tries > 1 && request == fmt.Sprintf("%s.%d", m.ID, m.Tries)
}

// add takes the scores of an answer.
func (m *measurement) add(results []Result) {
	for _, r := range results {
		m.Scores[slices.Index(m.Tasks, r.Task)] = r.Score
	}
}

// seedMeasured takes the measurement of the seed, which says what the validation split is.
// It returns false if no task is left.
func (s *state) seedMeasured(m *measurement) bool {
	s.Whole = nil
	var have []*float64
	for i, score := range m.Scores {
		if score != nil {
			s.Whole, have = append(s.Whole, m.Tasks[i]), append(have, score)
		}
	}
	m.Tasks, m.Scores = s.Whole, have
	return len(have) > 0
}
