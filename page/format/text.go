package format

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// The most that is shown of a text, in bytes.
const (
	MaxOfMessage = 8 << 10
	MaxOfResult  = 2 << 10 // of a text that is shown next to others
	MaxOfLine    = 200
	MaxOfSpec    = 64 << 10
)

// Clipped is the shown part of a text that someone else wrote.
type Clipped struct {
	Text string
	More int // bytes that are left out
}

// Clip cuts a text to a number of bytes and makes it clean.
func Clip(text string, most int) Clipped {
	kept := text
	if len(kept) > most {
		kept = kept[:most]
		for i := 0; i < utf8.UTFMax-1 && len(kept) > 0 && !utf8.ValidString(kept[max(0, len(kept)-utf8.UTFMax):]); i++ {
			if r, size := utf8.DecodeLastRuneInString(kept); r != utf8.RuneError || size != 1 {
				break
			}
			kept = kept[:len(kept)-1]
		}
	}
	return Clipped{Clean(kept), len(text) - len(kept)}
}

// Clean replaces everything that a browser would obey, hide or reverse by a visible form
// in Go's notation: escape sequences, other control characters, marks of text direction,
// and bytes that are not UTF-8. Line feeds and tabs stay.
func Clean(text string) string {
	plain := true
	for i := 0; i < len(text) && plain; i++ {
		plain = text[i] >= ' ' && text[i] < utf8.RuneSelf-1 || text[i] == '\n' || text[i] == '\t'
	}
	if plain {
		return text
	}
	var b strings.Builder
	for len(text) > 0 {
		r, size := utf8.DecodeRuneInString(text)
		switch {
		case r == utf8.RuneError && size == 1:
			b.WriteString(`\x` + strconv.FormatUint(uint64(text[0])|0x100, 16)[1:])
		case r == '\n' || r == '\t' || r == ' ' || unicode.IsPrint(r):
			b.WriteRune(r)
		case r == '\r' && strings.HasPrefix(text, "\r\n"):
		default:
			b.WriteString(strings.Trim(strconv.QuoteRuneToASCII(r), "'"))
		}
		text = text[size:]
	}
	return b.String()
}

// FirstLine returns the beginning of a text's first line, cut to fit into a table.
func FirstLine(text string) string {
	line, rest, _ := strings.Cut(strings.TrimSpace(text), "\n")
	c := Clip(line, MaxOfLine)
	if c.More > 0 || rest != "" {
		c.Text += " …"
	}
	return c.Text
}

// Words returns the first words of a text's first line, with at most the given number of
// letters.
func Words(text string, most int) string {
	line := FirstLine(text)
	letters := []rune(line)
	if len(letters) <= most {
		return line
	}
	cut := string(letters[:most-1])
	if i := strings.LastIndexByte(cut, ' '); i > most/2 {
		cut = cut[:i]
	}
	return cut + "…"
}

// Visible formats a text as Clean does and cuts it to MaxOfLine bytes. It shows an empty
// text as ∅ and marks line feeds with ↵.
func Visible(text string) string {
	if text == "" {
		return "∅"
	}
	return strings.ReplaceAll(Clip(text, MaxOfLine).Text, "\n", "↵\n")
}
