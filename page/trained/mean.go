package trained

import "github.com/fulgurite/fulgurite/page/format"

// Mean is the mean of what is given to each of some tokens, and between which values that
// is: a critic, a judge or a signal gives each call or token its own.
type Mean struct {
	Value, Low, High float64
	Count            int
}

// add takes one more token into the mean.
func (m *Mean) add(v float64) {
	if m.Count == 0 {
		m.Low, m.High = v, v
	}
	m.Count++
	m.Value += (v - m.Value) / float64(m.Count)
	m.Low, m.High = min(m.Low, v), max(m.High, v)
}

// Known is nil where there is no token.
func (m Mean) Known() *Mean {
	if m.Count == 0 {
		return nil
	}
	return &m
}

// String is the mean for people.
func (m Mean) String() string { return format.Signed(&m.Value) }

// Range says between which values the tokens are, and nothing where all look the same.
func (m Mean) Range() string {
	if format.Fixed(m.Low) == format.Fixed(m.High) {
		return ""
	}
	return format.Signed(&m.Low) + " to " + format.Signed(&m.High)
}
