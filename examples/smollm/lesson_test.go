package smollm_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/dialog/jinja"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/tasks/arithmetic"
)

// The spec may only lack files that the lesson downloads or writes.
func TestTheSpecIsValid(t *testing.T) {
	t.Parallel()
	_, err := spec.Load("spec.yaml")
	var faults *spec.Faults
	if !errors.As(err, &faults) {
		require.NoError(t, err)
		return
	}
	for line := range strings.Lines(err.Error()) {
		if strings.HasPrefix(line, " ") {
			require.Contains(t, line, "/.lesson/")
		}
	}
}

// question is a line of any of the files.
type question struct {
	Input    string `json:"input"`
	Answer   string `json:"answer"`
	Messages []struct {
		Content string `json:"content"`
		Calls   []struct {
			Function struct {
				Arguments string `json:"arguments"`
			} `json:"function"`
		} `json:"tool_calls"`
	} `json:"messages"`
}

func (q question) text() string {
	if len(q.Messages) > 0 {
		return q.Messages[0].Content
	}
	return q.Input
}

// write runs questions.py, with python3.
func write(t *testing.T, seed string) string {
	t.Helper()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("no python3")
	}
	folder := t.TempDir()
	text, err := exec.CommandContext(t.Context(), "python3", "questions.py", folder, seed).CombinedOutput()
	require.NoError(t, err, "%s", text)
	return folder
}

func TestQuestionsFollowFromTheSeedAndAreInOneFileEach(t *testing.T) {
	t.Parallel()
	first, again, other := write(t, "1"), write(t, "1"), write(t, "2")
	seen := map[string]bool{}
	for _, name := range []string{"train", "gate", "test", "demonstrations"} {
		texts := map[string][]byte{}
		for _, folder := range []string{first, again, other} {
			text, err := os.ReadFile(filepath.Join(folder, name+".jsonl"))
			require.NoError(t, err)
			texts[folder] = text
		}
		require.True(t, bytes.Equal(texts[first], texts[again]), "%s: one seed, two files", name)
		require.False(t, bytes.Equal(texts[first], texts[other]), "%s: two seeds, one file", name)
		lines := bufio.NewScanner(bytes.NewReader(texts[first]))
		for lines.Scan() {
			var q question
			require.NoError(t, json.Unmarshal(lines.Bytes(), &q))
			require.False(t, seen[q.text()], "%q is given twice", q.text())
			seen[q.text()] = true
		}
	}
}

func TestDemonstrationsCallTheToolRightlyOrNotAtAll(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(write(t, "1"), "demonstrations.jsonl"))
	require.NoError(t, err)
	var calls, all int
	for line := range strings.Lines(string(text)) {
		var q question
		require.NoError(t, json.Unmarshal([]byte(line), &q))
		all++
		if len(q.Messages[1].Calls) == 0 {
			continue
		}
		calls++
		var arguments struct{ Expression string }
		require.NoError(t, json.Unmarshal([]byte(q.Messages[1].Calls[0].Function.Arguments), &arguments))
		value, err := arithmetic.Evaluate(arguments.Expression)
		require.NoError(t, err)
		require.Equal(t, q.Messages[2].Content, strconv.Itoa(value))
		require.Equal(t, q.Messages[2].Content, q.Messages[3].Content)
	}
	require.InDelta(t, 0.15, float64(calls)/float64(all), 0.07)
}

func TestTheTemplateWritesTheToolAndItsCalls(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("chat_template.jinja")
	require.NoError(t, err)
	template, err := jinja.Parse(string(text))
	require.NoError(t, err)
	variables, err := jinja.FromJSON([]byte(`{"add_generation_prompt": true,
		"tools": [{"function": {"name": "calculator", "parameters": {"properties": {"expression": {"type": "string"}}}}}],
		"messages": [{"role": "user", "content": "Six times seven?"},
			{"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "calculator", "arguments": {"expression": "6*7"}}}]},
			{"role": "tool", "content": "42"}]}`))
	require.NoError(t, err)
	have, err := template.Render(variables, time.Time{})
	require.NoError(t, err)
	require.Equal(t, `<|im_start|>system
Functions: calculator(expression)<|im_end|>
<|im_start|>user
Six times seven?<|im_end|>
<|im_start|>assistant
<tool_call>
{"name": "calculator", "arguments": {"expression": "6*7"}}
</tool_call><|im_end|>
<|im_start|>tool
42<|im_end|>
<|im_start|>assistant
`, have)
}
