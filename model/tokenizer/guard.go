package tokenizer

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// FirstMark is the first of the noncharacters that stand for characters in a text. There
// are 32 of them. Noncharacters have no meaning in any text.
const FirstMark, maxMarks = '\uFDD0', 32

// Guard keeps text that a template was given from becoming tokens. Such text has marks in
// place of the characters of an alphabet. Each guarded token has one of these characters.
type Guard struct {
	Alphabet []rune
	tokens   map[int32]bool
}

// NewGuard returns a guard of the added tokens of b for which guarded returns true.
func (b *BPE) NewGuard(guarded func(text string, special bool) bool) *Guard {
	g := &Guard{tokens: map[int32]bool{}}
	var texts []string
	for text, id := range b.ids {
		if guarded(text, b.kinds[id] == special) {
			g.tokens[id] = true
			texts = append(texts, text)
		}
	}
	slices.Sort(texts)
	add := func(c rune) {
		if !slices.Contains(g.Alphabet, c) && len(g.Alphabet) < maxMarks {
			g.Alphabet = append(g.Alphabet, c)
		}
	}
	// First the punctuation, which most tokens share.
	for _, text := range texts {
		if !strings.ContainsFunc(text, func(c rune) bool { return slices.Contains(g.Alphabet, c) }) {
			if i := strings.IndexFunc(text, func(c rune) bool { return unicode.In(c, unicode.P, unicode.S) }); i >= 0 {
				c, _ := utf8.DecodeRuneInString(text[i:])
				add(c)
			}
		}
	}
	for _, text := range texts {
		if !strings.ContainsFunc(text, func(c rune) bool { return slices.Contains(g.Alphabet, c) }) {
			if i := strings.IndexFunc(text, func(c rune) bool { return !unicode.IsSpace(c) }); i >= 0 {
				c, _ := utf8.DecodeRuneInString(text[i:])
				add(unicode.ToLower(c)) // a template may change the case
				add(unicode.ToUpper(c))
			}
		}
	}
	return g
}

// Mark returns text with marks in place of the alphabet's characters. The texts of open
// stay as they are. Noncharacters that are marks become U+FFFD.
func (g *Guard) Mark(text string, open []string) string {
	var out strings.Builder
	for i := 0; i < len(text); {
		if at := slices.IndexFunc(open, func(o string) bool { return strings.HasPrefix(text[i:], o) }); at >= 0 {
			out.WriteString(open[at])
			i += len(open[at])
			continue
		}
		c, n := utf8.DecodeRuneInString(text[i:])
		switch at := slices.Index(g.Alphabet, c); {
		case at >= 0:
			out.WriteRune(FirstMark + rune(at))
		case c >= FirstMark && c < FirstMark+maxMarks:
			out.WriteRune(utf8.RuneError)
		default:
			out.WriteString(text[i : i+n])
		}
		i += n
	}
	return out.String()
}

// Unmark returns text with characters in place of marks.
func (g *Guard) Unmark(text string) string {
	bare, _ := g.bare(text)
	return bare
}

// bare returns text with characters in place of marks, and their places.
func (g *Guard) bare(text string) (string, []int) {
	if !strings.Contains(text, "\xef\xb7") {
		return text, nil
	}
	var out strings.Builder
	var marks []int
	for i := 0; i < len(text); {
		c, n := utf8.DecodeRuneInString(text[i:])
		if at := int(c - FirstMark); at >= 0 && at < len(g.Alphabet) {
			marks = append(marks, out.Len())
			out.WriteRune(g.Alphabet[at])
		} else {
			out.WriteString(text[i : i+n])
		}
		i += n
	}
	return out.String(), marks
}

// marked inverts bare for a part that begins at the byte at.
func (g *Guard) marked(part string, marks []int, at int) string {
	var out strings.Builder
	done := 0
	for _, m := range marks {
		c, n := utf8.DecodeRuneInString(part[m-at:])
		out.WriteString(part[done : m-at])
		out.WriteRune(FirstMark + rune(slices.Index(g.Alphabet, c)))
		done = m - at + n
	}
	out.WriteString(part[done:])
	return out.String()
}

// allows returns a function that reports whether a token may be found at a place of a part
// that begins at the byte at.
func (g *Guard) allows(marks []int, at int) func(id int32, begin, end int) bool {
	return func(id int32, begin, end int) bool {
		return g == nil || !g.tokens[id] || len(within(marks, begin+at, end+at)) == 0
	}
}

// within returns the marks from begin to end.
func within(marks []int, begin, end int) []int {
	from, _ := slices.BinarySearch(marks, begin)
	to, _ := slices.BinarySearch(marks, end)
	return marks[from:to]
}
