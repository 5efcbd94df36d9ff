package jinja

import (
	"math/big"
	"strconv"
	"strings"
	"unicode/utf8"
)

// number reads an integer or a float as Python spells them, underscores between
// digits included.
func (l *lexer) number(rest string) {
	n := digits(rest, isDecimal)
	isFloat := false
	if afterDot := strings.HasSuffix(l.source[:l.at], "."); !afterDot {
		m := n
		if m < len(rest) && rest[m] == '.' {
			if k := digits(rest[m+1:], isDecimal); k > 0 {
				m += 1 + k
				isFloat = true
			}
		}
		if k := exponent(rest[m:]); k > 0 {
			m += k
			isFloat = true
		}
		if isFloat {
			n = m
		}
	}
	if isFloat {
		f, err := strconv.ParseFloat(strings.ReplaceAll(rest[:n], "_", ""), 64)
		if err != nil {
			fail(ErrUnsupported, l.at, "number %s", rest[:n])
		}
		l.take(float, n, f)
		return
	}
	n, base := wholeNumber(rest)
	whole := strings.ReplaceAll(rest[:n], "_", "")
	if base != 10 {
		whole = whole[2:]
	}
	i, ok := new(big.Int).SetString(whole, base)
	if !ok || n > 1000 {
		fail(ErrUnsupported, l.at, "number %s", rest[:min(n, 40)])
	}
	l.take(integer, n, whole64(i))
}

// wholeNumber is the length and base of the integer at the begin of s. Behind a
// leading zero only zeros belong to it.
func wholeNumber(s string) (length, base int) {
	if len(s) > 2 && s[0] == '0' {
		for letter, base := range map[byte]int{'x': 16, 'o': 8, 'b': 2} {
			if s[1]|0x20 != letter {
				continue
			}
			rest := strings.TrimPrefix(s[2:], "_")
			if n := digits(rest, func(c byte) bool { return isDigitOf(c, base) }); n > 0 {
				return len(s) - len(rest) + n, base
			}
		}
	}
	if s[0] == '0' {
		return digits(s, func(c byte) bool { return c == '0' }), 10
	}
	return digits(s, isDecimal), 10
}

func isDecimal(c byte) bool { return '0' <= c && c <= '9' }

func isDigitOf(c byte, base int) bool {
	_, err := strconv.ParseInt(string(rune(c)), base, 64)
	return c < utf8.RuneSelf && err == nil
}

// digits is the length of the digits at the begin of s, with single underscores
// between them.
func digits(s string, is func(byte) bool) int {
	n := 0
	for i := 0; i < len(s); i++ {
		switch {
		case is(s[i]):
			n = i + 1
		case s[i] == '_' && i > 0 && n == i:
		default:
			return n
		}
	}
	return n
}

// exponent is the length of an exponent at the begin of s, or 0.
func exponent(s string) int {
	if s == "" || s[0]|0x20 != 'e' {
		return 0
	}
	n := 1
	if len(s) > 1 && (s[1] == '+' || s[1] == '-') {
		n = 2
	}
	if k := digits(s[n:], isDecimal); k > 0 {
		return n + k
	}
	return 0
}

// literal reads a string in quotes.
func (l *lexer) literal(rest string) {
	for i := 1; i < len(rest); i++ {
		switch rest[i] {
		case '\\':
			i++
		case rest[0]:
			l.take(text, i+1, l.unescape(rest[1:i]))
			return
		}
	}
	fail(ErrSyntax, l.at, "the string has no end")
}

// unescape gives a string literal the meaning that Python gives it. An unknown
// escape is left as it is.
func (l *lexer) unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for s != "" {
		i := strings.IndexByte(s, '\\')
		if i < 0 {
			b.WriteString(s)
			break
		}
		b.WriteString(s[:i])
		s = l.escape(&b, s[i:])
	}
	return b.String()
}

// escape writes what the escape at the begin of s means, and gives what is behind
// it.
func (l *lexer) escape(b *strings.Builder, s string) string {
	const simple, meaning = "\\'\"abfnrtv", "\\'\"\a\b\f\n\r\t\v"
	c := s[1]
	if i := strings.IndexByte(simple, c); i >= 0 {
		b.WriteByte(meaning[i])
		return s[2:]
	}
	if n := strings.IndexByte("x u   U", c); n >= 0 && c != ' ' {
		return l.codePoint(b, s, n+2, 16)
	}
	switch {
	case c == '\n':
		return s[2:]
	case '0' <= c && c <= '7':
		n := 1
		for n < 3 && n+1 < len(s) && '0' <= s[n+1] && s[n+1] <= '7' {
			n++
		}
		return l.codePoint(b, s[:1]+" "+s[1:], n, 8)
	case c == 'N':
		fail(ErrUnsupported, l.at, `escape \N`)
	}
	b.WriteByte('\\') // and c comes as text
	return s[1:]
}

// codePoint writes the character whose number has n digits from s[2] on.
func (l *lexer) codePoint(b *strings.Builder, s string, n, base int) string {
	if len(s) < 2+n {
		fail(ErrSyntax, l.at, "the escape %s is cut off", s)
	}
	r, err := strconv.ParseUint(s[2:2+n], base, 32)
	if err != nil {
		fail(ErrSyntax, l.at, "bad escape %s", s[:2+n])
	}
	if !utf8.ValidRune(rune(r)) {
		fail(ErrUnsupported, l.at, "escape %s, which is no character", s[:2+n])
	}
	b.WriteRune(rune(r))
	return s[2+n:]
}
