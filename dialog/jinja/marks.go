package jinja

import (
	"strings"
	"time"
	"unicode/utf8"
)

// The 32 noncharacters that can stand for other characters. Noncharacters have no meaning
// in any text.
const (
	FirstMark = '\uFDD0'
	LastMark  = '\uFDEF'
)

// RenderMarked is like Render for variables in whose strings FirstMark+i stands for
// alphabet[i]. The template can't tell a mark from its character: lengths, comparisons,
// searches and changes are those of the characters. In the output, all that comes from the
// variables still has its marks, whatever the template made of it.
func (t *Template) RenderMarked(variables Value, now time.Time, alphabet []rune) (text string, err error) {
	return t.render(variables, now, alphabet)
}

// character returns the character for which c stands.
func (r *run) character(c rune) rune {
	if c >= FirstMark && int(c-FirstMark) < len(r.alphabet) {
		return r.alphabet[c-FirstMark]
	}
	return c
}

// bare returns s with characters in place of marks. It has as many characters.
func (r *run) bare(s string) string {
	if !r.marked(s) {
		return s
	}
	r.make(len(s))
	r.step(len(s) / 16)
	return strings.Map(r.character, s)
}

// marked reports whether s may have marks.
func (r *run) marked(s string) bool { return len(r.alphabet) > 0 && strings.Contains(s, "\xef\xb7") }

// place returns the place in s at which its bare form has the place at.
func (r *run) place(s string, at int) int {
	if at < 0 || !r.marked(s) {
		return at
	}
	bare := 0
	for i, c := range s {
		if bare >= at {
			return i
		}
		bare += max(utf8.RuneLen(r.character(c)), 1)
	}
	return len(s)
}

// marksOf returns changed, which has as many characters as s, with marks where s has them
// and the alphabet has the changed character.
func (r *run) marksOf(s, changed string) string {
	if !r.marked(s) {
		return changed
	}
	r.make(len(s))
	before, after := []rune(s), []rune(changed)
	for i := range after {
		if i < len(before) && r.character(before[i]) != before[i] {
			for m, c := range r.alphabet {
				if c == after[i] {
					after[i] = FirstMark + rune(m)
				}
			}
		}
	}
	return string(after)
}
