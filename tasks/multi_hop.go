package tasks

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// metadataHops is the key in a task's metadata for the ids of the single questions of
// which MuSiQue composed its question.
const metadataHops = "single_hops"

// parseMultiHop reads a question that needs several paragraphs to answer, in the layout
// of MuSiQue (https://github.com/StonyBrookNLP/musique), of HotpotQA
// (https://hotpotqa.github.io) or of 2WikiMultihopQA
// (https://github.com/Alab-NII/2wikimultihop). A row has id (_id in the latter two),
// question, answer and, in MuSiQue, answer_aliases. The paragraphs are not part of the
// task: they are a corpus for a tool. A task's answer is the text or, if it has aliases,
// a JSON list of all of them. A question that MuSiQue marks as unanswerable is an error.
func parseMultiHop(fields row, _ int) (Task, error) {
	key := "id"
	if !fields.has(key) {
		key = "_id"
	}
	if !fields.has(key) {
		return Task{}, errors.New("no id")
	}
	name, err := id(fields[key])
	if err != nil {
		return Task{}, err
	}
	fault := func(err error) (Task, error) { return Task{}, fmt.Errorf("question %s: %w", name, err) }
	question, err := fields.text("question")
	if err != nil {
		return fault(err)
	}
	var answerable *bool
	if fields.has("answerable") && json.Unmarshal(fields["answerable"], &answerable) == nil && !*answerable {
		return fault(errors.New("it can't be answered: leave such rows out, as MuSiQue-Ans does"))
	}
	answers, err := answersOf(fields)
	if err != nil {
		return fault(err)
	}
	t := Task{ID: name, Input: question, Answer: joinAnswers(answers)}
	hops, err := singleHops(fields)
	if err != nil {
		return fault(err)
	}
	if len(hops) > 0 {
		t.Metadata = map[string]any{metadataHops: hops}
	}
	return t, nil
}

func answersOf(fields row) ([]string, error) {
	answer, err := fields.text("answer")
	if err != nil {
		return nil, err
	}
	answers := []string{answer}
	if fields.has("answer_aliases") {
		var aliases []string
		if json.Unmarshal(fields["answer_aliases"], &aliases) != nil {
			return nil, errors.New("answer_aliases is not a list of texts")
		}
		answers = append(answers, aliases...)
	}
	return answers, nil
}

// joinAnswers returns the answer of a task that has several. splitAnswers is its inverse.
func joinAnswers(answers []string) string {
	if len(answers) == 1 && !strings.HasPrefix(strings.TrimSpace(answers[0]), "[") {
		return answers[0]
	}
	text, err := json.Marshal(answers)
	if err != nil {
		panic(err) // strings always encode
	}
	return string(text)
}

// splitAnswers returns the answers that a task accepts: those of a JSON list of texts, or
// the one text. A list of anything else, or of nothing, is one text, too.
func splitAnswers(answer string) []string {
	var texts []*string
	if !strings.HasPrefix(strings.TrimSpace(answer), "[") || json.Unmarshal([]byte(answer), &texts) != nil || len(texts) == 0 || slices.Contains(texts, nil) {
		return []string{answer}
	}
	answers := make([]string, len(texts))
	for i, text := range texts {
		answers[i] = *text
	}
	return answers
}

// numericAnswers works like splitAnswers for lists of numbers and texts.
func numericAnswers(answer string) []string {
	var list []json.RawMessage
	if !strings.HasPrefix(strings.TrimSpace(answer), "[") || json.Unmarshal([]byte(answer), &list) != nil || len(list) == 0 {
		return []string{answer}
	}
	answers := make([]string, len(list))
	for i, one := range list {
		answers[i] = textOf(one)
	}
	return answers
}

// emptyList reports whether an answer is a JSON list of nothing.
func emptyList(answer string) bool {
	var list []json.RawMessage
	return json.Unmarshal([]byte(answer), &list) == nil && list != nil && len(list) == 0
}

// singleHops returns the ids of question_decomposition in the form that JSON decodes to,
// as in snapshots: a list of any values.
func singleHops(fields row) ([]any, error) {
	if !fields.has("question_decomposition") {
		return nil, nil
	}
	var parts []struct {
		ID json.RawMessage `json:"id"`
	}
	if json.Unmarshal(fields["question_decomposition"], &parts) != nil {
		return nil, errors.New("question_decomposition is not a list of questions")
	}
	var hops []any
	for _, part := range parts {
		if len(part.ID) > 0 {
			hops = append(hops, textOf(part.ID))
		}
	}
	return hops, nil
}
