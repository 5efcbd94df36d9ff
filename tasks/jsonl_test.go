package tasks_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/fulgurite/fulgurite/internal/golden"
	"github.com/fulgurite/fulgurite/tasks"
)

func read(t *testing.T, text string) []tasks.Task {
	t.Helper()
	list, err := tasks.ReadJSONL(strings.NewReader(text), "a.jsonl")
	require.NoError(t, err)
	return list
}

func TestTasksAreReadAsWritten(t *testing.T) {
	t.Parallel()
	got := read(t, "\ufeff"+`{"id": "a", "input": "1+1", "answer": "2", "metadata": {"n": 12345678901234567890, "m": {"x": [1.50]}}}`+"\r\n"+
		"\r\n  \n"+`{"id": 7, "input": {"b": [1, "<&>"], "a": null}, "answer": 2.50}`+"\n"+
		`  {"id": "c", "input": ""}`)
	want := []tasks.Task{
		{ID: "a", Input: "1+1", Answer: "2", Metadata: map[string]any{
			"n": json.Number("12345678901234567890"), "m": map[string]any{"x": []any{json.Number("1.50")}},
		}},
		{ID: "7", Input: `{"b":[1,"<&>"],"a":null}`, Answer: "2.50"},
		{ID: "c"},
	}
	require.Empty(t, cmp.Diff(want, got))
}

func TestBadLinesAreReportedTogether(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 201)
	_, err := tasks.ReadJSONL(strings.NewReader(strings.Join([]string{
		`{"id": "a", "input": "1"}`, `{"id": "b"`, `["a"]`, `{"input": "1"}`, `{"id": null, "anwser": 3}`, ``,
		`{"id": "a", "input": "2"}`, `{"id": true, "input": 1}`, `{"id": "d", "input": 1} x`, `{"id": "e", "input": null}`,
		`{"id": "f", "input": 1, "metadata": 3}`, `{"id": "` + long + `", "input": 1}`, `{"id": "g\u0000", "input": 1}`,
		"{\"id\": \"h\xff\", \"input\": 1}", `{"id": "", "input": 1}`, `{"id": "i" "input": 1}`,
	}, "\n")), "data/a.jsonl")
	for line := range 17 {
		wrong := !slices.Contains([]int{0, 1, 6}, line) // line 6 is empty
		require.Equal(t, wrong, strings.Contains(err.Error(), fmt.Sprintf("data/a.jsonl:%d: ", line)), "line %d", line)
	}
	for _, want := range []string{`"anwser"`, `"a" is in line 1`, "201 bytes", `"g\x00"`} {
		require.ErrorContains(t, err, want)
	}
	golden.Compare(t, "bad_lines", err.Error())
}

func TestAtMostTwentyFaultsAreListed(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	for i := range 33 {
		fmt.Fprintf(&text, "{\"key%d\": 1, \"id\": 1, \"input\": 1}\n", i)
	}
	_, err := tasks.ReadJSONL(strings.NewReader(text.String()), "a.jsonl")
	var file *tasks.FileError
	require.ErrorAs(t, err, &file)
	require.Len(t, file.List, 33, "the error has them all")
	require.Equal(t, 33, file.Places())
	require.ErrorContains(t, err, `a.jsonl:20: unknown key "key19"`)
	require.True(t, strings.HasSuffix(err.Error(), "\nand 13 more"), err)
}

func TestEqualFaultsAreListedOnce(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]string{
		1: "a.jsonl:1: no id; no input", 2: "a.jsonl:1: no id; no input (also line 2)", 4: "a.jsonl:1: no id; no input (also lines 2, 3 and 4)",
		33: "a.jsonl:1: no id; no input (also lines 2, 3, 4 and 29 more)",
	} {
		_, err := tasks.ReadJSONL(strings.NewReader(strings.Repeat("{}\n", n)), "a.jsonl")
		require.EqualError(t, err, want)
	}
}

func TestFileWithoutTasksIsAnError(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "\n\r\n  \n", "\ufeff"} {
		_, err := tasks.ReadJSONL(strings.NewReader(text), "a.jsonl")
		require.ErrorIs(t, err, tasks.ErrEmpty)
		require.ErrorContains(t, err, "a.jsonl")
	}
}

func TestLinesOfTenMegabytesAreFine(t *testing.T) {
	t.Parallel()
	input := strings.Repeat("0123456789", 1<<20)
	list := read(t, fmt.Sprintf("{\"id\": \"a\", \"input\": %q}\n{\"id\": \"b\", \"input\": \"\"}", input))
	require.Len(t, list, 2)
	require.True(t, list[0].Input == input)
}

func TestReadErrorNamesTheLine(t *testing.T) {
	t.Parallel()
	broken := errors.New("disk on fire")
	r := iotest.TimeoutReader(strings.NewReader("x"))
	_, err := tasks.ReadJSONL(iotest.ErrReader(broken), "a.jsonl")
	require.ErrorIs(t, err, broken)
	require.ErrorContains(t, err, "read a.jsonl line 1")
	_, err = tasks.ReadJSONL(iotest.OneByteReader(r), "a.jsonl")
	require.ErrorIs(t, err, iotest.ErrTimeout)
}

func TestSnapshotsAreCanonical(t *testing.T) {
	t.Parallel()
	a := read(t, `{"metadata": {"b": 1, "a": "<&>"}, "answer": 4, "input": "2+2", "id": "x"}`)
	b := read(t, "\n"+`{ "id":"x","input":"2+2","answer":"4","metadata":{"a":"\u003c&>","b":1} }`+"\r\n")
	first, err := tasks.Encode(a)
	require.NoError(t, err)
	second, err := tasks.Encode(b)
	require.NoError(t, err)
	require.Equal(t, string(first), string(second))
	require.Equal(t, `{"id":"x","input":"2+2","answer":"4","metadata":{"a":"<&>","b":1}}`+"\n", string(first))
}

func TestSnapshotKeepsEverything(t *testing.T) {
	t.Parallel()
	text := rapid.StringN(0, 20, -1)
	rapid.Check(t, func(t *rapid.T) {
		var want []tasks.Task
		for i := range rapid.IntRange(1, 5).Draw(t, "n") {
			task := tasks.Task{ID: fmt.Sprint(i), Input: text.Draw(t, "input"), Answer: text.Draw(t, "answer")}
			if rapid.Bool().Draw(t, "metadata") {
				task.Metadata = map[string]any{text.Draw(t, "key"): text.Draw(t, "value"), "list": []any{nil, true, json.Number("1e400")}}
			}
			want = append(want, task)
		}
		data, err := tasks.Encode(want)
		require.NoError(t, err)
		got, err := tasks.Decode(data)
		require.NoError(t, err)
		require.Empty(t, cmp.Diff(want, got))
		again, err := tasks.Encode(got)
		require.NoError(t, err)
		require.True(t, bytes.Equal(data, again))
	})
}

func TestMetadataThatIsNoJSONIsRefused(t *testing.T) {
	t.Parallel()
	_, err := tasks.Encode([]tasks.Task{{ID: "bad", Metadata: map[string]any{"f": func() {}}}})
	require.ErrorContains(t, err, "encode task bad")
}
