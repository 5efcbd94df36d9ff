package wire_test

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/sashabaranov/go-openai"
	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/wire"
)

// calling returns a reply with reasoning, text and two tool calls.
func calling() wire.Reply {
	reply := plain("m", "so <b>")
	reply.Choices[0].Message.Reasoning = "hm"
	reply.Choices[0].Message.ToolCalls = []dialog.ToolCall{call("call_1f_0", "f", `{"a": 1}`), call("call_1f_1", "g", `{}`)}
	return reply
}

func encode(t testing.TB, r *wire.Request, reply wire.Reply) string {
	t.Helper()
	body, err := r.Encode(reply)
	require.NoError(t, err)
	return string(body)
}

// Replies that are on record have these bytes.
func TestAChatReplyIsByteForByteWhatItWas(t *testing.T) {
	t.Parallel()
	r := decode(t, wire.Chat, `{"model":"m",`+hi+`}`)
	require.Equal(t, `{"id":"chatcmpl-1f","object":"chat.completion","created":1795176000,"model":"m",`+
		`"choices":[{"index":0,"message":{"role":"assistant","content":"4\u003c","refusal":null},"logprobs":null,"finish_reason":"stop"}],`+
		`"usage":{"prompt_tokens":6,"completion_tokens":2,"total_tokens":8}}`, encode(t, r, plain("m", "4<")))
	reply := calling()
	reply.Choices[0].Message.Content, reply.Choices[0].Message.Reasoning = "", ""
	reply.Choices[0].Finish = wire.Length
	require.Contains(t, encode(t, r, reply), `"message":{"role":"assistant","content":null,"refusal":null,"tool_calls":[`+
		`{"id":"call_1f_0","type":"function","function":{"name":"f","arguments":"{\"a\": 1}"}},`+
		`{"id":"call_1f_1","type":"function","function":{"name":"g","arguments":"{}"}}]},"logprobs":null,"finish_reason":"tool_calls"}`)
	r = decode(t, wire.Chat, `{"logprobs":true,`+hi+`}`)
	reply = plain("m", "4")
	reply.Choices[0].Logprobs = []wire.Token{{Text: "4", Logprob: -0.5}}
	reply.Choices[0].Finish = wire.Length
	require.Contains(t, encode(t, r, reply), `"logprobs":{"content":[{"token":"4","logprob":-0.5,"bytes":null,"top_logprobs":[]}],"refusal":null},"finish_reason":"length"`)
}

func TestThoughtsOfAChatAreBesideItsText(t *testing.T) {
	t.Parallel()
	r := decode(t, wire.Chat, `{`+hi+`}`)
	require.Contains(t, encode(t, r, calling()), `"content":"so \u003cb\u003e","refusal":null,"reasoning_content":"hm","tool_calls":[`)
}

func TestWhoOffersFunctionsGetsAFunctionCall(t *testing.T) {
	t.Parallel()
	r := decode(t, wire.Chat, `{"functions":[{"name":"f"}],`+hi+`}`)
	reply := calling()
	reply.Choices[0].Message.ToolCalls = reply.Choices[0].Message.ToolCalls[:1]
	body := encode(t, r, reply)
	require.Contains(t, body, `"function_call":{"name":"f","arguments":"{\"a\": 1}"}},"logprobs":null,"finish_reason":"function_call"`)
	require.NotContains(t, body, "tool_calls")
	end, err := r.Open(reply).End(reply)
	require.NoError(t, err)
	require.Empty(t, cmp.Diff(parse(t, body)["choices"], bodyOf(t, wire.Chat, string(end))["choices"]))
}

func TestACompletionHasTheWholeShape(t *testing.T) {
	t.Parallel()
	r := decode(t, wire.Completions, `{"model":"m","prompt":"a","logprobs":1}`)
	reply := plain("m", "né!")
	reply.Choices[0].Logprobs = []wire.Token{
		{Text: "n", Logprob: -1}, {Text: "\uFFFD", Bytes: []byte{0xc3}, Logprob: -2}, {Text: "\uFFFD", Bytes: []byte{0xa9}, Logprob: -3}, {Text: "!", Logprob: -4},
	}
	require.JSONEq(t, `{"id":"cmpl-1f","object":"text_completion","created":1795176000,"model":"m",
		"choices":[{"index":0,"text":"né!","finish_reason":"stop","logprobs":{"tokens":["n","\uFFFD","\uFFFD","!"],"token_logprobs":[-1,-2,-3,-4],
			"top_logprobs":[{"n":-1},{"\uFFFD":-2},{"\uFFFD":-3},{"!":-4}],"text_offset":[0,1,2,2]}}],
		"usage":{"prompt_tokens":6,"completion_tokens":2,"total_tokens":8}}`, encode(t, r, reply))
}

func TestAResponseHasTheWholeShape(t *testing.T) {
	t.Parallel()
	r := decode(t, wire.Responses, `{"model":"m","input":"hi","instructions":"i","metadata":{"k":"v"},"temperature":0.5,"previous_response_id":"resp_0",
		"tools":[{"type":"function","name":"f","parameters":null,"strict":true}],"tool_choice":"auto","store":false,"max_output_tokens":5,"user":null}`)
	const head = `"id":"resp_1f","object":"response","created_at":1795176000,"model":"m","background":false,"error":null,
		"instructions":"i","max_output_tokens":5,"max_tool_calls":null,"parallel_tool_calls":true,"previous_response_id":"resp_0",
		"reasoning":{"effort":null,"summary":null},"service_tier":"default","store":false,"temperature":0.5,"text":{"format":{"type":"text"}},
		"tool_choice":"auto","tools":[{"type":"function","name":"f","parameters":null,"strict":true}],"top_logprobs":0,"top_p":1,
		"truncation":"disabled","user":null,"metadata":{"k":"v"},
		"usage":{"input_tokens":6,"input_tokens_details":{"cached_tokens":0,"cache_write_tokens":0},"output_tokens":2,"output_tokens_details":{"reasoning_tokens":0},"total_tokens":8}`
	require.JSONEq(t, `{`+head+`,"status":"completed","incomplete_details":null,"output":[
		{"id":"rs_1f","type":"reasoning","status":"completed","summary":[],"content":[{"type":"reasoning_text","text":"hm"}]},
		{"id":"msg_1f","type":"message","status":"completed","role":"assistant","content":[{"type":"output_text","text":"so <b>","annotations":[],"logprobs":[]}]},
		{"id":"fc_1f_0","type":"function_call","status":"completed","call_id":"call_1f_0","name":"f","arguments":"{\"a\": 1}"},
		{"id":"fc_1f_1","type":"function_call","status":"completed","call_id":"call_1f_1","name":"g","arguments":"{}"}]}`, encode(t, r, calling()))
	cut := plain("m", "")
	cut.Choices[0].Finish = wire.Length
	require.JSONEq(t, `{`+head+`,"status":"incomplete","incomplete_details":{"reason":"max_output_tokens"},"output":[
		{"id":"msg_1f","type":"message","status":"incomplete","role":"assistant","content":[{"type":"output_text","text":"","annotations":[],"logprobs":[]}]}]}`, encode(t, r, cut))
}

func TestLogprobsOfAResponseComeIfIncluded(t *testing.T) {
	t.Parallel()
	reply := plain("m", "é")
	reply.Choices[0].Logprobs = []wire.Token{{Text: "é", Logprob: -1}}
	asked := decode(t, wire.Responses, `{"input":"hi","include":["message.output_text.logprobs"]}`)
	require.Contains(t, encode(t, asked, reply), `"logprobs":[{"token":"é","logprob":-1,"bytes":[195,169],"top_logprobs":[]}]`)
	require.Contains(t, encode(t, decode(t, wire.Responses, `{"input":"hi"}`), reply), `"logprobs":[]`)
}

func TestAMessageHasTheWholeShape(t *testing.T) {
	t.Parallel()
	r := decode(t, wire.Messages, `{"model":"m",`+hi+`}`)
	const head = `"id":"msg_1f","type":"message","role":"assistant","model":"m",
		"usage":{"input_tokens":6,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":2}`
	require.JSONEq(t, `{`+head+`,"stop_reason":"tool_use","stop_sequence":null,"content":[
		{"type":"thinking","thinking":"hm","signature":"1f"},{"type":"text","text":"so <b>"},
		{"type":"tool_use","id":"call_1f_0","name":"f","input":{"a":1},"caller":{"type":"direct"}},
		{"type":"tool_use","id":"call_1f_1","name":"g","input":{},"caller":{"type":"direct"}}]}`, encode(t, r, calling()))
	for reason, c := range map[string]wire.Choice{
		`"stop_reason":"end_turn","stop_sequence":null`:       {Finish: wire.Stop},
		`"stop_reason":"max_tokens","stop_sequence":null`:     {Finish: wire.Length, Stopped: "END"},
		`"stop_reason":"stop_sequence","stop_sequence":"END"`: {Finish: wire.Stop, Stopped: "END"},
	} {
		reply := plain("m", "")
		c.Tokens = 2
		reply.Choices[0] = c
		require.JSONEq(t, `{`+head+`,`+reason+`,"content":[{"type":"text","text":""}]}`, encode(t, r, reply))
	}
}

func TestRepliesThatClientsCouldNotReadAreRefused(t *testing.T) {
	t.Parallel()
	with := func(calls ...dialog.ToolCall) wire.Reply {
		reply := plain("m", "")
		reply.Choices[0].Message.ToolCalls = calls
		return reply
	}
	for api, r := range minimal(t) {
		r.N = 1
		for _, reply := range []wire.Reply{
			{}, with(call("1", "f", "")), with(call("1", "f", `"a"`)), with(call("1", "f", `[]`)), with(call("1", "f", `{"a":`)), with(call("1", "f", `{}{}`)),
			with(call("", "f", `{}`)), with(call("1", "", `{}`)), with(call("1", "f", `{}`), call("2", "f", `null`)),
		} {
			_, err := r.Encode(reply)
			require.Error(t, err, api)
			_, err = r.Open(reply).End(reply)
			require.Error(t, err, api)
		}
	}
	_, err := decode(t, wire.Completions, `{"prompt":"a"}`).Encode(with(call("1", "f", `{}`)))
	require.Error(t, err, "a completion calls no tools")
}

func TestLogprobsBeyondJSONAreTheLeast(t *testing.T) {
	t.Parallel()
	r := decode(t, wire.Chat, `{"logprobs":true,`+hi+`}`)
	reply := plain("m", "a")
	for _, odd := range []float64{math.Inf(-1), math.NaN(), math.Inf(1)} {
		reply.Choices[0].Logprobs = []wire.Token{{Text: "a", Logprob: float32(odd)}}
		require.Contains(t, encode(t, r, reply), `"logprob":-9999`)
	}
}

func TestTheModelIsTheOneThatWasAskedFor(t *testing.T) {
	t.Parallel()
	for api, r := range minimal(t) {
		r.N = 1
		require.Equal(t, "m", whole(t, r, plain("", "a"))["model"], api)
		require.Equal(t, "served", whole(t, r, plain("served", "a"))["model"], api)
		end, err := r.Open(plain("", "a")).End(plain("", "a"))
		require.NoError(t, err)
		require.Equal(t, "m", bodyOf(t, api, string(end))["model"])
	}
}

// A reply that a client sends back is read as the same turn.
func TestARepliesWayBackIsTheSameTurn(t *testing.T) {
	t.Parallel()
	said := calling().Choices[0].Message
	chat := whole(t, decode(t, wire.Chat, `{`+hi+`}`), calling())["choices"].([]any)[0].(object)["message"]
	output := whole(t, decode(t, wire.Responses, `{"input":"hi"}`), calling())["output"]
	blocks := whole(t, decode(t, wire.Messages, `{`+hi+`}`), calling())["content"]
	said.ToolCalls[0].Function.Arguments = `{"a":1}` // Messages sends no text of arguments
	text := func(v any) string {
		body, err := json.Marshal(v)
		require.NoError(t, err)
		return strings.ReplaceAll(string(body), `{\"a\": 1}`, `{\"a\":1}`)
	}
	for api, body := range map[wire.API]string{
		wire.Chat:      `{"messages":[` + text(chat) + `]}`,
		wire.Responses: `{"input":` + text(output) + `}`,
		wire.Messages:  `{"messages":[{"role":"assistant","content":` + text(blocks) + `}]}`,
	} {
		require.Empty(t, cmp.Diff([]dialog.Message{said}, decode(t, api, body).Dialog), api)
	}
}

func TestTypedClientsReadReplies(t *testing.T) {
	t.Parallel()
	var chat openai.ChatCompletionResponse
	require.NoError(t, json.Unmarshal([]byte(encode(t, decode(t, wire.Chat, `{`+hi+`}`), calling())), &chat))
	require.Equal(t, openai.FinishReasonToolCalls, chat.Choices[0].FinishReason)
	require.Equal(t, `{"a": 1}`, chat.Choices[0].Message.ToolCalls[0].Function.Arguments)
	require.Equal(t, "hm", chat.Choices[0].Message.ReasoningContent)

	reply := plain("m", "a")
	reply.Choices[0].Logprobs = []wire.Token{{Text: "a", Logprob: -1}}
	var completion openai.CompletionResponse
	require.NoError(t, json.Unmarshal([]byte(encode(t, decode(t, wire.Completions, `{"prompt":"a","logprobs":1}`), reply)), &completion))
	require.Equal(t, "a", completion.Choices[0].Text)
	require.Equal(t, []string{"a"}, completion.Choices[0].LogProbs.Tokens)

	var response openai.CreateResponseResponse
	require.NoError(t, json.Unmarshal([]byte(encode(t, decode(t, wire.Responses, `{"input":"a"}`), calling())), &response))
	require.Len(t, response.Output, 4)
	require.Equal(t, 8, response.Usage.TotalTokens)
	require.Equal(t, openai.ResponseStatus("completed"), response.Status)
}
