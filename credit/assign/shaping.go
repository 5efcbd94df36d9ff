package assign

import "github.com/fulgurite/fulgurite/credit"

// shaping is what is added to the final reward of an attempt for its length and its
// form. The length is that of all its replies together.
func (m *maker) shaping(one Sample) float64 {
	length, unparsed := 0, 0
	for _, c := range one.History {
		length += len(c.Completion)
		if c.ParseError != "" {
			unparsed++
		}
	}
	sum := credit.FormatPenalty(unparsed, m.spec.Credit.FormatPenalty)
	if o := m.spec.Credit.Overlong; o != nil {
		sum += credit.Overlong(*o).Shape(length)
	}
	return sum
}
