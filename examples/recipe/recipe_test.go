package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/spec"
)

// The specs may only lack files that the recipes download or write.
func TestTheSpecsAreValid(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"sql/qwen.yaml", "sql/control.yaml", "sql/smollm.yaml", "math/qwen.yaml", "prompts/qwen.yaml", "prompts/spec.yaml", "math/control.yaml", "math/smollm.yaml"} {
		_, err := spec.Load(filepath.Join("..", name))
		var faults *spec.Faults
		if !errors.As(err, &faults) {
			require.NoError(t, err)
			continue
		}
		for line := range strings.Lines(err.Error()) {
			if strings.HasPrefix(line, " ") {
				require.Regexp(t, `/\.(sql|math|prompts|lesson|examples)/`, line)
			}
		}
	}
}

// python runs a program of an example in its folder, with python3.
func python(t *testing.T, example string, args ...string) (string, error) {
	t.Helper()
	program, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("python3 is not there")
	}
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Dir = filepath.Join("..", example)
	cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func TestTheControlFindsTheQueryInAReply(t *testing.T) {
	t.Parallel()
	for reply, query := range map[string]string{
		"SELECT a FROM b": "SELECT a FROM b",
		"To list them:\n\n```sql\nSELECT a\nFROM b;\n```\nIt reads b.":     "SELECT a FROM b",
		"```sql SELECT a FROM b; ``` This lists them.":                     "SELECT a FROM b",
		"```\nWITH x AS (SELECT 1) SELECT * FROM x":                        "WITH x AS (SELECT 1) SELECT * FROM x",
		"You can write select a from b; then run it.":                      "select a from b",
		"SELECT a\n  FROM b\n\nThis selects a.":                            "SELECT a FROM b",
		"I can't say.":                                                     "I can't say.",
		"A table selected by id:\nSELECT a FROM b WHERE c = 'SELECTED; 3'": "SELECT a FROM b WHERE c = 'SELECTED; 3'",
	} {
		out, err := python(t, "sql", "-c", "import sys, controls; print(controls.answer(sys.argv[1]))", reply)
		require.NoError(t, err, out)
		require.Equal(t, query+"\n", out, reply)
	}
}

// question is a row of a data set in Spider's layout.
type question struct {
	Database string `json:"db_id"`
	Question string `json:"question"`
	Query    string `json:"query"`
}

func rows(t *testing.T, path string) (all []question, databases map[string]bool) {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &all))
	databases = map[string]bool{}
	for _, row := range all {
		databases[row.Database] = true
	}
	return all, databases
}

func TestTrainGateAndTestShareNoDatabase(t *testing.T) {
	t.Parallel()
	source, into := t.TempDir(), filepath.Join(t.TempDir(), "data")
	require.NoError(t, os.Mkdir(filepath.Join(source, "database"), 0o750))
	write := func(name, prefix string, databases int) {
		var all []question
		for i := range databases * 10 {
			all = append(all, question{fmt.Sprintf("%s%d", prefix, i%databases), fmt.Sprintf("question %d?", i), "SELECT 1"})
		}
		text, err := json.Marshal(all)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(source, name), text, 0o600))
	}
	write("train.json", "train", 14)
	write("dev.json", "dev", 3)
	out, err := python(t, "sql", "split.py", source, into, "15")
	require.NoError(t, err, out)
	require.Equal(t, "train: 120 questions about 12 databases\ngate: 15 questions about 2 databases\ntest: 30 questions about 3 databases\n", out)
	_, train := rows(t, filepath.Join(into, "train.json"))
	_, gate := rows(t, filepath.Join(into, "gate.json"))
	for name := range gate {
		require.NotContains(t, train, name)
	}
	again := filepath.Join(t.TempDir(), "data")
	_, err = python(t, "sql", "split.py", source, again, "15")
	require.NoError(t, err)
	for _, name := range []string{"train.json", "gate.json", "test.json"} {
		first, _ := rows(t, filepath.Join(into, name))
		second, _ := rows(t, filepath.Join(again, name))
		require.Equal(t, first, second)
	}

	write("train.json", "one", 1)
	out, err = python(t, "sql", "split.py", source, into)
	require.Error(t, err)
	require.Contains(t, out, "the gate needs databases that train does not have")
	require.NoError(t, os.WriteFile(filepath.Join(source, "train.json"), []byte(`{"rows": []}`), 0o600))
	out, err = python(t, "sql", "split.py", source, into)
	require.Error(t, err)
	require.Contains(t, out, "train.json is not in Spider's layout: want a JSON array of objects with db_id, question and query")
	require.NoError(t, os.Remove(filepath.Join(source, "train.json")))
	out, err = python(t, "sql", "split.py", source, into)
	require.Error(t, err)
	require.Contains(t, out, "has no train.json or train_spider.json: give a data set in Spider's layout")
}

// math writes questions in GSM8K's layout.
func math(t *testing.T, path string, solutions ...string) {
	t.Helper()
	var text strings.Builder
	for i, solution := range solutions {
		row, err := json.Marshal(map[string]string{"question": fmt.Sprintf("%s %d?", filepath.Base(path), i), "answer": solution})
		require.NoError(t, err)
		text.Write(append(row, '\n'))
	}
	require.NoError(t, os.WriteFile(path, []byte(text.String()), 0o600))
}

// shown is a dialog of the warm start.
type shown struct {
	Messages []struct {
		Role    string `json:"role"`
		Content string `json:"content"`
		Calls   []struct {
			Function struct {
				Arguments string `json:"arguments"`
			} `json:"function"`
		} `json:"tool_calls"`
	} `json:"messages"`
}

func TestSolutionsBecomeDialogsWithTheCalculator(t *testing.T) {
	t.Parallel()
	source, into := t.TempDir(), filepath.Join(t.TempDir(), "data")
	math(t, filepath.Join(source, "train.jsonl"),
		"She sold 48/2 = $<<48/2=24>>24 in May.\nShe sold 48+24 = <<48+24=72>>72 in all.\n#### 72",
		"He has 2**3 = <<2**3=8>>8.\n#### 8",                                     // which the calculator refuses
		"He has 1/0 = <<1/0=1>>1.\n#### 1",                                       // which has no value
		"He has 2+2 = <<2+2=4>>4.\n#### 5",                                       // which is not the answer
		"He has 2+2 = <<2+2=4>>4.\nThat is all.\n#### 4",                         // a line without a calculation
		"A<<1+1=2>>\nB<<2+1=3>>\nC<<3+1=4>>\nD<<4+1=5>>\nE<<5+1=6>>\n#### 6",     // more calculations than are shown or trained
		"A thousand: 500+500 = <<500+500=1000>>1000 in words 1,000.\n#### 1,000", // commas separate thousands
	)
	math(t, filepath.Join(source, "test.jsonl"), "#### 1", "#### 2", "#### 3")
	out, err := python(t, "math", "split.py", source, into, "1", "2")
	require.NoError(t, err, out)
	require.Contains(t, out, "gate: 1 questions\ntest: 2 questions\n")

	text, err := os.ReadFile(filepath.Join(into, "demonstrations.jsonl"))
	require.NoError(t, err)
	dialogs := map[string][]string{}
	for line := range strings.Lines(string(text)) {
		var one shown
		require.NoError(t, json.Unmarshal([]byte(line), &one))
		var said []string
		for _, message := range one.Messages[2:] {
			if len(message.Calls) == 1 {
				said = append(said, message.Content+" "+message.Calls[0].Function.Arguments)
			} else {
				said = append(said, message.Content)
			}
		}
		dialogs[one.Messages[1].Content] = said
	}
	want := map[string][]string{
		"train.jsonl 0?": {`She sold 48/2 {"expression": "48/2"}`, "24", `She sold 48+24 {"expression": "48+24"}`, "72", "72"},
		"train.jsonl 6?": {`A thousand: 500+500 {"expression": "500+500"}`, "1000", "1000"},
	}
	gate, err := os.ReadFile(filepath.Join(into, "gate.jsonl"))
	require.NoError(t, err)
	for question := range want { // the gate has one of the seven questions, perhaps one of these
		if strings.Contains(string(gate), question) {
			delete(want, question)
		}
	}
	left := 7 - 1 - len(want)
	if !strings.Contains(string(gate), "train.jsonl 5?") {
		left--
	}
	require.Equal(t, want, dialogs)
	train, err := os.ReadFile(filepath.Join(into, "train.jsonl"))
	require.NoError(t, err)
	require.Len(t, strings.Split(strings.TrimSpace(string(train)), "\n"), left)

	math(t, filepath.Join(source, "train.jsonl"), "72")
	out, err = python(t, "math", "split.py", source, into)
	require.Error(t, err)
	require.Contains(t, out, "train.jsonl is not in GSM8K's layout: want a JSON object on each line, with question and answer")
	require.NoError(t, os.Remove(filepath.Join(source, "test.jsonl")))
	math(t, filepath.Join(source, "train.jsonl"), "#### 72")
	out, err = python(t, "math", "split.py", source, into)
	require.Error(t, err)
	require.Contains(t, out, "test.jsonl is not there: give a folder with GSM8K's train.jsonl and test.jsonl")
}

func TestTheCurveHasTheAgentAndItsControls(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	report, control, svg := filepath.Join(dir, "report.json"), filepath.Join(dir, "control.json"), filepath.Join(dir, "curve.svg")
	require.NoError(t, os.WriteFile(report, []byte(`{"evaluations": [{"kind": "gate", "version": 0, "mean": 0.1}, {"kind": "test", "version": 0, "mean": 0.9}, {"kind": "gate", "version": 16, "mean": 0.5}]}`), 0o600))
	require.NoError(t, os.WriteFile(control, []byte(`{"mean": 0.4}`), 0o600))
	require.NoError(t, draw(report, svg, []string{"the best prompt, untrained=" + control}))
	text, err := os.ReadFile(svg)
	require.NoError(t, err)
	require.Contains(t, string(text), "the agent, temperature 1")
	require.Contains(t, string(text), "the best prompt, untrained")
	require.NotContains(t, string(text), "0.9")
	require.ErrorContains(t, draw(report, svg, []string{control}), "is not of the form NAME=EVALUATION")
	require.ErrorContains(t, draw(control+"x", svg, nil), "control.jsonx")
}
