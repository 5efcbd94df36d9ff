package tasks_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/tasks"
)

const calculated = `{"messages": [{"role": "system", "content": "Compute.", "name": "boss"}, {"role": "user", "content": [{"type": "text", "text": "2+"}, {"type": "text", "text": "3"}]},` +
	` {"role": "assistant", "content": null, "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "calc", "arguments": "{\"e\": \"2+3\"}"}}]},` +
	` {"role": "tool", "tool_call_id": "c1", "content": "5"}, {"role": "assistant", "content": "5", "weight": 0, "refusal": null}],` +
	` "tools": [{"type": "function", "function": {"name": "calc", "description": "adds", "parameters": {"type": "object"}, "strict": true}}], "parallel_tool_calls": false}`

func TestFineTuningFilesAreDemonstrations(t *testing.T) {
	t.Parallel()
	got, err := tasks.ReadDemonstrations(strings.NewReader(calculated+"\n\n"+`{"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}]}`), "d.jsonl")
	require.NoError(t, err)
	zero := 0
	want := []dialog.Dialog{
		{
			Messages: []dialog.Message{
				{Role: dialog.System, Content: "Compute."}, {Role: dialog.User, Content: "2+3"},
				{Role: dialog.Assistant, ToolCalls: []dialog.ToolCall{{ID: "c1", Type: "function", Function: dialog.Function{Name: "calc", Arguments: `{"e": "2+3"}`}}}},
				{Role: dialog.ToolReply, Content: "5", ToolCallID: "c1"}, {Role: dialog.Assistant, Content: "5", Weight: &zero},
			},
			Tools: []dialog.Tool{{Name: "calc", Description: "adds", Parameters: []byte(`{"type": "object"}`)}},
		},
		{Messages: []dialog.Message{{Role: dialog.User, Content: "hi"}, {Role: dialog.Assistant, Content: "ho"}}},
	}
	require.Empty(t, cmp.Diff(want, got))
}

func TestBadDemonstrationsNameTheirLine(t *testing.T) {
	t.Parallel()
	user, assistant := `{"role": "user", "content": "a"}`, `{"role": "assistant", "content": "b"}`
	call := `{"role": "assistant", "tool_calls": [{"id": "c", "type": "function", "function": {"name": "%s", "arguments": "%s"}}]}`
	tools := `, "tools": [{"type": "function", "function": {"name": "calc"}}]`
	for text, want := range map[string]string{
		`[]`:                              "a JSON array where an object is expected",
		`{"messages": []}`:                "no assistant message to learn from",
		`{"messages": [` + user + `]}`:    "no assistant message to learn from",
		`{"mesages": [` + user + `]}`:     `unknown field "mesages"`,
		`{"messages": [{"role": "bot"}]}`: `messages[0]: unknown role "bot"`,
		`{"messages": [{"role": "user", "content": 3}, ` + assistant + `]}`:                                                                "messages[0]: content is neither text",
		`{"messages": [{"role": "user", "content": [{"type": "image_url"}]}, ` + assistant + `]}`:                                          `content part of type "image_url"`,
		`{"messages": [{"role": "assistant", "content": "b", "weight": 0}]}`:                                                               "no assistant message to learn from",
		`{"messages": [{"role": "assistant", "content": "b", "weight": 2}]}`:                                                               "weight 2: want 0 or 1",
		`{"messages": [{"role": "assistant", "content": "b", "weight": 0.5}]}`:                                                             "weight can't be a JSON number",
		`{"messages": [{"role": "tool", "content": "b"}, ` + assistant + `]}`:                                                              "a tool's reply without tool_call_id",
		`{"messages": [` + fmt.Sprintf(call, "calc", "{}") + `]}`:                                                                          `the tool "calc" is not in tools`,
		`{"messages": [` + fmt.Sprintf(call, "calc", "{") + `]` + tools + `}`:                                                              "arguments are not JSON",
		`{"messages": [` + assistant + `], "tools": [{"name": "calc"}]}`:                                                                   `unknown field "name"`,
		`{"messages": [` + assistant + `], "tools": [{"type": "code"}]}`:                                                                   "tools[0]: want",
		`{"messages": [` + strings.Replace(fmt.Sprintf(call, "calc", "{}"), "assistant", "user", 1) + `, ` + assistant + `]` + tools + `}`: "only the assistant calls",
	} {
		_, err := tasks.ReadDemonstrations(strings.NewReader("\n"+text+"\n"), "d.jsonl")
		require.ErrorContains(t, err, "d.jsonl:2: ", text)
		require.ErrorContains(t, err, want, text)
	}
	_, err := tasks.ReadDemonstrations(strings.NewReader(""), "d.jsonl")
	require.ErrorIs(t, err, tasks.ErrEmpty)
}

func TestDemonstrationsOfAFileAreAllUsedInEveryEpoch(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "d.jsonl")
	var lines strings.Builder
	for i := range 10 {
		fmt.Fprintf(&lines, `{"messages": [{"role": "assistant", "content": "%d"}]}`+"\n", i)
	}
	require.NoError(t, os.WriteFile(path, []byte(lines.String()), 0o600))
	open := func(seed uint64) tasks.Demonstrations {
		d, err := tasks.OpenDemonstrations(path, seed, 4)
		require.NoError(t, err)
		return d
	}
	epochs := map[string]bool{}
	for epoch := range 3 {
		seen, order := map[string]bool{}, ""
		for update := 2 * epoch; update < 2*epoch+2; update++ {
			batch := open(1).Batch(update, 5)
			require.Equal(t, batch, open(1).Batch(update, 5))
			for _, d := range batch {
				seen[d.Messages[0].Content] = true
				order += d.Messages[0].Content
			}
		}
		require.Len(t, seen, 10)
		epochs[order] = true
	}
	require.Len(t, epochs, 3)
	require.NotEqual(t, open(1).Batch(0, 5), open(2).Batch(0, 5))
}

func TestOpenDemonstrationsKnowsTheCalculator(t *testing.T) {
	t.Parallel()
	d, err := tasks.OpenDemonstrations("arithmetic", 1, 10)
	require.NoError(t, err)
	require.Len(t, d.Batch(0, 4), 4)
	for _, source := range []string{"arithmetic:train", "arithmetic:x", "/no/such/file.jsonl"} {
		_, err := tasks.OpenDemonstrations(source, 1, 10)
		require.Error(t, err, source)
	}
}
