package tasks

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/fulgurite/fulgurite/spec"
)

// ErrAnswer is wrapped when a grader can't compare with a task's answer.
var ErrAnswer = errors.New("unusable answer")

// ErrGrader is wrapped when Grade does not know a grader.
var ErrGrader = errors.New("unknown grader")

// Grade compares what an agent returned with the task's answer and gives reward
// 1 if it is right, else 0. White space around either doesn't count.
//
//   - exact: the result is the answer, byte for byte.
//   - numeric: both are decimal numbers, such as -12, 0.5 or 1e3, without
//     separators or units, and differ by at most the tolerance. They are compared
//     as float64. A result that is no number is wrong.
//   - contains: the result contains the answer, in the same case.
//
// The graders "command" and "agent" decide elsewhere, and are ErrGrader here.
func Grade(g spec.Grader, t Task, result string) (float64, error) {
	result, answer := strings.TrimSpace(result), strings.TrimSpace(t.Answer)
	if err := checkAnswer(g, t); err != nil {
		return 0, err
	}
	var right bool
	switch g.Type {
	case spec.GraderExact:
		right = result == answer
	case spec.GraderContains:
		right = strings.Contains(result, answer)
	case spec.GraderNumeric:
		want, _ := decimal(answer)
		got, ok := decimal(result)
		right = ok && math.Abs(got-want) <= g.Tolerance
	default:
		return 0, fmt.Errorf("%w %q for task %s: want %s, %s or %s", ErrGrader, g.Type, t.ID, spec.GraderExact, spec.GraderNumeric, spec.GraderContains)
	}
	if right {
		return 1, nil
	}
	return 0, nil
}

// CheckAnswers reports the tasks whose answer is missing or that the grader
// can't use: up to 20 of them, and how many more there are.
func CheckAnswers(g spec.Grader, list []Task) error {
	var faults []error
	more := 0
	for _, t := range list {
		err := checkAnswer(g, t)
		switch {
		case err == nil:
		case len(faults) < shownFaults:
			faults = append(faults, err)
		default:
			more++
		}
	}
	if more > 0 {
		faults = append(faults, fmt.Errorf("and %d more", more))
	}
	return errors.Join(faults...)
}

func checkAnswer(g spec.Grader, t Task) error {
	answer := strings.TrimSpace(t.Answer)
	switch g.Type {
	case spec.GraderExact, spec.GraderContains, spec.GraderNumeric:
		if answer == "" {
			return fmt.Errorf("task %s: %w: grader %q needs one, and there is none", t.ID, ErrAnswer, g.Type)
		}
	}
	if g.Type == spec.GraderNumeric {
		if _, ok := decimal(answer); !ok {
			return fmt.Errorf("task %s: %w: grader %q needs a number, not %q", t.ID, ErrAnswer, g.Type, answer)
		}
	}
	return nil
}

// decimal is the number that text is. Hexadecimal, underscores, infinities and
// NaN, which strconv also reads, are none.
func decimal(text string) (float64, bool) {
	if strings.Trim(text, "0123456789+-.eE") != "" {
		return 0, false
	}
	v, err := strconv.ParseFloat(text, 64)
	return v, err == nil
}
