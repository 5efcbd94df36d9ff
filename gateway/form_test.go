package gateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/gateway"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/tokenizer"
	"github.com/fulgurite/fulgurite/wire"
)

const (
	functions = `"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object"}}},{"type":"function","function":{"name":"g","parameters":{"type":"object"}}}],`
	schema    = `{"type":"object","properties":{"a":{"type":"integer"}}}`
)

// formOf returns the form that a call was held to, nil if it was free.
func formOf(t *testing.T, raw json.RawMessage) *model.Form {
	t.Helper()
	if raw == nil {
		return nil
	}
	f := &model.Form{}
	require.NoError(t, json.Unmarshal(raw, f))
	return f
}

func TestStopTextsEndAReplyAndAreCutFromIt(t *testing.T) {
	t.Parallel()
	onProtocols(t, func(t *testing.T, p protocol) {
		s := newTestEnv(t, nil, form)
		s.replies = [][]int32{say("1=2==3===4", tokenizer.End)}
		field := `"stop":["===","never"],`
		if p.end == "message_stop" {
			field = `"stop_sequences":["===","never"],`
		}
		streamed := s.send(t, p, p.asking("q", field+`"stream":true,`), requestName, "e1")
		require.Equal(t, http.StatusOK, streamed.status, streamed.body)
		require.Equal(t, "1=2==3", p.streamedText(t, streamed.body))
		c := s.recorded(t)[0]
		require.Equal(t, say("1=2==3==="), c.Completion, "what was sampled is on record")
		require.Equal(t, "stop", c.Finish)
		require.Equal(t, &model.Form{Codec: "compact", Stop: []string{"===", "never"}, Bare: p.api == wire.Completions}, formOf(t, c.Form))
		require.Equal(t, formOf(t, c.Form), s.requests()[0].Form)

		s.restart(t)
		whole := s.send(t, p, p.asking("q", field), requestName, "e1", retry, "1")
		require.Equal(t, "1=2==3", p.said(t, whole.body))
		require.Equal(t, streamed.body, s.send(t, p, p.asking("q", field+`"stream":true,`), requestName, "e1", retry, "1").body)
		if p.end == "message_stop" {
			require.Contains(t, whole.body, `"stop_sequence":"==="`)
		}
	}, wire.Responses) // has no stop texts
}

func TestAStoppedReplyIsContinuedFromItsTokens(t *testing.T) {
	t.Parallel()
	s := newTestEnv(t, nil, form)
	s.replies = [][]int32{say("12=", tokenizer.End)}
	s.chat(t, `{"stop":"=","messages":[{"role":"user","content":"a"}]}`)
	s.restart(t)
	s.chat(t, request(message("user", "a"), message("assistant", "12"), message("user", "b")))
	require.Equal(t, "<user>a<end><assistant>12=<end><user>b<end><assistant>", text(s.requests()[1].Prompt))
	require.Equal(t, 0, s.recorded(t)[1].Parent)
}

func TestFormsReachTheSamplerAndTheRecord(t *testing.T) {
	t.Parallel()
	both := []model.FormTool{{Name: "f", Parameters: []byte(`{"type":"object"}`)}, {Name: "g", Parameters: []byte(`{"type":"object"}`)}}
	for name, c := range map[string]struct {
		path, body string
		want       *model.Form
	}{
		"free":            {"chat/completions", `{` + functions + `"messages":[{"role":"user","content":"q"}]}`, nil},
		"json_object":     {"chat/completions", `{"response_format":{"type":"json_object"},"messages":[{"role":"user","content":"q"}]}`, &model.Form{Codec: "compact", Schema: []byte(`{}`)}},
		"json_schema":     {"chat/completions", `{"response_format":{"type":"json_schema","json_schema":{"name":"n","schema":` + schema + `}},"messages":[{"role":"user","content":"q"}]}`, &model.Form{Codec: "compact", Schema: []byte(schema)}},
		"text.format":     {"responses", `{"text":{"format":{"type":"json_schema","name":"n","schema":` + schema + `}},"input":"q"}`, &model.Form{Codec: "compact", Schema: []byte(schema)}},
		"required":        {"chat/completions", `{"tool_choice":"required",` + functions + `"messages":[{"role":"user","content":"q"}]}`, &model.Form{Codec: "compact", Call: true, Tools: both}},
		"named":           {"chat/completions", `{"tool_choice":{"type":"function","function":{"name":"g"}},` + functions + `"messages":[{"role":"user","content":"q"}]}`, &model.Form{Codec: "compact", Call: true, Tools: both[1:]}},
		"any of Messages": {"messages", `{"max_tokens":9,"tool_choice":{"type":"any"},"tools":[{"name":"f","input_schema":{"type":"object"}}],"messages":[{"role":"user","content":"q"}]}`, &model.Form{Codec: "compact", Call: true, Tools: both[:1]}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newTestEnv(t, nil, form)
			reply := say("{}", tokenizer.End)
			if c.want != nil && c.want.Call {
				reply = say(tokenizer.ToolCall, c.want.Tools[0].Name, tokenizer.Argument, "{}", tokenizer.End)
			}
			s.replies = [][]int32{reply}
			a := s.post(t, s.base()+"/v1/"+c.path, c.body)
			require.Equal(t, http.StatusOK, a.status, a.body)
			require.Equal(t, c.want, s.requests()[0].Form)
			call := s.recorded(t)[0]
			require.Equal(t, c.want, formOf(t, call.Form))
			require.Empty(t, call.ParseError)
			if c.want == nil {
				require.Nil(t, call.Untrained)
				return
			}
			require.Len(t, call.Untrained, len(reply), "tokens that had no alternative are told apart")
			require.True(t, call.Untrained[1])
			require.False(t, call.Untrained[0])
		})
	}
}

func TestFormsThatTheCodecCannotHoldAreRefusedByField(t *testing.T) {
	t.Parallel()
	s := newTestEnv(t, nil, form, serveVersions)
	const refused = `{"properties":{"refused":{}}}`
	for _, url := range []string{s.base(), s.url} {
		a := s.post(t, url+"/v1/chat/completions", `{"model":"demo@3","response_format":{"type":"json_schema","json_schema":{"name":"n","schema":`+refused+`}},"messages":[{"role":"user","content":"q"}]}`)
		requireRefusal(t, a, http.StatusBadRequest, "unsupported_form", "response_format")
		require.Contains(t, a.body, "/properties/refused")
		requireRefusal(t, s.post(t, url+"/v1/responses", `{"model":"demo@3","text":{"format":{"type":"json_schema","name":"n","schema":`+refused+`}},"input":"q"}`),
			http.StatusBadRequest, "unsupported_form", "text.format")
	}
	require.Empty(t, s.requests())
}

func TestAFormThatTheSamplerCannotHoldIsNoFault(t *testing.T) {
	t.Parallel()
	s := newTestEnv(t, nil)
	s.gate = func(context.Context) error { return fmt.Errorf("%w: this sampler supports no forms", model.ErrForm) }
	requireRefusal(t, s.chat(t, `{"stop":"x","messages":[{"role":"user","content":"q"}]}`), http.StatusBadRequest, "unsupported_form", "")
	require.Empty(t, s.recorded(t))
}

func TestOtherFormsAreOtherRequests(t *testing.T) {
	t.Parallel()
	s := newTestEnv(t, nil, form)
	bodies := []string{
		`{"messages":[{"role":"user","content":"q"}]}`,
		`{"stop":"x","messages":[{"role":"user","content":"q"}]}`,
		`{"stop":["y","x"],"messages":[{"role":"user","content":"q"}]}`,
		`{"response_format":{"type":"json_object"},"messages":[{"role":"user","content":"q"}]}`,
		`{"response_format":{"type":"json_schema","json_schema":{"name":"n","schema":` + schema + `}},"messages":[{"role":"user","content":"q"}]}`,
		`{"parallel_tool_calls":false,"messages":[{"role":"user","content":"q"}]}`,
	}
	keys := map[string]bool{}
	for _, b := range bodies {
		s.replies = [][]int32{say("{}", tokenizer.End)}
		require.Equal(t, http.StatusOK, s.chat(t, b).status)
	}
	for _, c := range s.recorded(t) {
		keys[c.Key] = true
	}
	require.Len(t, keys, len(bodies))
	// The key leaves out what can't matter: order, spaces, names, streaming.
	s.chat(t, `{"stop":["x","y"],"stream":true,"stream_options":{"include_usage":true},"user":"u","metadata":{"a":"b"},"store":true,"parallel_tool_calls":true,"messages":[{"role":"user","content":"q"}]}`)
	s.replies = [][]int32{say("{}", tokenizer.End)}
	s.chat(t, `{"response_format":{"type":"json_schema","json_schema":{"name":"other","strict":true,"schema":{"properties": {"a":{"type":"integer"}}, "type":"object"}}},"messages":[{"role":"user","content":"q"}]}`)
	calls := s.recorded(t)
	require.Equal(t, calls[2].Key, calls[6].Key)
	require.Equal(t, calls[4].Key, calls[7].Key)
}

func TestChatKeysAreThoseOfOlderReleases(t *testing.T) {
	t.Parallel()
	s := newTestEnv(t, nil)
	s.chat(t, `{"model":"m","messages":[{"role":"system","content":"s"},{"role":"user","content":"q"}],"tools":[{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object"}}}]}`)
	c := s.recorded(t)[0]
	require.Equal(t, "46510167955c323e81512cacd094a094fe0e0899b9084b7222330166d33e276e", c.Key)
	require.Equal(t, "chatcmpl-00cf0294b74942e7e187dba2", c.ID)
	require.Equal(t, uint64(15082532931600888454), c.Seed)
	require.Equal(t, `{"id":"chatcmpl-00cf0294b74942e7e187dba2","object":"chat.completion","created":1795176000,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"454","refusal":null},"logprobs":null,"finish_reason":"stop"}],"usage":{"prompt_tokens":7,"completion_tokens":4,"total_tokens":11}}`,
		string(c.Response))
}

func TestOneToolCallAtMostIsKeptWhereTheRequestWantsIt(t *testing.T) {
	t.Parallel()
	s := newTestEnv(t, nil)
	s.replies = [][]int32{say(tokenizer.ToolCall, "f", tokenizer.Argument, "{}", tokenizer.ToolCall, "g", tokenizer.Argument, "{}", tokenizer.End)}
	a := s.chat(t, `{"parallel_tool_calls":false,`+functions+`"messages":[{"role":"user","content":"q"}]}`)
	require.Equal(t, 1, strings.Count(a.body, `"name"`), a.body)
	c := s.recorded(t)[0]
	require.Empty(t, c.ParseError)
	id := "call_" + strings.TrimPrefix(c.ID, "chatcmpl-") + "_0"
	s.restart(t)
	s.chat(t, `{`+functions+`"messages":[{"role":"user","content":"q"},{"role":"assistant","tool_calls":[{"id":"`+id+`","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"`+id+`","content":"1"}]}`)
	require.Equal(t, 0, s.recorded(t)[1].Parent)
	require.Contains(t, text(s.requests()[1].Prompt), "<call>g<arg>{}", "the policy goes on from all that it said")
}

func TestOnlyToolsThatAreAllowedAreCalled(t *testing.T) {
	t.Parallel()
	s := newTestEnv(t, nil)
	s.replies = [][]int32{say(tokenizer.ToolCall, "f", tokenizer.Argument, "{}", tokenizer.End)}
	a := s.chat(t, `{"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[{"type":"function","function":{"name":"g"}}]}},`+functions+`"messages":[{"role":"user","content":"q"}]}`)
	require.Equal(t, http.StatusOK, a.status, a.body)
	require.NotContains(t, a.body, `"tool_calls"`)
	require.Equal(t, `call of the unknown tool "f"`, s.recorded(t)[0].ParseError)
}

func TestServedRepliesObeyForms(t *testing.T) {
	t.Parallel()
	s := newTestEnv(t, nil, form, serveVersions)
	s.replies = [][]int32{say("12=3", tokenizer.End)}
	a := s.post(t, s.url+"/v1/chat/completions", `{"model":"demo@3","stop":"=","top_p":0.5,"messages":[{"role":"user","content":"q"}]}`)
	require.Equal(t, "12", content(t, a.body))
	require.InDelta(t, 0.5, s.requests()[0].TopP, 0)
	require.Equal(t, gateway.Stats{}, gateway.New(s.config).Stats())
}

func TestTheCompactCodecHoldsRepliesToTheirForm(t *testing.T) {
	t.Parallel()
	s := newTestEnv(t, nil)
	s.replies = [][]int32{say(`{"a":7}`, tokenizer.End), say(tokenizer.ToolCall, "g", tokenizer.Argument, "{}", tokenizer.End)}
	a := s.chat(t, `{"response_format":{"type":"json_schema","json_schema":{"name":"n","schema":`+schema+`}},"messages":[{"role":"user","content":"q"}]}`)
	require.JSONEq(t, `{"a":7}`, content(t, a.body))
	a = s.chat(t, `{"tool_choice":"required",`+functions+`"messages":[{"role":"user","content":"q"}]}`)
	require.Equal(t, "g", textAt(object(t, a.body), "choices", 0, "message", "tool_calls", 0, "function", "name"), a.body)
	requireRefusal(t, s.chat(t, `{"response_format":{"type":"json_schema","json_schema":{"name":"n","schema":{"type":"object","not":{}}}},"messages":[{"role":"user","content":"q"}]}`),
		http.StatusBadRequest, "unsupported_form", "response_format")
}
