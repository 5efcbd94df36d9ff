package tasks

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/fulgurite/fulgurite/tasks/numbers"
)

// answerMark precedes the number at the end of a solution in GSM8K's layout.
const answerMark = "####"

// parseGSM8K reads a row in the layout of GSM8K
// (https://github.com/openai/grade-school-math): a question, and an answer that is a
// solution with "#### <number>" at its end. A task's id is the row's number, its
// answer the number without separators of thousands.
func parseGSM8K(fields row, number int) (Task, error) {
	question, err := fields.text("question")
	if err != nil {
		return Task{}, err
	}
	solution, err := fields.text("answer")
	if err != nil {
		return Task{}, err
	}
	last := strings.LastIndex(solution, answerMark)
	if last < 0 {
		return Task{}, errors.New(`the answer has no "#### <number>" at its end`)
	}
	answer := strings.ReplaceAll(strings.TrimSpace(solution[last+len(answerMark):]), ",", "")
	if _, ok := numbers.Read(answer); !ok {
		return Task{}, fmt.Errorf("the answer ends in %q, which is not a number", answer)
	}
	return Task{ID: strconv.Itoa(number), Input: question, Answer: answer}, nil
}
