package jinja

import (
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// format implements Python's s.format for fields that are empty, a number or a name.
func (r *run) format(s string, a actual) string {
	var b strings.Builder
	add := func(part string) {
		r.make(len(part))
		b.WriteString(part)
	}
	for count := 0; s != ""; {
		at := strings.IndexAny(s, "{}")
		if at < 0 {
			add(s)
			break
		}
		add(s[:at])
		if strings.HasPrefix(s[at+1:], s[at:at+1]) {
			add(s[at : at+1])
			s = s[at+2:]
			continue
		}
		length := strings.IndexByte(s[at:], '}')
		if s[at] == '}' || length < 0 {
			r.wrong("format with a single %c", s[at])
		}
		field := s[at+1 : at+length]
		s = s[at+length+1:]
		if field == "" {
			field = strconv.Itoa(count)
			count++
		} else if count > 0 && isDecimal(field[0]) {
			r.wrong("format with fields that have numbers and fields that have none")
		}
		add(r.str(r.field(field, a)))
	}
	return b.String()
}

func (r *run) field(field string, a actual) any {
	if strings.ContainsAny(field, "{.[!:") {
		r.refuse("format with the field {%s}", field)
	}
	if i, err := strconv.Atoi(field); err == nil {
		if i < 0 || i >= len(a.positional) {
			r.wrong("format has no argument %d", i)
		}
		return a.positional[i]
	}
	v := a.take(field)
	if v == nil {
		r.wrong("format has no argument %s", field)
	}
	return v
}

// upper implements Python's str.upper. It refuses letters whose upper case has more than
// one character.
func (r *run) upper(s string) string { return r.marksOf(s, strings.ToUpper(r.letters(r.bare(s)))) }

func (r *run) lower(s string) string { return r.marksOf(s, strings.ToLower(r.letters(r.bare(s)))) }

// letters refuses characters without a simple upper or lower case.
func (r *run) letters(s string) string {
	r.make(len(s))
	r.step(len(s) / 32)
	if i := strings.IndexFunc(s, hasSpecialCase); i >= 0 {
		c, _ := utf8.DecodeRuneInString(s[i:])
		r.refuse("the upper or lower case of %q", c)
	}
	return s
}

// hasSpecialCase reports whether Unicode's SpecialCasing lists a character for all
// languages.
func hasSpecialCase(c rune) bool {
	switch {
	case c < 0x80:
		return false
	case c == 0xdf, c == 0x130, c == 0x149, c == 0x1f0, c == 0x390, c == 0x3b0, c == 0x3a3, c == 0x587:
		return true
	case c >= 0x1e96 && c <= 0x1e9e, c >= 0x1f50 && c <= 0x1f57, c >= 0x1f80 && c <= 0x1fff:
		return true
	}
	return c >= 0xfb00 && c <= 0xfb17
}

// plainLetters refuses characters that are not ASCII.
func (r *run) plainLetters(what, s string) string {
	r.make(len(s))
	r.step(len(s) / 32)
	if !isASCII(s) {
		r.refuse("%s of letters beyond ASCII", what)
	}
	return s
}

func isLetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }

// capitalize implements Python's str.capitalize.
func (r *run) capitalize(s string) string {
	low := strings.ToLower(r.plainLetters("capitalize", r.bare(s)))
	if s == "" {
		return s
	}
	return r.marksOf(s, strings.ToUpper(low[:1])+low[1:])
}

// title turns a letter into upper case if it is the first, or if starts is true for the
// character before it.
func (r *run) title(s string, starts func(before byte) bool) string {
	b := []byte(strings.ToLower(r.plainLetters("title", r.bare(s))))
	for i, c := range b {
		if isLetter(c) && (i == 0 || starts(b[i-1])) {
			b[i] = c &^ 0x20
		}
	}
	return r.marksOf(s, string(b))
}

// kindOf implements isalpha, isdigit and the like, and the tests lower and upper.
func (r *run) kindOf(method, s string) bool {
	s = r.bare(s)
	r.step(len(s) / 16)
	switch method {
	case "isascii":
		return isASCII(s)
	case "isspace":
		return s != "" && strings.TrimLeftFunc(s, isSpace) == ""
	}
	if !isASCII(s) {
		r.refuse("%s of a string beyond ASCII", method)
	}
	is := map[string]func(rune) bool{
		"isalnum": func(c rune) bool { return unicode.IsLetter(c) || unicode.IsDigit(c) },
		"isalpha": unicode.IsLetter,
		"isdigit": unicode.IsDigit,
		"islower": func(c rune) bool { return !unicode.IsUpper(c) },
		"isupper": func(c rune) bool { return !unicode.IsLower(c) },
	}[method]
	caseless := !strings.ContainsFunc(s, unicode.IsLetter) && (method == "islower" || method == "isupper")
	return s != "" && !caseless && strings.TrimLeftFunc(s, is) == ""
}

func isDecimal(c byte) bool { return '0' <= c && c <= '9' }

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
