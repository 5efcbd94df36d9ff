package schema

import (
	"slices"
	"unicode/utf8"
)

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
