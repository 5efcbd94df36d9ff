package calculator_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/examples/calc/calculator"
)

// message is one turn on the wire.
type message struct {
	Role       string     `json:"role"`
	Content    string     `json:"content"`
	ToolCalls  []toolCall `json:"tool_calls,omitempty"`
	ToolCallID string     `json:"tool_call_id,omitempty"`
}

type toolCall struct {
	ID       string   `json:"id"`
	Type     string   `json:"type"`
	Function function `json:"function"`
}

type function struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

type request struct {
	Model    string            `json:"model"`
	Messages []message         `json:"messages"`
	Tools    []json.RawMessage `json:"tools"`
}

func says(text string) message { return message{Role: "assistant", Content: text} }

func calls(functions ...function) message {
	m := message{Role: "assistant"}
	for i, f := range functions {
		m.ToolCalls = append(m.ToolCalls, toolCall{ID: "call_" + strconv.Itoa(i), Type: "function", Function: f})
	}
	return m
}

func computes(expression string) function {
	arguments, _ := json.Marshal(map[string]string{"expression": expression})
	return function{"calculator", string(arguments)}
}

// model starts a server that sends the replies in order, and repeats the last one for all
// further requests. It keeps the requests that it got.
func model(t *testing.T, replies ...message) (calculator.Agent, *[]request) {
	t.Helper()
	var got []request
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/chat/completions" || r.Header.Get("Authorization") != "Bearer the-key" {
			http.Error(w, "not here", http.StatusNotFound)
			return
		}
		var q request
		body, _ := io.ReadAll(r.Body)
		if err := json.Unmarshal(body, &q); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		got = append(got, q)
		reply := replies[min(len(got), len(replies))-1]
		_ = json.NewEncoder(w).Encode(map[string]any{
			"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": q.Model,
			"choices": []any{map[string]any{"index": 0, "message": reply, "finish_reason": "stop"}},
		})
	}))
	t.Cleanup(server.Close)
	return calculator.Agent{Client: calculator.Connect(server.URL+"/v1", "the-key"), Model: "any"}, &got
}

func TestQuestionIsAskedAsItIsAndTheAnswerTrimmed(t *testing.T) {
	t.Parallel()
	a, got := model(t, says(" 33\n"))
	answer, err := a.Solve(t.Context(), "12+7*3")
	require.NoError(t, err)
	require.Equal(t, "33", answer)
	require.Len(t, *got, 1)
	require.Equal(t, []message{{Role: "user", Content: "12+7*3"}}, (*got)[0].Messages, "no system prompt")
	require.Equal(t, "any", (*got)[0].Model)
	require.Len(t, (*got)[0].Tools, 1)
	require.JSONEq(t, `{"type":"function","function":{"name":"calculator",
		"description":"Evaluates an arithmetic expression of whole numbers.",
		"parameters":{"type":"object","properties":{"expression":{"type":"string"}},"required":["expression"]}}}`,
		string((*got)[0].Tools[0]))
}

func TestToolCallsAreRunAndTheirResultsReturned(t *testing.T) {
	t.Parallel()
	first := calls(computes("7*3"), computes("12+"), function{"abacus", "{}"}, function{"calculator", "{"})
	second := calls(computes("12+21"))
	a, got := model(t, first, second, says("33"))
	answer, err := a.Solve(t.Context(), "12+7*3")
	require.NoError(t, err)
	require.Equal(t, "33", answer)
	require.Len(t, *got, 3)
	require.Empty(t, cmp.Diff([]message{
		{Role: "user", Content: "12+7*3"},
		first,
		{Role: "tool", Content: "21", ToolCallID: "call_0"},
		{Role: "tool", Content: "error", ToolCallID: "call_1"},
		{Role: "tool", Content: "error", ToolCallID: "call_2"},
		{Role: "tool", Content: "error", ToolCallID: "call_3"},
		second,
		{Role: "tool", Content: "33", ToolCallID: "call_0"},
	}, (*got)[2].Messages))
}

func TestTurnsAreLimited(t *testing.T) {
	t.Parallel()
	for allowed, want := range map[int]int{0: 4, 1: 1, 6: 6} {
		a, got := model(t, calls(computes("1+1")))
		a.MaxTurns = allowed
		_, err := a.Solve(t.Context(), "1+1")
		require.ErrorIs(t, err, calculator.ErrNoAnswer)
		require.Len(t, *got, want)
	}
}

func TestErrorOfTheModelEndsTheTry(t *testing.T) {
	t.Parallel()
	a, _ := model(t, says("33"))
	a.Client = calculator.Connect("http://127.0.0.1:1/v1", "the-key")
	_, err := a.Solve(t.Context(), "12+7*3")
	require.ErrorContains(t, err, "ask model")
}
