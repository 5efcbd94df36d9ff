// Package format formats what the page shows: numbers and times, and texts that other
// people or programs wrote. It cuts these texts to a length and makes control characters
// visible.
//
// Its functions are pure. Their results still have to be escaped for HTML, which the
// page's templates do.
package format

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/fulgurite/fulgurite/internal/readable"
)

// Dash takes the place of a value that does not exist.
const Dash = "–"

// Shown makes a text that someone else wrote ready to be put into one of our sentences.
func Shown(text string) string {
	c := Clip(text, MaxOfResult)
	if c.More > 0 {
		c.Text += " … " + Counted(c.More, "more byte")
	}
	return c.Text
}

// Count writes a number with a thin space between thousands.
func Count(n int) string {
	digits := strconv.Itoa(n)
	sign := ""
	if n < 0 {
		sign, digits = "−", digits[1:]
	}
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "\u2009" + digits[i:]
	}
	return sign + digits
}

// Counted writes a number with its noun, in the plural unless it is one: "1 step", "2 replies".
func Counted(n int, noun string) string { return Count(n) + " " + readable.Name(n, noun) }

// Fixed formats a reward or another small number with three decimals. Very large and very
// small numbers get three significant digits and an exponent.
func Fixed(v float64) string {
	switch size := math.Abs(v); {
	case math.IsNaN(v) || math.IsInf(v, 0):
		return "not finite"
	case size >= 1e6 || size > 0 && size < 0.0005:
		return Minus(strconv.FormatFloat(v, 'g', 3, 64))
	}
	return Minus(strconv.FormatFloat(v, 'f', 3, 64))
}

// Minus writes the sign of a negative number as a minus rather than a hyphen.
func Minus(text string) string {
	if strings.Trim(text, "-0.") == "" {
		text = strings.TrimPrefix(text, "-")
	}
	return strings.Replace(text, "-", "−", 1)
}

// Optional formats a value as Fixed does, or returns a dash if it is nil.
func Optional(v *float64) string {
	if v == nil {
		return Dash
	}
	return Fixed(*v)
}

// Whole formats a value that counts something.
func Whole(v *float64) string {
	if v == nil || math.Abs(*v) > 1e15 {
		return Dash
	}
	return Count(int(math.Round(*v)))
}

// Signed formats a value as Optional does, with a plus sign if it is above zero.
func Signed(v *float64) string {
	if v == nil {
		return Dash
	}
	if *v > 0 {
		return "+" + Fixed(*v)
	}
	return Fixed(*v)
}

// Change formats a value as Fixed does, with a plus sign if it is above zero.
func Change(v float64) string { return Signed(&v) }

// Chance formats a probability as a percentage. For very small ones it gives a bound.
func Chance(p float64) string {
	switch {
	case math.IsNaN(p):
		return "not finite"
	case p < 0.001:
		return "below 0.1 %"
	case p >= 0.0995: // two digits and no power of ten
		return strconv.FormatFloat(100*p, 'f', 0, 64) + " %"
	}
	return strconv.FormatFloat(100*p, 'g', 2, 64) + " %"
}

var (
	hyphened = regexp.MustCompile(`(^|[ (=])-(\d)`)
	tiny     = regexp.MustCompile(`\bp = \d(\.\d+)?e-\d+`)
)

// Reason formats one of our own texts with numbers: it writes minus signs instead of
// hyphens, and a bound instead of a p-value with a power of ten.
func Reason(text string) string {
	return hyphened.ReplaceAllString(tiny.ReplaceAllString(text, "p < 0.0001"), "$1−$2")
}

// Moment formats a time in the time zone of the page's process, with its offset.
func Moment(t time.Time) string {
	if t.IsZero() {
		return Dash
	}
	return readable.Time(t)
}

// Exact formats a time for programs, as RFC 3339 in UTC.
func Exact(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// Took formats a duration in its two largest units.
func Took(d time.Duration) string {
	switch {
	case d > 0 && d < time.Millisecond:
		return "under 1 ms"
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d < time.Hour:
		return fmt.Sprintf("%d min %d s", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h %d min", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%d d %d h", int(d.Hours())/24, int(d.Hours())%24)
}

// Digest returns as many characters of a digest as are needed to tell versions apart.
func Digest(digest string) string {
	_, hex, ok := strings.Cut(digest, ":")
	if !ok {
		hex = digest
	}
	return hex[:min(len(hex), 12)]
}

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
