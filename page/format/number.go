package format

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Dash stands where there is nothing to say.
const Dash = "–"

// Shown is a text of somebody else's in the middle of ours.
func Shown(text string) string {
	c := Clip(text, MostOfResult)
	if c.More > 0 {
		c.Text += fmt.Sprintf(" … %s more bytes", Count(c.More))
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

// Fixed writes a reward or another small number with three decimals, and very large or
// small ones in full.
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

// Optional is Fixed, and a dash for what is not on record.
func Optional(v *float64) string {
	if v == nil {
		return Dash
	}
	return Fixed(*v)
}

// Whole is a number that counts something.
func Whole(v *float64) string {
	if v == nil || math.Abs(*v) > 1e15 {
		return Dash
	}
	return Count(int(math.Round(*v)))
}

// Signed is optional with a plus before what is not negative.
func Signed(v *float64) string {
	if v == nil {
		return Dash
	}
	if *v > 0 {
		return "+" + Fixed(*v)
	}
	return Fixed(*v)
}

// Change is Fixed with a plus before what is above zero.
func Change(v float64) string { return Signed(&v) }

// Chance is a probability, and a bound for what is too small to say more of.
func Chance(p float64) string {
	switch {
	case math.IsNaN(p):
		return "not finite"
	case p < 0.001:
		return "below 0.1 %"
	}
	return strconv.FormatFloat(100*p, 'g', 2, 64) + " %"
}

var (
	hyphened = regexp.MustCompile(`(^|[ (=])-(\d)`)
	tiny     = regexp.MustCompile(`\bp = \d(\.\d+)?e-\d+`)
)

// Reason is a text of ours about numbers, with minus signs for hyphens and nothing in powers
// of ten.
func Reason(text string) string {
	return hyphened.ReplaceAllString(tiny.ReplaceAllString(text, "p < 0.0001"), "$1−$2")
}

// Moment is a time for people.
func Moment(t time.Time) string {
	if t.IsZero() {
		return Dash
	}
	return t.Local().Format("2006-01-02 15:04:05")
}

// Exact is a time for programs.
func Exact(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// Took is a duration in its two largest units.
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

// Digest is as much of a digest as tells versions apart.
func Digest(digest string) string {
	_, hex, ok := strings.Cut(digest, ":")
	if !ok {
		hex = digest
	}
	return hex[:min(len(hex), 12)]
}
