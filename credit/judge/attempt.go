package judge

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/fulgurite/fulgurite/trace"
)

// Attempt is the part of an attempt that a judge reads. Its JSON is part of the keys of
// judgments: a change of it needs another promptVersion.
type Attempt struct {
	// Address is for errors; the judge does not see it.
	Address trace.Address `json:"-"`
	Task    string        `json:"task"`
	// Expected is the right answer; empty if the task has none.
	Expected string `json:"expected_answer,omitempty"`
	Calls    []Call `json:"calls"`
	Result   string `json:"result"`
	// Failure says in one word how the agent failed.
	Failure string  `json:"failure,omitempty"`
	Reward  float64 `json:"reward"`
}

// Call is one call of an Attempt.
type Call struct {
	Number int    `json:"call"` // from 1
	Agent  string `json:"agent,omitempty"`
	// Asked holds the new messages: results of tools, what a user says. If the call does
	// not continue an earlier one, it holds the whole dialog.
	Asked    []Message `json:"asked"`
	Answered Message   `json:"answered"`
	// Problem says why an answer that looks like the call of a tool is not one.
	Problem string `json:"problem,omitempty"`
}

// Message is one message of a dialog.
type Message struct {
	Role    string `json:"role,omitempty"`
	Thought string `json:"thought,omitempty"`
	Text    string `json:"text"`
	Tools   []Tool `json:"tool_calls,omitempty"`
}

// Tool is a tool that an answer calls.
type Tool struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

// content returns the attempt in the form that the judge reads.
func (a Attempt) content() (string, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", " ")
	if err := e.Encode(a); err != nil {
		return "", fmt.Errorf("encode attempt %s: %w", a.Address, err)
	}
	return b.String(), nil
}

// Of a text that is longer than both together, a judge reads this many bytes at its
// beginning and at its end.
const (
	headBytes = 5000
	tailBytes = 3000
)

// truncate leaves the middle of a long text out and says how much is missing.
func truncate(text string) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) <= headBytes+tailBytes {
		return text
	}
	head, tail := headBytes, len(text)-tailBytes
	for !utf8.RuneStart(text[head]) {
		head--
	}
	for !utf8.RuneStart(text[tail]) {
		tail++
	}
	return fmt.Sprintf("%s\n[%d bytes are left out here]\n%s", text[:head], tail-head, text[tail:])
}
