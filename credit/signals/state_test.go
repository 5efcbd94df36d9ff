package signals_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/credit/signals"
	"github.com/fulgurite/fulgurite/record"
)

// asking returns a call whose dialog has these messages, each written as "role: content".
func asking(messages ...string) record.Exchange {
	var all []map[string]any
	for i, m := range messages {
		role, content, _ := strings.Cut(m, ": ")
		one := map[string]any{"role": role, "content": content}
		if role == "tool" {
			one["tool_call_id"] = fmt.Sprintf("call_%d", i)
		}
		if role == "assistant" && strings.HasPrefix(content, "f(") {
			one["tool_calls"] = []any{map[string]any{
				"id": fmt.Sprintf("call_%d", i+1), "type": "function", "function": map[string]any{"name": "f", "arguments": content},
			}}
		}
		all = append(all, one)
	}
	request, err := json.Marshal(map[string]any{"model": "m", "messages": all})
	if err != nil {
		panic(err) // plain values
	}
	return record.Exchange{Call: record.Call{Agent: "solo"}, Request: request, Response: json.RawMessage(`{}`)}
}

func states(ignore string, calls ...record.Exchange) []string {
	var a signals.Attempt
	if ignore != "" {
		a.Terms.Ignore = []string{ignore}
	}
	for seq, c := range calls {
		c.Seq, c.Parent = seq, -1
		a.History = append(a.History, c)
	}
	var out []string
	for _, c := range signals.Of(a) {
		out = append(out, c.State)
	}
	return out
}

func TestEqualObservationsAreOneStateHoweverTheyWereCome(t *testing.T) {
	t.Parallel()
	got := states("",
		asking("system: play", "user: go", "assistant: f(1)", "tool: a hall"),
		asking("system: play", "user: go", "assistant: f(2)", "tool: a cave", "assistant: f(3)", "tool: a hall "),
		asking("system: play", "user: go", "assistant: f(2)", "tool: a cave"),
	)
	require.Equal(t, got[0], got[1], "an agent that keeps its history")
	require.NotEqual(t, got[0], got[2])

	got = states("",
		asking("system: play", "user: you are in a hall"),
		asking("system: play", "user: you are in a cave"),
		asking("system: play", "user: you are in a hall"),
	)
	require.Equal(t, got[0], got[2], "an agent that describes the state anew")
	require.NotEqual(t, got[0], got[1])
}

func TestStatesAreThoseOfOneAgent(t *testing.T) {
	t.Parallel()
	other := asking("user: a hall")
	other.Agent = "other"
	got := states("", asking("user: a hall"), other)
	require.NotEqual(t, got[0], got[1])
}

func TestSpansDoNotTellStatesApart(t *testing.T) {
	t.Parallel()
	c := asking("user: a hall")
	c.Agent, c.ID = "", "chatcmpl-0"
	a := signals.Attempt{History: []record.Exchange{c}}
	before := signals.Of(a)[0]
	a.Spans = []record.Span{{Trace: "t", ID: "1", Kind: record.ModelSpan, CallID: c.ID, Agent: "writer"}}
	after := signals.Of(a)[0]
	require.Equal(t, "writer", after.Agent)
	require.NotEqual(t, before.Agent, after.Agent)
	require.Equal(t, before.State, after.State)
}

func TestWhatARunIgnoresTellsNoStatesApart(t *testing.T) {
	t.Parallel()
	calls := []record.Exchange{asking("user: a hall at 10:15"), asking("user: a hall at 10:16")}
	got := states("", calls...)
	require.NotEqual(t, got[0], got[1])
	got = states(`\d\d:\d\d`, calls...)
	require.Equal(t, got[0], got[1])
}

func TestADialogThatEndsWithTheAssistantIsNewAsAWhole(t *testing.T) {
	t.Parallel()
	got := states("", asking("user: a hall", "assistant: I"), asking("user: a cave", "assistant: I"))
	require.NotEqual(t, got[0], got[1])
}

func TestAPromptWithoutMessagesIsItsTokens(t *testing.T) {
	t.Parallel()
	bare := func(prompt ...int32) record.Exchange {
		return record.Exchange{Call: record.Call{Agent: "solo", API: "completions", Prompt: prompt}, Request: json.RawMessage(`{"prompt":"x"}`)}
	}
	got := states("", bare(1, 2), bare(1, 2), bare(1, 3))
	require.Equal(t, got[0], got[1])
	require.NotEqual(t, got[0], got[2])
}
