package trained

import "github.com/fulgurite/fulgurite/page/format"

// Mean is the mean of a value over tokens, with the smallest and the largest value. A
// critic, a judge or a signal may give each call or token its own value.
type Mean struct {
	Value, Low, High float64
	Count            int
}

// add adds the value of one more token.
func (m *Mean) add(v float64) {
	if m.Count == 0 {
		m.Low, m.High = v, v
	}
	m.Count++
	m.Value += (v - m.Value) / float64(m.Count)
	m.Low, m.High = min(m.Low, v), max(m.High, v)
}

// Known returns nil if there are no tokens.
func (m Mean) Known() *Mean {
	if m.Count == 0 {
		return nil
	}
	return &m
}

// String returns the mean as readable text.
func (m Mean) String() string { return format.Signed(&m.Value) }

// Range returns the smallest and the largest value as text, or "" if they look equal.
func (m Mean) Range() string {
	if format.Fixed(m.Low) == format.Fixed(m.High) {
		return ""
	}
	return format.Signed(&m.Low) + " to " + format.Signed(&m.High)
}
