package sql_test

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

// Both specs may only lack files that the recipe downloads or writes.
func TestTheSpecsAreValid(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"qwen.yaml", "smollm.yaml"} {
		_, err := spec.Load(name)
		var faults *spec.Faults
		if !errors.As(err, &faults) {
			require.NoError(t, err)
			continue
		}
		for line := range strings.Lines(err.Error()) {
			if strings.HasPrefix(line, " ") {
				require.Regexp(t, `/\.(sql|lesson|examples)/`, line)
			}
		}
	}
}

// python runs a program of this folder, with python3.
func python(t *testing.T, args ...string) (string, error) {
	t.Helper()
	program, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("python3 is not there")
	}
	cmd := exec.CommandContext(t.Context(), program, args...)
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
		out, err := python(t, "-c", "import sys, control; print(control.query(sys.argv[1]))", reply)
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
	out, err := python(t, "split.py", source, into, "15")
	require.NoError(t, err, out)
	require.Equal(t, "train: 120 questions about 12 databases\ngate: 15 questions about 2 databases\ntest: 30 questions about 3 databases\n", out)
	_, train := rows(t, filepath.Join(into, "train.json"))
	_, gate := rows(t, filepath.Join(into, "gate.json"))
	for name := range gate {
		require.NotContains(t, train, name)
	}
	again := filepath.Join(t.TempDir(), "data")
	_, err = python(t, "split.py", source, again, "15")
	require.NoError(t, err)
	for _, name := range []string{"train.json", "gate.json", "test.json"} {
		first, _ := rows(t, filepath.Join(into, name))
		second, _ := rows(t, filepath.Join(again, name))
		require.Equal(t, first, second)
	}

	write("train.json", "one", 1)
	out, err = python(t, "split.py", source, into)
	require.Error(t, err)
	require.Contains(t, out, "the gate needs databases that train does not have")
	require.NoError(t, os.WriteFile(filepath.Join(source, "train.json"), []byte(`{"rows": []}`), 0o600))
	out, err = python(t, "split.py", source, into)
	require.Error(t, err)
	require.Contains(t, out, "train.json is not in Spider's layout: want a JSON array of objects with db_id, question and query")
	require.NoError(t, os.Remove(filepath.Join(source, "train.json")))
	out, err = python(t, "split.py", source, into)
	require.Error(t, err)
	require.Contains(t, out, "has no train.json or train_spider.json: give a data set in Spider's layout")
}
