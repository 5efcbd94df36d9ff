package jinja

import (
	"fmt"
	"math/big"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// allPatterns are compiled once, because that takes longer than reading a template.
var allPatterns = sync.OnceValue(newPatterns)

// lexer cuts a source into tokens by the rules of trim_blocks and lstrip_blocks.
// trim_blocks drops the line end after a block or comment. lstrip_blocks drops the white
// space before one, if nothing else precedes it on its line.
type lexer struct {
	*patterns
	source string
	at     int
	tokens []token
	// lineStarting is true if the part that was read last ended with a line end.
	lineStarting bool
	// open are the brackets that are not closed yet. Inside of them "}}" and "%}" do not
	// end a tag.
	open []byte
}

// patterns match at the beginning of a text. Only tag, rawEnd and escape match anywhere.
type patterns struct {
	tag, rawBegin, rawEnd, blockEnd, variableEnd *regexp.Regexp
	float, integer, text, name, operator, escape *regexp.Regexp
}

func newPatterns() *patterns {
	const (
		space  = `[\t-\r\x1c-\x20\x{85}\x{a0}\p{Z}]*` // the same as isSpace
		digits = `[0-9](?:_?[0-9])*`
	)
	return &patterns{
		tag:         regexp.MustCompile(`\{[%{#][-+]?`),
		rawBegin:    regexp.MustCompile(`^` + space + `raw` + space + `(-?)%\}`),
		rawEnd:      regexp.MustCompile(`\{%([-+]?)` + space + `endraw` + space + `([-+]?)%\}`),
		blockEnd:    regexp.MustCompile(`^([-+]?)%\}`),
		variableEnd: regexp.MustCompile(`^(-?)\}\}`),
		float:       regexp.MustCompile(`^` + digits + `(?:\.` + digits + `(?:[eE][+-]?` + digits + `)?|[eE][+-]?` + digits + `)`),
		integer:     regexp.MustCompile(`^(?i:0x(?:_?[0-9a-f])+|0o(?:_?[0-7])+|0b(?:_?[01])+|0(?:_?0)*|` + digits + `)`),
		text:        regexp.MustCompile(`^(?s:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")`),
		name:        regexp.MustCompile(`^\w+`),
		operator:    regexp.MustCompile(`^(?://|\*\*|[=!<>]=|[-+/*%~<>=.:|,;()\[\]{}])`),
		escape:      regexp.MustCompile(`(?s)\\(?:x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-7]{1,3}|.)`),
	}
}

// normalize makes all line ends "\n" and drops the one at the end of the source.
func normalize(source string) string {
	return strings.TrimSuffix(strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(source), "\n")
}

// isSpace implements Python's str.isspace for one character.
func isSpace(r rune) bool { return unicode.IsSpace(r) || 0x1c <= r && r <= 0x1f }

// lex returns all tokens of a source. It panics with a *fault.
func lex(source string) []token {
	l := &lexer{patterns: allPatterns(), source: source, lineStarting: true}
	for l.at < len(l.source) {
		l.root()
	}
	return append(l.tokens, token{kind: end, pos: len(source)})
}

// root reads text up to the next tag, and the tag.
func (l *lexer) root() {
	start, rest := l.at, l.source[l.at:]
	at := l.tag.FindStringIndex(rest)
	if at == nil {
		l.add(data, rest, start)
		l.at = len(l.source)
		return
	}
	tag := start + at[0]
	l.at = start + at[1]
	begin, sign := rest[at[0]:at[0]+2], rest[at[0]+2:at[1]]
	l.add(data, l.before(rest[:at[0]], sign, begin == "{{"), start)
	l.lineStarting = false
	switch {
	case begin == "{#":
		l.comment(tag)
	case begin == "{{":
		l.add(variableBegin, begin, tag)
		l.inside(tag, variableEnd, l.variableEnd)
	case !l.raw(tag):
		l.add(blockBegin, begin, tag)
		l.inside(tag, blockEnd, l.blockEnd)
	}
}

// before returns what white space control leaves of the text before a tag. sign is the
// sign of the tag: "-", "+" or none.
func (l *lexer) before(text, sign string, variable bool) string {
	if sign == "-" {
		return strings.TrimRightFunc(text, isSpace)
	}
	line := strings.LastIndexByte(text, '\n') + 1
	if sign == "" && !variable && (line > 0 || l.lineStarting) && strings.TrimLeftFunc(text[line:], isSpace) == "" {
		return text[:line]
	}
	return text
}

func (l *lexer) add(k kind, text string, pos int) {
	if k != data || text != "" {
		l.tokens = append(l.tokens, token{kind: k, text: text, pos: pos})
	}
}

// comment skips a comment whose beginning was read already.
func (l *lexer) comment(tag int) {
	text, _, found := strings.Cut(l.source[l.at:], "#}")
	if l.at == len(l.source) {
		return // Jinja allows this
	}
	if !found {
		fail(ErrSyntax, tag, "the comment has no end")
	}
	l.at += len(text) + 2
	l.after(text[max(0, len(text)-1):])
}

// after skips the white space after a block or comment that white space control drops.
func (l *lexer) after(sign string) {
	switch {
	case sign == "-":
		l.skipSpace()
	case sign != "+" && strings.HasPrefix(l.source[l.at:], "\n"):
		l.at++
	}
	l.lineStarting = l.source[l.at-1] == '\n'
}

func (l *lexer) skipSpace() {
	rest := l.source[l.at:]
	l.at += len(rest) - len(strings.TrimLeftFunc(rest, isSpace))
}

// raw reads {% raw %}…{% endraw %}, if the tag that has just begun is such a one. It
// drops no line end after {% raw %}.
func (l *lexer) raw(tag int) bool {
	begin := l.rawBegin.FindStringSubmatch(l.source[l.at:])
	if begin == nil {
		return false
	}
	if l.at += len(begin[0]); begin[1] == "-" {
		l.skipSpace()
	}
	l.lineStarting = l.source[l.at-1] == '\n'
	rest := l.source[l.at:]
	if rest == "" {
		return true // Jinja allows this
	}
	end := l.rawEnd.FindStringSubmatchIndex(rest)
	if end == nil {
		fail(ErrSyntax, tag, "raw has no endraw")
	}
	l.add(data, l.before(rest[:end[0]], rest[end[2]:end[3]], false), l.at)
	l.at += end[1]
	l.after(rest[end[4]:end[5]])
	return true
}

// inside reads the tokens of a block or variable up to and with its end.
func (l *lexer) inside(tag int, k kind, end *regexp.Regexp) {
	l.open = l.open[:0]
	for {
		rest := l.source[l.at:]
		if at := end.FindStringSubmatch(rest); at != nil && len(l.open) == 0 {
			l.add(k, at[0][len(at[1]):], l.at)
			l.at += len(at[0])
			if at[1] == "" && k == variableEnd {
				at[1] = "+" // trim_blocks does not apply to variables
			}
			l.after(at[1])
			return
		}
		if rest == "" {
			fail(ErrSyntax, tag, "the tag has no end")
		}
		if c, size := utf8.DecodeRuneInString(rest); isSpace(c) {
			l.at += size
		} else {
			l.word(rest, c)
		}
	}
}

// word reads a literal, a name or an operator at the begin of rest.
func (l *lexer) word(rest string, first rune) {
	t := token{pos: l.at}
	switch {
	case l.match(&t, float, l.float, rest) && !strings.HasSuffix(l.source[:l.at], "."):
		f, err := strconv.ParseFloat(strings.ReplaceAll(t.text, "_", ""), 64)
		if err != nil {
			fail(ErrUnsupported, l.at, "number %s", t.text)
		}
		t.value = f
	case l.match(&t, integer, l.integer, rest):
		i, ok := new(big.Int).SetString(t.text, 0)
		if !ok || len(t.text) > 1000 {
			fail(ErrUnsupported, l.at, "number %.40s", t.text)
		}
		t.value = whole64(i)
	case l.match(&t, text, l.text, rest):
		t.value = l.unescape(t.text[1 : len(t.text)-1])
	case l.match(&t, name, l.name, rest):
	case first == '"' || first == '\'':
		fail(ErrSyntax, l.at, "the string has no end")
	case first >= utf8.RuneSelf:
		fail(ErrUnsupported, l.at, "character %q in a tag", first)
	case !l.match(&t, operator, l.operator, rest):
		fail(ErrSyntax, l.at, "unexpected %q", first)
	default:
		l.brackets(t.text[0])
	}
	l.tokens = append(l.tokens, t)
	l.at += len(t.text)
}

func (l *lexer) match(t *token, k kind, pattern *regexp.Regexp, rest string) bool {
	t.kind, t.text = k, pattern.FindString(rest)
	return t.text != ""
}

func (l *lexer) brackets(c byte) {
	switch c {
	case '(', '[', '{':
		l.open = append(l.open, c)
	case ')', ']', '}':
		pairs := map[byte]byte{')': '(', ']': '[', '}': '{'}
		if len(l.open) == 0 || l.open[len(l.open)-1] != pairs[c] {
			fail(ErrSyntax, l.at, "%q closes nothing", c)
		}
		l.open = l.open[:len(l.open)-1]
	}
}

// unescape returns the string that a string literal means in Python. An unknown escape is
// left as it is.
func (l *lexer) unescape(s string) string {
	return l.escape.ReplaceAllStringFunc(s, func(e string) string {
		c, digits, base := e[1], e[2:], 16
		switch i := strings.IndexByte(`\'"abfnrtv`, c); {
		case i >= 0:
			return "\\'\"\a\b\f\n\r\t\v"[i : i+1]
		case c == '\n':
			return ""
		case c == 'N':
			fail(ErrUnsupported, l.at, `escape \N`)
		case '0' <= c && c <= '7':
			digits, base = e[1:], 8
		case !strings.ContainsRune("xuU", rune(c)):
			return e
		case digits == "":
			fail(ErrSyntax, l.at, "bad escape %s", e)
		}
		r, _ := strconv.ParseUint(digits, base, 32) // can't fail: the pattern matches only digits
		if !utf8.ValidRune(rune(r)) {
			fail(ErrUnsupported, l.at, "escape %s, which is not a character", e)
		}
		return string(rune(r))
	})
}

// kind is the kind of a token.
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

// token is a piece of the source. pos is the offset of its first byte in the normalized
// source, whose line ends are "\n".
type token struct {
	kind  kind
	text  string
	value any
	pos   int
}

// is reports whether the token is this word or operator.
func (t token) is(k kind, text string) bool { return t.kind == k && t.text == text }

// String returns the token's name for an error.
func (t token) String() string {
	switch t.kind {
	case end:
		return "the end of the template"
	case data:
		return "text"
	case variableEnd, blockEnd:
		return t.text
	}
	return fmt.Sprintf("%q", t.text)
}
