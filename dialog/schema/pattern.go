package schema

import (
	"errors"
	"fmt"
	"regexp/syntax"
	"slices"
	"unicode"
	"unicode/utf8"
)

// parsePattern parses a regular expression that may match anywhere in a string. It
// returns an expression that matches the whole string, without anchors.
func parsePattern(expression string) (*syntax.Regexp, error) {
	re, err := syntax.Parse(expression, syntax.Perl)
	if err != nil {
		return nil, fmt.Errorf("pattern %q: %w", expression, err)
	}
	re = end(end(re, syntax.OpBeginText), syntax.OpEndText)
	if anchor := anchorIn(re); anchor != nil {
		return nil, fmt.Errorf("pattern %q: %v is possible only at an end of the pattern or of its alternatives", expression, anchor)
	}
	return re, nil
}

// mustPattern parses an expression of the program itself, which matches whole strings.
func mustPattern(expression string) *syntax.Regexp {
	re, err := syntax.Parse(expression, syntax.Perl)
	if err != nil {
		panic(err)
	}
	return re
}

// end removes an anchor from its end of re. If there is no such anchor, it adds any text
// at that end.
func end(re *syntax.Regexp, anchor syntax.Op) *syntax.Regexp {
	switch re.Op {
	case anchor:
		return &syntax.Regexp{Op: syntax.OpEmptyMatch}
	case syntax.OpCapture:
		return end(re.Sub[0], anchor)
	case syntax.OpAlternate:
		all := &syntax.Regexp{Op: syntax.OpAlternate}
		for _, sub := range re.Sub {
			all.Sub = append(all.Sub, end(sub, anchor))
		}
		return all
	case syntax.OpConcat:
		all := &syntax.Regexp{Op: syntax.OpConcat, Sub: slices.Clone(re.Sub)}
		at := 0
		if anchor == syntax.OpEndText {
			at = len(all.Sub) - 1
		}
		all.Sub[at] = end(all.Sub[at], anchor)
		return all
	}
	anything := &syntax.Regexp{Op: syntax.OpStar, Sub: []*syntax.Regexp{{Op: syntax.OpAnyChar}}}
	if anchor == syntax.OpBeginText {
		return &syntax.Regexp{Op: syntax.OpConcat, Sub: []*syntax.Regexp{anything, re}}
	}
	return &syntax.Regexp{Op: syntax.OpConcat, Sub: []*syntax.Regexp{re, anything}}
}

func anchorIn(re *syntax.Regexp) *syntax.Regexp {
	switch re.Op {
	case syntax.OpBeginText, syntax.OpEndText, syntax.OpBeginLine, syntax.OpEndLine, syntax.OpWordBoundary, syntax.OpNoWordBoundary:
		return re
	}
	for _, sub := range re.Sub {
		if anchor := anchorIn(sub); anchor != nil {
			return anchor
		}
	}
	return nil
}

// fitLength returns re with the limits of the string's length worked into it. This is
// possible if at most one part of re has no fixed length, and that part is the repeat of
// a single character.
func fitLength(re *syntax.Regexp, want count) (*syntax.Regexp, error) {
	has := lengthOf(re)
	if has.least >= want.least && (want.most == unbounded || has.most != unbounded && has.most <= want.most) {
		return re, nil
	}
	parts := []*syntax.Regexp{re}
	if re.Op == syntax.OpConcat {
		parts = slices.Clone(re.Sub)
	}
	loose, fixed := -1, 0
	for i, part := range parts {
		switch l := lengthOf(part); {
		case l.least == l.most:
			fixed += l.least
		case loose < 0 && len(part.Sub) == 1 && lengthOf(part.Sub[0]) == count{1, 1}:
			loose = i
		default:
			return nil, errors.New("pattern together with a length that it neither implies nor can be combined with")
		}
	}
	none := &syntax.Regexp{Op: syntax.OpNoMatch}
	if loose < 0 {
		return none, nil // all texts have the same length, which is not allowed
	}
	bounds := lengthOf(parts[loose])
	bounds.atLeast(want.least - fixed)
	if want.most != unbounded {
		if want.most < fixed {
			return none, nil
		}
		bounds.atMost(want.most - fixed)
	}
	if bounds.most != unbounded && bounds.least > bounds.most {
		return none, nil
	}
	parts[loose] = &syntax.Regexp{Op: syntax.OpRepeat, Min: bounds.least, Max: bounds.most, Sub: parts[loose].Sub}
	return &syntax.Regexp{Op: syntax.OpConcat, Sub: parts}, nil
}

// lengthOf returns how many characters the texts of re have.
func lengthOf(re *syntax.Regexp) count {
	switch re.Op {
	case syntax.OpLiteral:
		return count{len(re.Rune), len(re.Rune)}
	case syntax.OpCharClass, syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		return count{1, 1}
	case syntax.OpCapture:
		return lengthOf(re.Sub[0])
	case syntax.OpStar, syntax.OpPlus, syntax.OpQuest, syntax.OpRepeat:
		least, most := repeats(re)
		one := lengthOf(re.Sub[0])
		all := count{one.least * least, bounded(one.most, most, one.most*most)}
		if one.most == 0 || most == 0 {
			all.most = 0
		}
		return all
	case syntax.OpAlternate:
		all := lengthOf(re.Sub[0])
		for _, sub := range re.Sub[1:] {
			one := lengthOf(sub)
			all = count{min(all.least, one.least), bounded(all.most, one.most, max(all.most, one.most))}
		}
		return all
	case syntax.OpConcat:
		all := count{}
		for _, sub := range re.Sub {
			one := lengthOf(sub)
			all = count{all.least + one.least, bounded(all.most, one.most, all.most+one.most)}
		}
		return all
	}
	return count{}
}

// bounded returns both, or unbounded if one or other is unbounded.
func bounded(one, other, both int) int {
	if one == unbounded || other == unbounded {
		return unbounded
	}
	return both
}

func repeats(re *syntax.Regexp) (least, most int) {
	switch re.Op {
	case syntax.OpStar:
		return 0, unbounded
	case syntax.OpPlus:
		return 1, unbounded
	case syntax.OpQuest:
		return 0, 1
	}
	return re.Min, re.Max
}

// pattern returns the expression of the texts of re.
func (a *automaton) pattern(re *syntax.Regexp, how spelling) *node {
	switch re.Op {
	case syntax.OpEmptyMatch:
		return a.empty()
	case syntax.OpLiteral:
		var parts []*node
		for _, r := range re.Rune {
			parts = append(parts, a.runes(spellings(r, re.Flags), how))
		}
		return a.sequence(parts...)
	case syntax.OpCharClass:
		return a.runes(re.Rune, how)
	case syntax.OpAnyChar:
		return a.anyRune(how)
	case syntax.OpAnyCharNotNL: // as in JavaScript, where the dot matches no kind of line end
		return a.runes([]rune{0, '\n' - 1, '\n' + 1, '\r' - 1, '\r' + 1, '\u2027', '\u202a', utf8.MaxRune}, how)
	case syntax.OpCapture:
		return a.pattern(re.Sub[0], how)
	case syntax.OpStar, syntax.OpPlus, syntax.OpQuest, syntax.OpRepeat:
		least, most := repeats(re)
		return a.repeat(a.pattern(re.Sub[0], how), least, most)
	case syntax.OpConcat, syntax.OpAlternate:
		var parts []*node
		for _, sub := range re.Sub {
			parts = append(parts, a.pattern(sub, how))
		}
		if re.Op == syntax.OpAlternate {
			return a.choice(parts...)
		}
		return a.sequence(parts...)
	}
	return nil // OpNoMatch
}

// spellings returns the ranges of a literal's character: in upper and lower case if the
// flags ask for that.
func spellings(r rune, flags syntax.Flags) []rune {
	ranges := []rune{r, r}
	if flags&syntax.FoldCase != 0 {
		for other := unicode.SimpleFold(r); other != r; other = unicode.SimpleFold(other) {
			ranges = append(ranges, other, other)
		}
	}
	return ranges
}

// The formats that are held. Days fit their months.
const (
	datePattern = `(?:[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)` +
		`|02-(?:0[1-9]|1[0-9]|2[0-8]))` +
		`|(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)-02-29)`
	timePattern = `(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,9})?(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])`
	hexPattern  = `[0-9a-fA-F]`
	namePattern = `[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,30}[a-zA-Z0-9])?`
	bytePattern = `(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])`
)

// formatPattern returns an expression for strings of a format. It leaves out the rare
// spellings of some formats.
func formatPattern(format string) (re *syntax.Regexp, known bool) {
	var expression string
	switch format {
	case "date":
		expression = datePattern
	case "time":
		expression = timePattern
	case "date-time":
		expression = datePattern + "T" + timePattern
	case "uuid":
		expression = hexPattern + "{8}(?:-" + hexPattern + "{4}){3}-" + hexPattern + "{12}"
	case "email":
		expression = `[a-zA-Z0-9_+-]{1,32}(?:\.[a-zA-Z0-9_+-]{1,15}){0,2}@` + namePattern + `(?:\.` + namePattern + `){1,3}`
	case "hostname":
		expression = namePattern + `(?:\.` + namePattern + `){0,3}`
	case "ipv4":
		expression = bytePattern + `(?:\.` + bytePattern + `){3}`
	default:
		return nil, false
	}
	re, err := syntax.Parse(expression, syntax.Perl)
	return re, err == nil
}
