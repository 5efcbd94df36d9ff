package spec

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Ways in which grader.extract finds the answer in a result.
const (
	ExtractLastNumber = "last_number"
	ExtractBoxed      = "boxed"
	ExtractAfter      = "after"
	ExtractRegex      = "regex"
)

// Extraction is a grader.extract that was parsed. The zero value extracts nothing.
type Extraction struct {
	Kind    string         // one of the constants above, or empty
	Text    string         // with ExtractAfter
	Pattern *regexp.Regexp // with ExtractRegex
}

// ParseExtract parses a grader.extract: "last_number", "boxed", "after TEXT" or "regex
// PATTERN". TEXT and PATTERN may be in double quotes. PATTERN has Go's syntax of regular
// expressions (RE2).
func ParseExtract(text string) (Extraction, error) {
	kind, rest, _ := strings.Cut(strings.TrimSpace(text), " ")
	rest = strings.TrimSpace(rest)
	if len(rest) > 1 && rest[0] == '"' && rest[len(rest)-1] == '"' {
		inner := rest[1 : len(rest)-1]
		if unquoted, err := strconv.Unquote(rest); err == nil && kind == ExtractAfter {
			inner = unquoted
		}
		rest = inner
	}
	e := Extraction{Kind: kind}
	switch {
	case kind == "":
		return Extraction{}, nil
	case !slices.Contains([]string{ExtractLastNumber, ExtractBoxed, ExtractAfter, ExtractRegex}, kind):
		return e, fmt.Errorf("%q finds nothing", text)
	case kind == ExtractLastNumber || kind == ExtractBoxed:
		if rest != "" {
			return e, fmt.Errorf("something follows %q", kind)
		}
	case rest == "":
		return e, fmt.Errorf("%q needs a text behind it, in quotes if it has a #, where YAML begins a comment", kind)
	case kind == ExtractAfter:
		e.Text = rest
	default:
		pattern, err := regexp.Compile(rest)
		if err != nil {
			return e, fmt.Errorf("not a regular expression: %w", err)
		}
		e.Pattern = pattern
	}
	return e, nil
}

// checkExtract checks how the answer is found in a result.
func (g Grader) checkExtract(f *Faults) {
	if g.Extract == "" {
		return
	}
	if !slices.Contains([]string{GraderNumeric, GraderExact, GraderQA}, g.Type) {
		f.unused("grader.extract", true, `only grader.type "numeric", "exact" and "qa" look for an answer in the result`)
		return
	}
	const remedy = `give boxed, after "TEXT" or regex "PATTERN", or last_number with grader.type "numeric"`
	switch e, err := ParseExtract(g.Extract); {
	case err != nil:
		f.add("grader.extract", remedy, "%s", err.Error())
	case e.Kind == ExtractLastNumber && g.Type != GraderNumeric:
		f.add("grader.extract", remedy, "last_number is only for grader.type \"numeric\"")
	}
}
