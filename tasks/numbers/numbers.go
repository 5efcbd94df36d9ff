// Package numbers reads numbers as people and language models write them: with separators
// of thousands, currency and percent signs, units, as fractions, in Markdown and in LaTeX.
// Values are exact: nothing is rounded.
//
// It evaluates no expressions. A number that is a part of something else, such as the 2 of
// 6*2, of x-2, of 10:02 or of a date, is not read as if it stood alone: what can't be read
// as a whole is no number.
//
// What it reads:
//
//   - 72, -5, +5, .5, 1e3, 9,500, 9 500 and LaTeX's 9{,}500. Minus signs may be those of
//     typography, such as U+2212.
//   - 1/2, 2 1/2, ½, \frac{1}{2}, 2\frac{1}{2}.
//   - 1.2 × 10^6, 1.2 \times 10^{6}, 2 million.
//   - $29.00, -$5, 29 €, USD 29; 50 % and 50\%, whose value is 50; 72 clips, 12 cm^2, 90°.
//   - All of these in **…**, `…`, $…$, \(…\), \[…\], \text{…} and \boxed{…}.
package numbers

import (
	"strings"
	"unicode"
)

// opaque stands for something that is part of a formula but no number, such as \sqrt{2}.
const opaque = '\uFFFC'

// plain returns a text without the marks of LaTeX and Markdown: \frac becomes a slash,
// other commands become blanks, their contents, or opaque. depth is how many braces may
// still be nested.
func plain(text []rune, depth int) []rune {
	p := &plainer{in: text, depth: depth}
	for p.at < len(p.in) {
		p.next()
	}
	return p.out
}

// deepest is how many braces may be nested.
const deepest = 50

type plainer struct {
	in, out   []rune
	at, depth int
}

// peek returns the character at a distance from the current one, or 0.
func (p *plainer) peek(n int) rune { return runeAt(p.in, p.at+n) }

// last returns the last character of the output, or 0.
func (p *plainer) last() rune { return runeAt(p.out, len(p.out)-1) }

func runeAt(text []rune, i int) rune {
	if i < 0 || i >= len(text) {
		return 0
	}
	return text[i]
}

func (p *plainer) emit(text string) { p.out = append(p.out, []rune(text)...) }

// next reads one character, or one command with its arguments.
func (p *plainer) next() {
	c := p.in[p.at]
	switch {
	case c == '\\':
		p.command()
		return
	case c == '{' && p.peek(1) == ',' && p.peek(2) == '}': // LaTeX's separator of thousands
		p.emit(",")
		p.at += 3
		return
	case c == '*' && p.peek(1) == '*':
		if isDigit(p.last()) && isDigit(p.peek(2)) {
			p.emit("^")
		} else {
			p.emit(" ")
		}
		p.at += 2
		return
	case c == '_' && p.peek(1) == '_':
		p.emit(" ")
		p.at += 2
		return
	case c == '^' && p.degrees():
		return
	}
	p.at++
	switch {
	case strings.ContainsRune("\u2010\u2011\u2012\u2013\u2212\uFE63\uFF0D", c):
		p.emit("-")
	case c >= '\uFF10' && c <= '\uFF19': // digits of full width
		p.out = append(p.out, c-'\uFF10'+'0')
	case strings.ContainsRune("\u00A0\u2007\u2009\u202F", c):
		p.emit(" ")
	case fractions[c] != "":
		p.fraction(fractions[c])
	case strings.ContainsRune("√∛π∞∑∏∫", c):
		p.out = append(p.out, opaque)
	case c == '²' || c == '³':
		if isDigit(p.last()) {
			p.out = append(p.out, opaque)
		}
	case c == '`' || c == '°' || c == '\u200B' || c == '\u2060' || c == '\uFEFF':
	case c == '{' || c == '}':
		p.emit(" ")
		if c == '{' && (runeAt(p.in, p.at-2) == '^' || runeAt(p.in, p.at-2) == '_') { // an exponent or an index stays glued
			p.out = p.out[:len(p.out)-1]
		}
	default:
		p.out = append(p.out, c)
	}
}

// fractions are characters that are a fraction.
var fractions = map[rune]string{
	'½': "1/2", '⅓': "1/3", '⅔': "2/3", '¼': "1/4", '¾': "3/4", '⅕': "1/5", '⅖': "2/5", '⅗': "3/5", '⅘': "4/5",
	'⅙': "1/6", '⅚': "5/6", '⅛': "1/8", '⅜': "3/8", '⅝': "5/8", '⅞': "7/8",
}

// fraction writes a fraction, behind a whole number as a mixed number.
func (p *plainer) fraction(text string) {
	end := len(p.out)
	for end > 0 && p.out[end-1] == ' ' {
		end--
	}
	if isDigit(runeAt(p.out, end-1)) {
		p.out = append(p.out[:end], ' ')
	}
	p.emit(text)
}

// degrees skips the sign for degrees: ^\circ or ^{\circ}.
func (p *plainer) degrees() bool {
	for _, sign := range []string{`^\circ`, `^{\circ}`} {
		if hasPrefix(p.in[p.at:], sign) {
			p.at += len(sign)
			return true
		}
	}
	return false
}

func hasPrefix(text []rune, prefix string) bool {
	for i, c := range []rune(prefix) {
		if runeAt(text, i) != c {
			return false
		}
	}
	return true
}

// command reads what begins with a backslash.
func (p *plainer) command() {
	p.at++
	start := p.at
	for unicode.IsLetter(p.peek(0)) {
		p.at++
	}
	name := string(p.in[start:p.at])
	switch name {
	case "":
		p.sign()
	case "frac", "dfrac", "tfrac", "cfrac":
		above, below := p.argument(), p.argument()
		if isPlainNumber(above) && isPlainNumber(below) {
			p.fraction(above + "/" + below)
		} else {
			p.out = append(p.out, opaque)
		}
	case "boxed", "fbox", "text", "textbf", "textit", "textrm", "mathbf", "mathrm", "mathit", "mathsf", "mbox", "bm", "emph", "underline":
		p.emit(" " + p.argument())
		if next := p.peek(0); next != '^' && next != '_' { // an exponent stays glued to its unit
			p.emit(" ")
		}
	case "begin", "end", "hspace", "vspace", "phantom", "color", "tag", "label":
		_ = p.argument()
		p.emit(" ")
	case "left", "right", "displaystyle", "big", "Big", "bigl", "bigr", "Bigl", "Bigr":
	case "times":
		p.emit("×")
	case "cdot":
		p.emit("·")
	case "div":
		p.emit("÷")
	case "pm", "mp":
		p.emit("±")
	case "approx", "equiv", "sim", "cong", "ne", "neq", "Rightarrow", "Longrightarrow", "implies", "iff", "Leftrightarrow", "to",
		"rightarrow", "longrightarrow", "therefore", "quad", "qquad", "newline", "hline", "ldots", "cdots", "dots", "circ", "degree",
		"euro", "pounds", "lt", "gt", "le", "ge", "leq", "geq", "because", "n", "t", "r":
		p.emit(" ")
	default:
		for p.peek(0) == '{' || p.peek(0) == '[' {
			p.argument()
		}
		p.out = append(p.out, opaque)
	}
}

// sign reads a command that is one sign.
func (p *plainer) sign() {
	c := p.peek(0)
	p.at++
	switch c {
	case '!': // no space at all
	case ',', ';', ':', ' ', '\\', '(', ')', '[', ']':
		p.emit(" ")
	case 0:
	default: // \$, \%, \#, \_ and the like
		p.out = append(p.out, c)
	}
}

// argument reads an argument of a command: what is in braces or brackets, or one
// character.
func (p *plainer) argument() string {
	for p.peek(0) == ' ' {
		p.at++
	}
	opening := p.peek(0)
	closing := map[rune]rune{'{': '}', '[': ']'}[opening]
	if closing == 0 {
		if opening == 0 {
			return ""
		}
		p.at++
		return string(opening)
	}
	inner, ok := balanced(p.in[p.at:], opening, closing)
	p.at += len(inner) + 1
	if ok {
		p.at++
	}
	if p.depth == 0 {
		return string(opaque)
	}
	return strings.TrimSpace(string(plain(inner, p.depth-1)))
}

// balanced returns what stands between an opening sign, with which text begins, and its
// closing sign. ok is false if it is never closed.
func balanced(text []rune, opening, closing rune) (inner []rune, ok bool) {
	open := 0
	for i, c := range text {
		switch {
		case i > 0 && text[i-1] == '\\':
		case c == opening:
			open++
		case c == closing:
			if open--; open == 0 {
				return text[1:i], true
			}
		}
	}
	return text[1:], false
}

// isPlainNumber reports whether a text is an optional sign and a number that can stand
// above or below a fraction's line.
func isPlainNumber(text string) bool {
	text = strings.TrimPrefix(strings.ReplaceAll(text, " ", ""), "-")
	_, ok := decimal(text)
	return ok
}

func isDigit(c rune) bool { return c >= '0' && c <= '9' }

// isLetter reports whether a character is a letter of a script that puts blanks between
// words.
func isLetter(c rune) bool {
	return unicode.IsLetter(c) && !unicode.In(c, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul, unicode.Thai, unicode.Lao, unicode.Khmer, unicode.Myanmar)
}

// Boxed returns what stands in the last \boxed{…} or \fbox{…} of a text, or, as in
// \boxed 7, the word behind it. A box that is never closed is none.
func Boxed(text string) (string, bool) {
	for {
		at := max(strings.LastIndex(text, `\boxed`), strings.LastIndex(text, `\fbox`))
		if at < 0 {
			return "", false
		}
		rest := strings.TrimPrefix(strings.TrimPrefix(text[at:], `\boxed`), `\fbox`)
		switch content := strings.TrimLeft(rest, " "); {
		case strings.HasPrefix(content, "{"):
			if inner, ok := balanced([]rune(content), '{', '}'); ok {
				return string(inner), true
			}
		case rest != content: // a word
			if words := strings.FieldsFunc(content, func(c rune) bool { return c == ' ' || c == '$' || c == '\n' }); len(words) > 0 {
				return words[0], true
			}
		}
		text = text[:at]
	}
}
