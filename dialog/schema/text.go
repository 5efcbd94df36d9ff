package schema

import (
	"regexp/syntax"
)

// texts is the shape of the strings of a schema.
type texts struct {
	length  count
	pattern *syntax.Regexp // of the whole string; nil allows any
	inner   *node          // the strings without quotes and escapes; nil if there are none
}

// newTexts reads a schema's restrictions of strings. A format restricts strings only if
// there is neither a pattern nor a length; otherwise it is an annotation.
func (c *compiler) newTexts(f *facts) (*texts, error) {
	t := &texts{length: f.length}
	if f.pattern != nil {
		re, err := parsePattern(f.pattern.text)
		if err == nil {
			t.pattern, err = fitLength(re, f.length)
		}
		if err != nil {
			return nil, f.pattern.refuse("%v", err)
		}
	} else if re, known := formatPattern(f.format); known && f.length == (count{0, unbounded}) {
		t.pattern = re
	}
	t.inner = t.inside(c.automaton, bare)
	return t, nil
}

func (t *texts) cost([]*rule) int {
	if t.inner == nil {
		return never
	}
	return 0
}

func (t *texts) node(a *automaton, _ int) *node {
	quote := a.literal(`"`)
	return a.scalar(a.sequence(quote, t.inside(a, quoted), quote))
}

// inside returns the expression of the text between the quotation marks.
func (t *texts) inside(a *automaton, how spelling) *node {
	switch {
	case t.pattern != nil:
		return a.pattern(t.pattern, how)
	case how == bare:
		return a.repeat(a.anyRune(bare), t.length.least, t.length.most)
	}
	return a.repeat(a.character(), t.length.least, t.length.most)
}
