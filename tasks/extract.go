package tasks

import (
	"math/big"
	"strconv"
	"strings"

	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/tasks/numbers"
)

// answerIn returns the part of a result that a grader compares. ok is false if the result
// does not have the place that grader.extract describes.
func answerIn(e spec.Extraction, result string) (answer string, ok bool) {
	switch e.Kind {
	case spec.ExtractBoxed:
		answer, ok = numbers.Boxed(result)
	case spec.ExtractAfter:
		answer, ok = after(result, e.Text)
		answer, _, _ = strings.Cut(strings.TrimSpace(answer), "\n")
	case spec.ExtractRegex:
		answer, ok = lastMatch(e, result)
	default:
		answer, ok = result, true
	}
	return strings.TrimSpace(answer), ok
}

// numberIn returns the number in a result that a grader compares.
func numberIn(e spec.Extraction, result string) (*big.Rat, bool) {
	switch e.Kind {
	case spec.ExtractLastNumber:
		return numbers.Last(result)
	case spec.ExtractAfter:
		rest, ok := after(result, e.Text)
		if !ok {
			return nil, false
		}
		return numbers.First(rest)
	case spec.ExtractBoxed, spec.ExtractRegex:
		text, ok := answerIn(e, result)
		if !ok {
			return nil, false
		}
		return numbers.Only(text)
	}
	rest, marked := result, false
	for {
		_, behind, found := strings.Cut(rest, answerMark)
		if !found {
			break
		}
		if value, ok := numbers.First(behind); ok {
			return value, true
		}
		rest, marked = behind, true
	}
	if text, ok := numbers.Boxed(result); ok {
		return numbers.Only(text)
	}
	if marked {
		return nil, false
	}
	return numbers.Last(result)
}

// after returns what follows the last occurrence of a text that anything follows.
func after(result, text string) (string, bool) {
	result = strings.TrimSpace(result)
	for {
		at := strings.LastIndex(result, text)
		if at < 0 {
			return "", false
		}
		if rest := result[at+len(text):]; strings.TrimSpace(rest) != "" {
			return rest, true
		}
		result = strings.TrimSpace(result[:at])
	}
}

// lastMatch returns the first group of the last match, or the complete match of a pattern
// without groups.
func lastMatch(e spec.Extraction, result string) (string, bool) {
	all := e.Pattern.FindAllStringSubmatch(result, -1)
	if len(all) == 0 {
		return "", false
	}
	last := all[len(all)-1]
	return last[min(1, len(last)-1)], true
}

// closeTo reports whether two numbers differ by at most a tolerance. The tolerance is the
// decimal number that was written, not the binary one nearest to it.
func closeTo(a, b *big.Rat, tolerance float64) bool {
	most, ok := new(big.Rat).SetString(strconv.FormatFloat(tolerance, 'g', -1, 64))
	if !ok {
		return false // infinite, which specs can't have
	}
	difference := new(big.Rat).Sub(a, b)
	return difference.Abs(difference).Cmp(most) <= 0
}
