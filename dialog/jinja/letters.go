package jinja

import (
	"strings"
	"unicode"
)

// upper is Python's str.upper. Letters that it would make more than one character
// of are refused.
func (r *run) upper(s string) string {
	r.letters(s)
	return strings.ToUpper(s)
}

func (r *run) lower(s string) string {
	r.letters(s)
	return strings.ToLower(s)
}

// letters refuses what has no simple upper or lower case.
func (r *run) letters(s string) {
	r.make(len(s))
	r.step(len(s) / 32)
	if isASCII(s) {
		return
	}
	for _, c := range s {
		if hasSpecialCase(c) {
			r.refuse("the upper or lower case of %q", c)
		}
	}
}

// hasSpecialCase says whether Unicode's SpecialCasing names a character for all
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

// plainLetters refuses what is not ASCII.
func (r *run) plainLetters(what, s string) string {
	r.make(len(s))
	r.step(len(s) / 32)
	if !isASCII(s) {
		r.refuse("%s of letters beyond ASCII", what)
	}
	return s
}

func isLetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }

// capitalize is Python's str.capitalize.
func (r *run) capitalize(s string) string {
	s = strings.ToLower(r.plainLetters("capitalize", s))
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

// title is Python's str.title: a letter is large if no letter is before it.
func (r *run) title(s string) string {
	b := []byte(strings.ToLower(r.plainLetters("title", s)))
	for i, c := range b {
		if isLetter(c) && (i == 0 || !isLetter(b[i-1])) {
			b[i] = c &^ 0x20
		}
	}
	return string(b)
}

// titleFilter is Jinja's filter title: a letter is large at the begin and behind
// white space and - ( { [ <.
func (r *run) titleFilter(s string) string {
	b := []byte(strings.ToLower(r.plainLetters("title", s)))
	for i, c := range b {
		if isLetter(c) && (i == 0 || strings.IndexByte("-({[<", b[i-1]) >= 0 || isSpace(rune(b[i-1]))) {
			b[i] = c &^ 0x20
		}
	}
	return string(b)
}

// kindOf answers isalpha, isdigit, … and the tests lower and upper.
func (r *run) kindOf(method, s string) bool {
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
	letter := strings.ContainsFunc(s, unicode.IsLetter)
	none := func(is func(rune) bool) bool { return s != "" && !strings.ContainsFunc(s, is) }
	switch method {
	case "isalnum":
		return none(func(c rune) bool { return !unicode.IsLetter(c) && !unicode.IsDigit(c) })
	case "isalpha":
		return none(func(c rune) bool { return !unicode.IsLetter(c) })
	case "isdigit":
		return none(func(c rune) bool { return !unicode.IsDigit(c) })
	case "islower":
		return letter && none(unicode.IsUpper)
	}
	return letter && none(unicode.IsLower) // isupper
}
