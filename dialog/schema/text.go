package schema

import (
	"errors"
	"regexp/syntax"
)

// texts is the shape of the strings of a schema.
type texts struct {
	// parts are regular expressions of the whole string; all of them have to match.
	parts  []*syntax.Regexp
	length count
	// fits is true if the parts imply the length.
	fits  bool
	place *document // a keyword that restricts them, or nil
	inner *node     // the strings without quotes and escapes; nil if there are none
}

// newTexts reads a schema's restrictions of strings.
func (c *compiler) newTexts(f *facts) (*texts, error) {
	t := &texts{length: f.length}
	place := f.lengths
	for _, p := range f.patterns {
		re, err := parsePattern(p.text)
		if err != nil {
			return nil, p.refuse("%v", err)
		}
		t.parts, place = append(t.parts, re), p
	}
	for _, p := range f.formats {
		if re, known := formatPattern(p.text); known {
			t.parts, place = append(t.parts, re), p
		}
	}
	if len(t.parts) == 1 {
		if fitted, err := fitLength(t.parts[0], f.length); err == nil {
			t.parts[0], t.fits = fitted, true
		}
	}
	t.place = place
	t.fits = t.fits || f.length == count{0, unbounded}
	var err error
	t.inner, err = t.inside(c.automaton, bare)
	if err == nil {
		// The masks of a reply meet the same states, so they meet no error.
		_, err = t.inside(c.automaton, quoted)
	}
	switch {
	case errors.Is(err, errStates) && len(t.parts) == 1:
		return nil, place.refuse("%s together with a length that it neither implies nor can be combined with", place.keyword())
	case err != nil:
		return nil, place.refuse("%d patterns and formats for one string: %w", len(t.parts), err)
	}
	return t, nil
}

func (t *texts) cost([]*rule) int {
	if t.inner == nil {
		return never
	}
	return 0
}

func (t *texts) needs() []int { return nil }

func (t *texts) node(a *automaton, _ int) *node {
	quote := a.literal(`"`)
	inside, _ := t.inside(a, quoted) // newTexts has returned the error
	return a.scalar(a.sequence(quote, inside, quote))
}

// inside returns the expression of the text between the quotation marks.
func (t *texts) inside(a *automaton, how spelling) (*node, error) {
	if len(t.parts) == 0 {
		if how == bare {
			return a.repeat(a.anyRune(bare), t.length.least, t.length.most), nil
		}
		return a.repeat(a.character(), t.length.least, t.length.most), nil
	}
	n := a.pattern(t.parts[0], how)
	var err error
	for _, re := range t.parts[1:] {
		if n, err = a.both(n, a.pattern(re, how)); err != nil {
			return nil, err
		}
	}
	if !t.fits {
		n, err = a.both(n, a.repeat(a.anyRune(how), t.length.least, t.length.most))
	}
	return n, err
}
