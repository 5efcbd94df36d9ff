package gateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sashabaranov/go-openai"
	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/gateway"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/tokenizer"
	"github.com/fulgurite/fulgurite/record"
)

// refusal is an error in OpenAI's shape.
type refusal struct {
	Error struct {
		Message, Type string
		Param, Code   *string
	}
}

func requireRefusal(t *testing.T, a answer, status int, code, param string) {
	t.Helper()
	require.Equal(t, status, a.status, a.body)
	var r refusal
	require.NoError(t, json.Unmarshal([]byte(a.body), &r), a.body)
	require.NotEmpty(t, r.Error.Message)
	require.Equal(t, code, *r.Error.Code)
	if param == "" {
		require.Nil(t, r.Error.Param)
	} else {
		require.Equal(t, param, *r.Error.Param)
	}
	if status < 500 {
		require.Equal(t, "invalid_request_error", r.Error.Type)
		require.Empty(t, a.header.Get("X-Fulgurite-Fault"))
		require.Equal(t, "false", a.header.Get("X-Should-Retry"))
	}
}

func TestBadRequestsAreRefusedByField(t *testing.T) {
	t.Parallel()
	s := newTestEnv(t, nil)
	const hi = `"messages":[{"role":"user","content":"hi"}]`
	for body, want := range map[string]struct{ code, param string }{
		``:                            {"invalid_json", ""},
		`{`:                           {"invalid_json", ""},
		`[]`:                          {"invalid_body", ""},
		`7`:                           {"invalid_body", ""},
		`{}`:                          {"invalid_value", "messages"},
		`{"messages":[]}`:             {"invalid_value", "messages"},
		`{"messages":{}}`:             {"invalid_value", "messages"},
		`{"n":129,` + hi + `}`:        {"invalid_value", "n"},
		`{"n":0,` + hi + `}`:          {"invalid_value", "n"},
		`{"stream":7,` + hi + `}`:     {"invalid_value", "stream"},
		`{"max_tokens":0,` + hi + `}`: {"invalid_value", "max_tokens"},
		`{"max_completion_tokens":1.5,` + hi + `}`:                                       {"invalid_value", "max_completion_tokens"},
		`{"tool_choice":"required",` + hi + `}`:                                          {"invalid_value", "tool_choice"},
		`{"tool_choice":{"type":"function","function":{"name":"f"}},` + hi + `}`:         {"invalid_value", "tool_choice"},
		`{"tools":[{"type":"custom","custom":{"name":"x"}}],` + hi + `}`:                 {"invalid_value", "tools[0].type"},
		`{"tools":[{"type":"function","function":{}}],` + hi + `}`:                       {"invalid_value", "tools[0].function.name"},
		`{"messages":[{"role":"user","content":"a"},{"role":"function"}]}`:               {"invalid_value", "messages[1].role"},
		`{"messages":[{"content":"a"}]}`:                                                 {"invalid_value", "messages[0].role"},
		`{"messages":[{"role":"user","content":7}]}`:                                     {"invalid_value", "messages[0].content"},
		`{"messages":[{"role":"user","content":[7]}]}`:                                   {"invalid_value", "messages[0].content[0]"},
		`{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{}}]}]}`: {"invalid_value", "messages[0].content[0].type"},
		`{"messages":[{"role":"user","tool_calls":[{"id":"x"}]}]}`:                       {"invalid_value", "messages[0].tool_calls"},
	} {
		requireRefusal(t, s.chat(t, body), http.StatusBadRequest, want.code, want.param)
	}
	require.Empty(t, s.requests())
}

func TestOddButHarmlessRequestsAreAnswered(t *testing.T) {
	t.Parallel()
	s := newTestEnv(t, nil)
	const hi = `"messages":[{"role":"user","content":"hi"}]`
	for _, body := range []string{
		`{` + hi + `}`,
		`{"model":null,"n":1,"stream":null,"tools":null,"tool_choice":null,"stop":["x"],"logit_bias":{},` + hi + `}`,
		`{"model":{"odd":1},"max_tokens":null,"temperature":null,"seed":"odd",` + hi + `}`,
		`{"messages":[{"role":"assistant","content":null},{"role":"user","content":["a",{"type":"input_text","text":"b"}]}]}`,
		`{"messages":[{"role":"assistant","content":[{"type":"refusal","refusal":"no"}],"tool_calls":[{"function":{"name":"f","arguments":{"a":1}}},{"id":"","function":{"name":"f"}}]},{"role":"tool","content":null}]}`,
		`{"tools":[{"function":{"name":"f"}},{"type":"function","function":{"name":"g","parameters":null,"strict":true}}],` + hi + `}`,
		`{"tool_choice":"none","tools":[{"type":"function","function":{"name":"f"}}],` + hi + `}`,
	} {
		a := s.chat(t, body)
		require.Equal(t, http.StatusOK, a.status, "%s: %s", body, a.body)
	}
}

func TestToolsThatAreForbiddenAreNotCalled(t *testing.T) {
	t.Parallel()
	s := newTestEnv(t, nil)
	s.replies = [][]int32{say(tokenizer.ToolCall, "{}", tokenizer.End)}
	a := s.chat(t, `{"tool_choice":"none","tools":[{"type":"function","function":{"name":"f"}}],"messages":[{"role":"user","content":"a"}]}`)
	var reply openai.ChatCompletionResponse
	require.NoError(t, json.Unmarshal([]byte(a.body), &reply))
	require.Empty(t, reply.Choices[0].Message.ToolCalls)
	require.Equal(t, openai.FinishReasonStop, reply.Choices[0].FinishReason)
}

func TestOnlyTheKeyOfTheAttemptOpensIt(t *testing.T) {
	t.Parallel()
	s := newTestEnv(t, nil)
	other := address
	other.Sample = 3
	s.Begin(record.Attempt{Address: other, Terms: terms, KeyHash: hash("sk-other")})
	keyless := address
	keyless.Sample = 4
	s.Begin(record.Attempt{Address: keyless, Terms: terms})
	chat := func(a record.Address) string { return s.url + "/r/" + a.String() + "/v1/chat/completions" }

	requireRefusal(t, s.post(t, chat(address), ask("a"), "Authorization", ""), http.StatusUnauthorized, "invalid_api_key", "")
	requireRefusal(t, s.post(t, chat(address), ask("a"), "Authorization", "Basic "+key), http.StatusUnauthorized, "invalid_api_key", "")
	requireRefusal(t, s.post(t, chat(address), ask("a"), "Authorization", "Bearer "), http.StatusUnauthorized, "invalid_api_key", "")
	requireRefusal(t, s.post(t, chat(address), ask("a"), "Authorization", "Bearer wrong"), http.StatusUnauthorized, "invalid_api_key", "")
	requireRefusal(t, s.post(t, chat(address), ask("a"), "Authorization", "Bearer "+hash(key)), http.StatusUnauthorized, "invalid_api_key", "")
	requireRefusal(t, s.post(t, chat(other), ask("a")), http.StatusUnauthorized, "invalid_api_key", "")
	requireRefusal(t, s.post(t, chat(keyless), ask("a")), http.StatusUnauthorized, "invalid_api_key", "")
	require.Empty(t, s.requests())

	require.Equal(t, http.StatusOK, s.post(t, chat(address), ask("a"), "Authorization", "bearer "+key).status)
	require.Equal(t, http.StatusOK, s.post(t, chat(address), ask("a"), "Authorization", "", "X-Api-Key", key).status)
	require.Equal(t, http.StatusOK, s.post(t, chat(other), ask("a"), "Authorization", "Bearer sk-other").status)
}

func TestUnknownPlacesAreNotFound(t *testing.T) {
	t.Parallel()
	s := newTestEnv(t, nil)
	requireRefusal(t, s.post(t, s.url+"/r/demo/train-3/17/2/9/v1/chat/completions", ask("a")), http.StatusNotFound, "not_found", "")
	for _, path := range []string{
		"/r/demo/train-3/17/2/01/v1/chat/completions", "/r/demo/nap-3/17/2/1/v1/chat/completions", "/r/Demo/train-3/17/2/1/v1/models",
		"/r/demo/train-3/17/2/1/v1/audio/speech", "/nowhere", "/r/demo/train-3/17/2/1/n/" + strings.Repeat("a", 129) + "/v1/chat/completions", "/v1/chat/completions",
	} {
		requireRefusal(t, s.post(t, s.url+path, ask("a")), http.StatusNotFound, "unknown_url", "")
	}
}

func TestAttemptsThatAreOverTakeNoCalls(t *testing.T) {
	t.Parallel()
	second := record.Attempt{Address: address, Terms: terms, KeyHash: hash("sk-2")}
	second.Attempt = 2
	for name, end := range map[string]func(*testEnv){
		"sealed":   func(s *testEnv) { s.Seal(address, record.OutcomeCompleted) },
		"replaced": func(s *testEnv) { s.Begin(second) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newTestEnv(t, nil)
			require.Equal(t, http.StatusOK, s.chat(t, ask("a")).status)
			end(s)
			requireRefusal(t, s.chat(t, ask("b")), http.StatusConflict, "attempt_fenced", "")
			sampled := len(s.requests())
			requireRefusal(t, s.chat(t, ask("a"), "X-Fulgurite-Retry", "1"), http.StatusConflict, "attempt_fenced", "")
			require.Len(t, s.requests(), sampled, "a gateway that knows does not sample")
			s.restart(t)
			requireRefusal(t, s.chat(t, ask("c")), http.StatusConflict, "attempt_fenced", "")
			if name == "sealed" { // only the journal's refusal shows that an attempt was replaced
				require.Len(t, s.requests(), sampled)
			}
			require.Len(t, s.recorded(t), 1)
		})
	}
}

func TestLimitsEndAnAttempt(t *testing.T) {
	t.Parallel()
	t.Run("calls", func(t *testing.T) {
		t.Parallel()
		s := newTestEnv(t, func(a *record.Attempt) { a.Terms.MaxCalls = 2 })
		first := s.chat(t, ask("a"))
		require.Equal(t, http.StatusOK, s.chat(t, ask("b")).status)
		requireRefusal(t, s.chat(t, ask("c")), http.StatusBadRequest, "call_limit", "")
		require.Equal(t, first.body, s.chat(t, ask("a"), "X-Stainless-Retry-Count", "1").body, "a retry costs nothing")
		s.restart(t)
		requireRefusal(t, s.chat(t, ask("c")), http.StatusBadRequest, "call_limit", "")
	})
	t.Run("tokens", func(t *testing.T) {
		t.Parallel()
		s := newTestEnv(t, func(a *record.Attempt) { a.Terms.TokenBudget = 5 })
		s.replies = [][]int32{say("12", tokenizer.End), say("345", tokenizer.End)}
		require.Equal(t, http.StatusOK, s.chat(t, ask("a")).status)
		require.Contains(t, s.chat(t, ask("b")).body, `"finish_reason":"length"`)
		require.Equal(t, 2, s.requests()[1].MaxTokens, "no more than is left")
		requireRefusal(t, s.chat(t, ask("c")), http.StatusBadRequest, "token_limit", "")
		s.restart(t)
		requireRefusal(t, s.chat(t, ask("c")), http.StatusBadRequest, "token_limit", "")
	})
	t.Run("positions", func(t *testing.T) {
		t.Parallel()
		s := newTestEnv(t, nil)
		s.gate = func(_ context.Context) error { return fmt.Errorf("%w: 70 of 64 positions", model.ErrPromptTooLong) }
		requireRefusal(t, s.chat(t, ask("a")), http.StatusBadRequest, "context_length_exceeded", "messages")
		require.Empty(t, s.recorded(t))
	})
}

func TestAnUnknownCodecIsOurFault(t *testing.T) {
	t.Parallel()
	s := newTestEnv(t, func(a *record.Attempt) { a.Terms.Codec = "verbose" })
	a := s.chat(t, ask("a"))
	require.Equal(t, http.StatusServiceUnavailable, a.status)
	require.Equal(t, "infrastructure", a.header.Get("X-Fulgurite-Fault"))
}

// Whatever a client sends, the gateway answers, never blames itself, and records
// what it answered.
func FuzzRequestsAreNeverOurFault(f *testing.F) {
	for _, seed := range []string{
		ask("1+1"), `{"messages":[{"role":"tool","tool_call_id":"x"},{"role":"assistant","tool_calls":[{"id":"x","function":{"name":"f","arguments":"{"}}]}]}`,
		`{"tools":[{"function":{"name":"f","parameters":{"properties":{"a":{"type":["string"]}},"required":["a"]}}}],"messages":[{"role":"user","content":[{"type":"text","text":"\ud800"}]}]}`,
		`{"messages":[{"role":"user"}],"max_tokens":1e300}`, `{"messages":[{"role":"system","content":"\u0000"}],"logprobs":true}`, "\xff", `null`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		s := newUnservedEnv(nil)
		s.replies = [][]int32{say("a", tokenizer.ToolCall, "{}", tokenizer.End)}
		send := func(r *http.Request) *httptest.ResponseRecorder {
			w := httptest.NewRecorder()
			gateway.New(s.config).ServeHTTP(w, r)
			return w
		}
		first := send(chatRequest(t.Context(), string(body)))
		calls := s.recorded(t)
		if first.Code != http.StatusOK {
			require.GreaterOrEqual(t, first.Code, 400)
			require.Less(t, first.Code, 500, first.Body)
			require.Empty(t, calls)
			return
		}
		require.Len(t, calls, 1)
		require.JSONEq(t, string(calls[0].Response), first.Body.String())
		// Read back by a gateway that knows nothing, the same request is the same.
		again := chatRequest(t.Context(), string(body))
		again.Header.Set("X-Fulgurite-Retry", "1")
		require.Equal(t, first.Body.String(), send(again).Body.String())
	})
}
