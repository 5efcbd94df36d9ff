package tasks

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/tasks/numbers"
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
//   - numeric: both are numbers, as package numbers reads them, and differ by at most the
//     tolerance. They are compared exactly. Without grader.extract, the number of a result
//     is the one after the first "####" that a number follows, as in GSM8K, else the one
//     in the last \boxed{…}, else the last one. A result without a number is wrong.
//   - contains: the result contains the answer; upper and lower case differ.
//   - qa: the F1 of the words of result and answer or, with the metric "exact", 1 if
//     all words agree. Case, punctuation and articles don't count. Yes and no are right or
//     wrong as a whole, as in HotpotQA.
//
// If the answer is a JSON list of texts, each of them is right, and the best reward over
// them counts. With exact, numeric and qa, grader.extract says which part of the result is
// compared.
//
// For the graders "command", "agent", "harbor" and "sql" the error is ErrGrader: other
// code runs them.
func Grade(g spec.Grader, t Task, result string) (float64, error) {
	result, answer := strings.TrimSpace(result), strings.TrimSpace(t.Answer)
	if err := checkAnswer(g, t); err != nil {
		return 0, fmt.Errorf("task %s: %w", t.ID, err)
	}
	extraction, err := spec.ParseExtract(g.Extract)
	if err != nil {
		return 0, fmt.Errorf("grader.extract: %w", err)
	}
	if g.Type == spec.GraderNumeric {
		got, ok := numberIn(extraction, result)
		return reward(ok && slices.ContainsFunc(numericAnswers(answer), func(one string) bool {
			want, ok := numbers.Read(one)
			return ok && closeTo(got, want, g.Tolerance)
		})), nil
	}
	result, found := answerIn(extraction, result)
	switch g.Type {
	case spec.GraderExact:
		return reward(found && (result == answer || slices.ContainsFunc(splitAnswers(answer), func(one string) bool { return result == strings.TrimSpace(one) }))), nil
	case spec.GraderContains:
		return reward(slices.ContainsFunc(splitAnswers(answer), func(one string) bool { return strings.Contains(result, strings.TrimSpace(one)) })), nil
	case spec.GraderQA:
		if !found {
			return 0, nil
		}
		return gradeAnswers(g.Metric, answer, result), nil
	}
	return 0, fmt.Errorf("%w %q for task %s: want %s, %s, %s or %s", ErrGrader, g.Type, t.ID, spec.GraderExact, spec.GraderNumeric, spec.GraderContains, spec.GraderQA)
}

func reward(right bool) float64 {
	if right {
		return 1
	}
	return 0
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
	if err := checkAlternatives(g.Type, answer); err != nil {
		return err
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

// checkAlternatives checks the answers of which each is right.
func checkAlternatives(grader, answer string) error {
	switch grader {
	case spec.GraderNumeric:
		for _, one := range numericAnswers(answer) {
			if _, ok := numbers.Read(one); !ok {
				return fmt.Errorf("%w: grader %q needs a number, not %q", ErrAnswer, grader, one)
			}
		}
	case spec.GraderExact, spec.GraderContains, spec.GraderQA:
		if grader == spec.GraderQA && emptyList(answer) {
			return fmt.Errorf("%w: its list has no texts", ErrAnswer)
		}
		if slices.ContainsFunc(splitAnswers(answer), func(one string) bool { return strings.TrimSpace(one) == "" }) {
			return fmt.Errorf("%w: one of its texts is empty", ErrAnswer)
		}
	}
	return nil
}
