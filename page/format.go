package page

import (
	"fmt"
	"html/template"
	"math"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/trace"
)

// dash stands where there is nothing to say.
const dash = "–"

// functions are those that templates call.
func functions() template.FuncMap {
	return template.FuncMap{
		"clean": shown, "line": firstLine, "count": count, "fixed": fixed, "optional": optional, "signed": signed,
		"moment": moment, "exact": exact, "took": took, "status": statusText, "outcome": outcomeText, "digest": shortDigest, "whole": whole,
	}
}

// shown is a text of somebody else's in the middle of ours.
func shown(text string) string {
	c := clip(text, mostOfResult)
	if c.More > 0 {
		c.Text += fmt.Sprintf(" … %s more bytes", count(c.More))
	}
	return c.Text
}

// count writes a number with a thin space between thousands.
func count(n int) string {
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

// fixed writes a reward or another small number with three decimals, and very large or
// small ones in full.
func fixed(v float64) string {
	switch size := math.Abs(v); {
	case math.IsNaN(v) || math.IsInf(v, 0):
		return "not finite"
	case size >= 1e6 || size > 0 && size < 0.0005:
		return minus(strconv.FormatFloat(v, 'g', 3, 64))
	}
	return minus(strconv.FormatFloat(v, 'f', 3, 64))
}

func minus(text string) string {
	if strings.Trim(text, "-0.") == "" {
		text = strings.TrimPrefix(text, "-")
	}
	return strings.Replace(text, "-", "−", 1)
}

func optional(v *float64) string {
	if v == nil {
		return dash
	}
	return fixed(*v)
}

// whole is a number that counts something.
func whole(v *float64) string {
	if v == nil || math.Abs(*v) > 1e15 {
		return dash
	}
	return count(int(math.Round(*v)))
}

// signed is optional with a plus before what is not negative.
func signed(v *float64) string {
	if v == nil {
		return dash
	}
	if *v > 0 {
		return "+" + fixed(*v)
	}
	return fixed(*v)
}

// moment is a time for people, exact for programs.
func moment(t time.Time) string {
	if t.IsZero() {
		return dash
	}
	return t.Local().Format("2006-01-02 15:04:05")
}

func exact(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// took is a duration in its two largest units.
func took(d time.Duration) string {
	switch {
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

func statusText(s record.Status) string { return strings.ReplaceAll(string(s), "_", " ") }

func outcomeText(o trace.Outcome) string {
	if o == trace.Running { // which is empty
		return "running"
	}
	return strings.ReplaceAll(string(o), "_", " ")
}

// shortDigest is as much of a digest as tells versions apart.
func shortDigest(digest string) string {
	_, hex, ok := strings.Cut(digest, ":")
	if !ok {
		hex = digest
	}
	return hex[:min(len(hex), 12)]
}

// runPath is the path of a run, and stepPath that of a step of a kind, which with task,
// sample and attempt behind it is the address of an attempt.
func runPath(run string) string { return "/runs/" + url.PathEscape(run) }

func stepPath(run string, kind trace.Kind, step int) string {
	return fmt.Sprintf("%s/%s-%d", runPath(run), kind, step)
}

func groupPath(r trace.RolloutID) string {
	return fmt.Sprintf("%s/%d", stepPath(r.Run, r.Kind, r.Step), r.Task)
}

func attemptPath(a trace.Address) string {
	return fmt.Sprintf("%s/%d/%d", groupPath(a.RolloutID), a.Sample, a.Attempt)
}
