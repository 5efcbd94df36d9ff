package assign

import "github.com/fulgurite/fulgurite/credit"

// shaping is added to the final reward of an attempt for the length of all its replies
// together and for their form.
func (b *builder) shaping(one Sample) float64 {
	length, unparsed := 0, 0
	for _, c := range one.History {
		length += len(c.Completion)
		if c.ParseError != "" {
			unparsed++
		}
	}
	sum := credit.FormatPenalty(unparsed, b.spec.Credit.FormatPenalty)
	if o := b.spec.Credit.Overlong; o != nil {
		sum += credit.Overlong(*o).Shape(length)
	}
	return sum
}
