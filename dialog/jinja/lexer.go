package jinja

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// lexer cuts a source into tokens, with the rules of trim_blocks (the line end
// after a block or comment goes) and lstrip_blocks (so does the white space before
// one, where nothing else is on its line).
type lexer struct {
	source string
	at     int
	tokens []token
	// lineStarting says that the last thing read ended with a line end.
	lineStarting bool
	// open are the brackets that are not closed yet; inside of them "}}" and "%}" end
	// nothing.
	open []byte
}

// normalize makes all line ends "\n" and drops the one at the end of the source.
func normalize(source string) string {
	source = strings.ReplaceAll(source, "\r\n", "\n")
	source = strings.ReplaceAll(source, "\r", "\n")
	return strings.TrimSuffix(source, "\n")
}

// lex reads all tokens. It panics with an *Error.
func lex(source string) []token {
	l := &lexer{source: source, lineStarting: true}
	for l.at < len(l.source) {
		l.root()
	}
	return append(l.tokens, token{kind: end, pos: len(source)})
}

// root reads text up to the next tag, and the tag.
func (l *lexer) root() {
	start := l.at
	tag := nextTag(l.source, start)
	if tag < 0 {
		l.add(data, l.source[start:], start)
		l.at = len(l.source)
		return
	}
	l.at = tag + 2
	sign := l.sign()
	l.add(data, l.before(l.source[start:tag], sign, l.source[tag+1] == '{'), start)
	l.lineStarting = false
	switch l.source[tag+1] {
	case '#':
		l.comment(tag)
	case '{':
		l.add(variableBegin, "{{", tag)
		l.expression(tag, variableEnd)
	default:
		if l.raw(tag) {
			return
		}
		l.add(blockBegin, "{%", tag)
		l.expression(tag, blockEnd)
	}
}

func nextTag(source string, from int) int {
	for i := from; ; i++ {
		j := strings.IndexByte(source[i:], '{')
		if j < 0 || i+j+1 >= len(source) {
			return -1
		}
		i += j
		if c := source[i+1]; c == '%' || c == '{' || c == '#' {
			return i
		}
	}
}

// sign reads the sign behind the begin of a tag, if there is one.
func (l *lexer) sign() byte {
	if l.at < len(l.source) && (l.source[l.at] == '-' || l.source[l.at] == '+') {
		l.at++
		return l.source[l.at-1]
	}
	return 0
}

// before is what remains of the text before a tag.
func (l *lexer) before(text string, sign byte, variable bool) string {
	if sign == '-' {
		return strings.TrimRightFunc(text, isSpace)
	}
	if sign == '+' || variable {
		return text
	}
	line := strings.LastIndexByte(text, '\n') + 1
	if line == 0 && !l.lineStarting {
		return text
	}
	if strings.TrimLeftFunc(text[line:], isSpace) == "" {
		return text[:line]
	}
	return text
}

// isSpace is Python's str.isspace for one character.
func isSpace(r rune) bool { return unicode.IsSpace(r) || 0x1c <= r && r <= 0x1f }

func (l *lexer) add(k kind, text string, pos int) {
	if k != data || text != "" {
		l.tokens = append(l.tokens, token{kind: k, text: text, pos: pos})
	}
}

// comment skips a comment whose begin was read.
func (l *lexer) comment(tag int) {
	i := strings.Index(l.source[l.at:], "#}")
	if l.at == len(l.source) {
		return // Jinja doesn't mind
	}
	if i < 0 {
		fail(ErrSyntax, tag, "the comment has no end")
	}
	sign := byte(0)
	if i > 0 {
		sign = l.source[l.at+i-1]
	}
	l.at += i + 2
	l.after(sign)
}

// after skips what white space control drops behind the end of a block or comment.
func (l *lexer) after(sign byte) {
	switch {
	case sign == '-':
		l.skipSpace()
	case sign != '+' && strings.HasPrefix(l.source[l.at:], "\n"):
		l.at++
	}
	l.lineStarting = l.source[l.at-1] == '\n'
}

func (l *lexer) skipSpace() {
	rest := l.source[l.at:]
	l.at += len(rest) - len(strings.TrimLeftFunc(rest, isSpace))
}

// raw reads {% raw %}…{% endraw %}, if the tag whose begin was read is that. No
// line end is dropped behind {% raw %}.
func (l *lexer) raw(tag int) bool {
	sign, from := l.wholeTag(l.at, "raw")
	if from < 0 || sign == '+' {
		return false
	}
	l.at = from
	if sign == '-' {
		l.skipSpace()
	}
	l.lineStarting = l.source[l.at-1] == '\n'
	start := l.at
	for i := start; ; i += 2 {
		j := strings.Index(l.source[i:], "{%")
		if start == len(l.source) {
			return true // Jinja doesn't mind
		}
		if j < 0 {
			fail(ErrSyntax, tag, "raw has no endraw")
		}
		i += j
		l.at = i + 2
		sign := l.sign()
		endSign, behind := l.wholeTag(l.at, "endraw")
		if behind < 0 {
			continue
		}
		l.add(data, l.before(l.source[start:i], sign, false), start)
		l.at = behind
		l.after(endSign)
		return true
	}
}

// wholeTag finds the rest of a tag that is one word; it gives the sign before its
// end and the offset behind it, or −1.
func (l *lexer) wholeTag(from int, word string) (sign byte, behind int) {
	rest := strings.TrimLeftFunc(l.source[from:], isSpace)
	rest, found := strings.CutPrefix(rest, word)
	if !found {
		return 0, -1
	}
	rest = strings.TrimLeftFunc(rest, isSpace)
	if rest != "" && (rest[0] == '-' || rest[0] == '+') {
		sign, rest = rest[0], rest[1:]
	}
	if !strings.HasPrefix(rest, "%}") {
		return 0, -1
	}
	return sign, len(l.source) - len(rest) + 2
}

// expression reads the tokens of a block or variable up to and with its end.
func (l *lexer) expression(tag int, until kind) {
	l.open = l.open[:0]
	for {
		if len(l.open) == 0 && l.end(until) {
			return
		}
		rest := strings.TrimLeftFunc(l.source[l.at:], isSpace)
		if spaces := len(l.source) - l.at - len(rest); spaces > 0 {
			l.at += spaces
			continue
		}
		if rest == "" {
			fail(ErrSyntax, tag, "the tag has no end")
		}
		l.word(rest)
	}
}

// end reads the end of a block or variable, if it is here.
func (l *lexer) end(k kind) bool {
	rest, mark, sign := l.source[l.at:], "%}", byte(0)
	if k == variableEnd {
		mark = "}}"
	}
	if rest != "" && (rest[0] == '-' || rest[0] == '+' && k == blockEnd) {
		sign, rest = rest[0], rest[1:]
	}
	if !strings.HasPrefix(rest, mark) {
		return false
	}
	l.add(k, mark, l.at)
	l.at = len(l.source) - len(rest) + 2
	if k == variableEnd && sign == 0 {
		sign = '+' // trim_blocks is not for variables
	}
	l.after(sign)
	return true
}

// word reads a literal, a name or an operator at the begin of rest.
func (l *lexer) word(rest string) {
	switch c := rest[0]; {
	case '0' <= c && c <= '9':
		l.number(rest)
	case c == '\'' || c == '"':
		l.literal(rest)
	case isNameByte(c):
		n := 1
		for n < len(rest) && isNameByte(rest[n]) {
			n++
		}
		l.take(name, n, nil)
	case c >= utf8.RuneSelf:
		r, _ := utf8.DecodeRuneInString(rest)
		fail(ErrUnsupported, l.at, "character %q in a tag", r)
	default:
		l.operator(rest)
	}
}

func isNameByte(c byte) bool {
	return c == '_' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}

func (l *lexer) take(k kind, n int, value any) {
	l.tokens = append(l.tokens, token{k, l.source[l.at : l.at+n], value, l.at})
	l.at += n
}

func (l *lexer) operator(rest string) {
	for _, two := range []string{"//", "**", "==", "!=", ">=", "<="} {
		if strings.HasPrefix(rest, two) {
			l.take(operator, 2, nil)
			return
		}
	}
	switch c := rest[0]; c {
	case '(', '[', '{':
		l.open = append(l.open, c)
	case ')', ']', '}':
		pairs := map[byte]byte{')': '(', ']': '[', '}': '{'}
		if len(l.open) == 0 || l.open[len(l.open)-1] != pairs[c] {
			fail(ErrSyntax, l.at, "%q closes nothing", c)
		}
		l.open = l.open[:len(l.open)-1]
	default:
		if !strings.ContainsRune("+-/*%~><=.:|,;", rune(c)) {
			fail(ErrSyntax, l.at, "unexpected %q", c)
		}
	}
	l.take(operator, 1, nil)
}

// kind says what a token is.
type kind int

const (
	end kind = iota // of the source
	data
	variableBegin
	variableEnd
	blockBegin
	blockEnd
	name
	text // a string literal; value is its string
	integer
	float
	operator
)

// token is a piece of the source. pos is the offset of its first byte in the
// source after its line ends were made "\n".
type token struct {
	kind  kind
	text  string
	value any
	pos   int
}

// is says whether the token is this word or operator.
func (t token) is(k kind, text string) bool { return t.kind == k && t.text == text }

// String names the token in an error.
func (t token) String() string {
	switch t.kind {
	case end:
		return "the end of the template"
	case data:
		return "text"
	case variableEnd:
		return "}}"
	case blockEnd:
		return "%}"
	}
	return fmt.Sprintf("%q", t.text)
}
