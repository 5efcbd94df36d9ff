package gateway_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/model/tokenizer"
	"github.com/fulgurite/fulgurite/wire"
)

// required returns a request that has to be answered with calls.
func required(api wire.API, more string) string {
	const schema = `{"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"integer"}}}`
	switch api {
	case wire.Responses:
		return `{"model":"m","tool_choice":"required","tools":[{"type":"function","name":"f","parameters":` + schema + `}],"input":"q"` + more + `}`
	case wire.Messages:
		return `{"model":"m","max_tokens":32,"tool_choice":{"type":"any"},"tools":[{"name":"f","input_schema":` + schema + `}],"messages":[{"role":"user","content":"q"}]` + more + `}`
	}
	return `{"model":"m","tool_choice":"required","tools":[{"type":"function","function":{"name":"f","parameters":` + schema + `}}],"messages":[{"role":"user","content":"q"}]` + more + `}`
}

func TestACallThatIsWholeIsKeptWhenTheNextIsCutOff(t *testing.T) {
	t.Parallel()
	onProtocols(t, func(t *testing.T, p protocol) {
		if p.api == wire.Completions {
			return // it knows no calls
		}
		s := newTestEnv(t, nil)
		cut := say(tokenizer.ToolCall, `{"a":1,"b":2}`, tokenizer.ToolCall, `{"a":3`)
		s.replies = [][]int32{cut, cut, cut}
		whole := s.send(t, p, required(p.api, ""))
		require.Equal(t, http.StatusOK, whole.status, whole.body)
		streamed := s.send(t, p, required(p.api, `,"stream":true`))
		var finish string
		switch body := object(t, whole.body); p.api {
		case wire.Responses:
			require.Equal(t, "incomplete", body["status"])
			require.Equal(t, "max_output_tokens", textAt(body, "incomplete_details", "reason"))
			require.Equal(t, `{"a":1,"b":2}`, textAt(body, "output", 0, "arguments"))
			require.Len(t, body["output"], 1)
			finish = `"type":"response.incomplete"`
		case wire.Messages:
			require.Equal(t, "max_tokens", body["stop_reason"])
			require.Equal(t, "tool_use", textAt(body, "content", 0, "type"))
			require.Len(t, body["content"], 1)
			finish = `"stop_reason":"max_tokens"`
		default:
			require.Equal(t, "length", textAt(body, "choices", 0, "finish_reason"))
			require.Equal(t, `{"a":1,"b":2}`, textAt(body, "choices", 0, "message", "tool_calls", 0, "function", "arguments"))
			finish = `"finish_reason":"length"`
		}
		require.Contains(t, streamed.body, finish)
		require.Contains(t, streamed.body, `\"b\":2`)

		calls := s.recorded(t)
		require.Equal(t, cut, calls[0].Completion, "the record has all that was sampled")
		require.Equal(t, "length", calls[0].Finish)
		require.Equal(t, "tool call 1 cut off before its end", calls[0].ParseError)
		s.restart(t)
		again := s.send(t, p, required(p.api, ""), "X-Fulgurite-Retry", "1")
		require.Equal(t, http.StatusOK, again.status)
	})
}

func TestACutCallWithoutAWholeOneIsText(t *testing.T) {
	t.Parallel()
	s := newTestEnv(t, nil)
	s.replies = [][]int32{say(tokenizer.ToolCall, `{"a":1`)}
	a := s.chat(t, required(wire.Chat, ""))
	require.Equal(t, "length", textAt(object(t, a.body), "choices", 0, "finish_reason"))
	require.Nil(t, object(t, a.body)["choices"].([]any)[0].(map[string]any)["message"].(map[string]any)["tool_calls"])
}

func TestTheCutCallDoesNotMatterWhereOneIsWanted(t *testing.T) {
	t.Parallel()
	s := newTestEnv(t, nil)
	s.replies = [][]int32{say(tokenizer.ToolCall, `{"a":1}`, tokenizer.ToolCall, `{"a`)}
	a := s.chat(t, required(wire.Chat, `,"parallel_tool_calls":false`))
	require.Equal(t, "tool_calls", textAt(object(t, a.body), "choices", 0, "finish_reason"))
}
