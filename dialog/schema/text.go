package schema

import (
	"errors"
	"iter"
	"math/bits"
	"regexp/syntax"
	"slices"
	"unicode/utf8"
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

// ByteSet is a set of bytes.
type ByteSet [4]uint64

// Has reports whether b is in the set.
func (s ByteSet) Has(b byte) bool { return s[b>>6]&(1<<(b&63)) != 0 }

// Add puts b into the set.
func (s *ByteSet) Add(b byte) { s[b>>6] |= 1 << (b & 63) }

// Len returns the number of bytes in the set.
func (s ByteSet) Len() int {
	n := 0
	for _, word := range s {
		n += bits.OnesCount64(word)
	}
	return n
}

// All yields the bytes of the set in order.
func (s ByteSet) All() iter.Seq[byte] {
	return func(yield func(byte) bool) {
		for i, word := range s {
			for ; word != 0; word &= word - 1 {
				if !yield(byte(i<<6 + bits.TrailingZeros64(word))) {
					return
				}
			}
		}
	}
}

// split keeps the bytes that other does not distinguish from b: those in other if b is in
// it, else those that are not.
func (s *ByteSet) split(other ByteSet, b byte) {
	for i := range s {
		if other.Has(b) {
			s[i] &= other[i]
		} else {
			s[i] &^= other[i]
		}
	}
}

func (s *ByteSet) union(other ByteSet) {
	for i := range s {
		s[i] |= other[i]
	}
}

// span returns the set of the bytes from low to high.
func span(low, high byte) ByteSet {
	var s ByteSet
	for b := int(low); b <= int(high); b++ {
		s.Add(byte(b))
	}
	return s
}

// spelling says how the characters of a string are written: unchanged, or as in JSON.
type spelling uint8

const (
	bare   spelling = iota // every character as it is
	quoted                 // escaped where JSON asks for it, and only there
)

// runes returns the expression of one character of the ranges, in one spelling. The
// ranges are pairs of the lowest and the highest character.
func (a *automaton) runes(ranges []rune, how spelling) *node {
	var options []*node
	for pair := range slices.Chunk(ranges, 2) {
		low, high := pair[0], pair[1]
		if how == quoted {
			for r := low; r <= min(high, '\\'); r++ {
				if text, escaped := escape(r); escaped {
					options = append(options, a.literal(text))
				}
			}
		}
		options = append(options, a.plainRunes(low, high, how))
	}
	return a.choice(options...)
}

// plainRunes returns the expression of the characters from low to high that need no
// escape.
func (a *automaton) plainRunes(low, high rune, how spelling) *node {
	var ascii ByteSet
	for r := low; r <= min(high, utf8.RuneSelf-1); r++ {
		if _, escaped := escape(r); !escaped || how == bare {
			ascii.Add(byte(r))
		}
	}
	options := []*node{a.in(ascii)}
	// The blocks of equal length in UTF-8. The gap is the surrogates.
	for _, block := range [][2]rune{{0x80, 0x7ff}, {0x800, 0xd7ff}, {0xe000, 0xffff}, {0x10000, utf8.MaxRune}} {
		if from, to := max(low, block[0]), min(high, block[1]); from <= to {
			options = append(options, a.encoded([]byte(string(from)), []byte(string(to))))
		}
	}
	return a.choice(options...)
}

// encoded returns the expression of the UTF-8 encodings from low to high, which have the
// same length.
func (a *automaton) encoded(low, high []byte) *node {
	if len(low) == 1 {
		return a.in(span(low[0], high[0]))
	}
	if low[0] == high[0] {
		return a.sequence(a.in(span(low[0], low[0])), a.encoded(low[1:], high[1:]))
	}
	lowest, highest := slices.Repeat([]byte{0x80}, len(low)-1), slices.Repeat([]byte{0xbf}, len(low)-1)
	options := []*node{
		a.sequence(a.in(span(low[0], low[0])), a.encoded(low[1:], highest)),
		a.sequence(a.in(span(high[0], high[0])), a.encoded(lowest, high[1:])),
	}
	if low[0]+1 < high[0] {
		options = append(options, a.sequence(a.in(span(low[0]+1, high[0]-1)), a.encoded(lowest, highest)))
	}
	return a.choice(options...)
}

// anyRune returns the expression of any character, in one spelling.
func (a *automaton) anyRune(how spelling) *node { return a.runes([]rune{0, utf8.MaxRune}, how) }

// character returns the expression of any character of a JSON string, in every spelling
// that JSON has for it. A surrogate is allowed only as one half of a pair.
func (a *automaton) character() *node {
	hex := ByteSet{}
	for _, s := range []ByteSet{span('0', '9'), span('a', 'f'), span('A', 'F')} {
		hex.union(s)
	}
	digit := a.in(hex)
	of := func(bytes string) *node {
		var s ByteSet
		for i := range len(bytes) {
			s.Add(bytes[i])
		}
		return a.in(s)
	}
	notD := hex
	for _, d := range []byte("dD") {
		notD[d>>6] &^= 1 << (d & 63)
	}
	return a.choice(
		a.plainRunes(0, utf8.MaxRune, quoted),
		a.sequence(a.literal(`\`), of(`"\/bfnrt`)),
		a.sequence(a.literal(`\u`), a.in(notD), digit, digit, digit),
		a.sequence(a.literal(`\u`), of("dD"), a.in(span('0', '7')), digit, digit),
		a.sequence(a.literal(`\u`), of("dD"), of("89abAB"), digit, digit,
			a.literal(`\u`), of("dD"), of("cdefCDEF"), digit, digit),
	)
}

// escape returns JSON's escape for a character that can't stand in a string unescaped.
func escape(r rune) (text string, escaped bool) {
	const digits = "0123456789abcdef"
	switch {
	case r == '"' || r == '\\':
		return `\` + string(r), true
	case r >= ' ':
		return "", false
	}
	for i, short := range "\b\f\n\r\t" {
		if r == short {
			return `\` + "bfnrt"[i:i+1], true
		}
	}
	return `\u00` + digits[r>>4:r>>4+1] + digits[r&15:r&15+1], true
}

// spell writes a string in a spelling. In the spelling of JSON it adds the quotation
// marks.
func spell(text string, how spelling) string {
	if how == bare {
		return text
	}
	out := []byte{'"'}
	for _, r := range text {
		if e, escaped := escape(r); escaped {
			out = append(out, e...)
		} else {
			out = utf8.AppendRune(out, r)
		}
	}
	return string(append(out, '"'))
}
