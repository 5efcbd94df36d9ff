package tasks

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/fulgurite/fulgurite/spec"
)

// ErrAnswer is wrapped when a grader can't use a task's answer.
var ErrAnswer = errors.New("unusable answer")

// ErrGrader is wrapped when Grade does not know a grader.
var ErrGrader = errors.New("unknown grader")

// Grade compares the result that an agent returned with the task's answer. The reward is
// 1 if the result is right, else 0; qa also gives rewards between them. White space
// around the result and the answer doesn't count.
//
//   - exact: the result equals the answer, byte for byte.
//   - numeric: both are decimal numbers, such as -12, 0.5, 1e3 or 1,080, without
//     units, and differ by at most the tolerance. They are compared as float64. If the
//     result contains "####", its number is what follows that, as in GSM8K. A result
//     that is not a number is wrong.
//   - contains: the result contains the answer; upper and lower case differ.
//   - qa: the F1 of the words of result and answer or, with the metric "exact", 1 if
//     all words agree. Case, punctuation and articles don't count. If the answer is a
//     JSON list of texts, the best score over them counts.
//
// For the graders "command", "agent", "harbor" and "sql" the error is ErrGrader: other
// code runs them.
func Grade(g spec.Grader, t Task, result string) (float64, error) {
	result, answer := strings.TrimSpace(result), strings.TrimSpace(t.Answer)
	if err := checkAnswer(g, t); err != nil {
		return 0, fmt.Errorf("task %s: %w", t.ID, err)
	}
	var right bool
	switch g.Type {
	case spec.GraderExact:
		right = result == answer
	case spec.GraderContains:
		right = strings.Contains(result, answer)
	case spec.GraderNumeric:
		want, _ := decimal(answer)
		got, ok := finalNumber(result)
		right = ok && math.Abs(got-want) <= g.Tolerance
	case spec.GraderQA:
		return gradeAnswers(g.Metric, answer, result), nil
	default:
		return 0, fmt.Errorf("%w %q for task %s: want %s, %s, %s or %s", ErrGrader, g.Type, t.ID, spec.GraderExact, spec.GraderNumeric, spec.GraderContains, spec.GraderQA)
	}
	if right {
		return 1, nil
	}
	return 0, nil
}

// CheckAnswers returns a *ListError with the tasks whose answer is missing or that the
// grader can't use.
func CheckAnswers(g spec.Grader, list []Task) error {
	if g.Type == spec.GraderSQL && !slices.ContainsFunc(list, func(t Task) bool { return t.Metadata[MetadataDatabase] != nil }) {
		return fmt.Errorf("%w: grader %q needs tasks about a database, such as those of spider:FILE; none of these has metadata.%s", ErrAnswer, g.Type, MetadataDatabase)
	}
	faults := &ListError{}
	for _, t := range list {
		if err := checkAnswer(g, t); err != nil {
			faults.Add(t.ID, err)
		}
	}
	return faults.OrNil()
}

// checkAnswer does not name the task in its error; its caller does.
func checkAnswer(g spec.Grader, t Task) error {
	answer := strings.TrimSpace(t.Answer)
	switch g.Type {
	case spec.GraderExact, spec.GraderContains, spec.GraderNumeric, spec.GraderQA, spec.GraderSQL:
		if answer == "" {
			return fmt.Errorf("%w: grader %q needs one, and there is none", ErrAnswer, g.Type)
		}
	}
	if g.Type == spec.GraderNumeric {
		if _, ok := decimal(answer); !ok {
			return fmt.Errorf("%w: grader %q needs a number, not %q", ErrAnswer, g.Type, answer)
		}
	}
	if g.Type == spec.GraderQA && slices.ContainsFunc(splitAnswers(answer), func(one string) bool { return strings.TrimSpace(one) == "" }) {
		return fmt.Errorf("%w: one of its texts is empty", ErrAnswer)
	}
	if g.Type == spec.GraderHarbor {
		if _, ok := t.Metadata[MetadataHarbor]; !ok {
			return fmt.Errorf("%w: grader %q needs a directory in Harbor's format", ErrAnswer, g.Type)
		}
	}
	if g.Type == spec.GraderSQL {
		if _, err := t.database(); err != nil {
			return err
		}
		if _, err := t.Metric(g); err != nil {
			return err
		}
	}
	return nil
}

// finalNumber returns the number that a result consists of. If the result has a "####",
// it returns the number after the first one, whatever follows that number.
func finalNumber(result string) (float64, bool) {
	if _, after, marked := strings.Cut(result, answerMark); marked {
		after = strings.TrimPrefix(strings.TrimSpace(after), "$")
		result = after[:len(after)-len(strings.TrimLeft(after, "0123456789+-.,eE"))]
		result = strings.TrimRight(result, ".,eE+-")
	}
	return decimal(result)
}

// decimal returns the number in text, in which commas may separate thousands. It refuses
// hexadecimal numbers, underscores, infinities and NaN, which strconv accepts.
func decimal(text string) (float64, bool) {
	text, ok := withoutSeparators(text)
	if !ok || strings.Trim(text, "0123456789+-.eE") != "" {
		return 0, false
	}
	v, err := strconv.ParseFloat(text, 64)
	return v, err == nil
}

// withoutSeparators removes the commas from a number. It reports whether they stand where
// they separate thousands.
func withoutSeparators(text string) (string, bool) {
	whole, rest := text, ""
	if dot := strings.IndexAny(text, ".eE"); dot >= 0 {
		whole, rest = text[:dot], text[dot:]
	}
	groups := strings.Split(whole, ",")
	for i, group := range groups {
		digits := strings.TrimLeft(group, "+-")
		if len(groups) > 1 && (i > 0 && len(group) != 3 || i == 0 && (len(digits) == 0 || len(digits) > 3)) {
			return text, false
		}
	}
	return strings.Join(groups, "") + rest, true
}
