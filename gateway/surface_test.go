package gateway_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/gateway"
	"github.com/fulgurite/fulgurite/model/tokenizer"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/wire"
)

func TestEveryAPIIsServedOutsideOfAttempts(t *testing.T) {
	t.Parallel()
	onProtocols(t, func(t *testing.T, p protocol) {
		s := newTestEnv(t, nil, serveVersions)
		s.replies = [][]int32{say("12", tokenizer.End), say("34", tokenizer.End)}
		whole := s.post(t, s.url+p.path, strings.Replace(p.asking("q", ""), `"m"`, `"demo@3"`, 1))
		require.Equal(t, http.StatusOK, whole.status, whole.body)
		require.Equal(t, "12", p.said(t, whole.body))
		streamed := s.post(t, s.url+p.path, strings.Replace(p.streaming("q"), `"m"`, `"demo@3"`, 1))
		require.Equal(t, "34", p.streamedText(t, streamed.body))
		require.Contains(t, streamed.body, p.end)
		require.Equal(t, 3, s.version[0].Number)
		require.Empty(t, s.recorded(t))
	})
}

func TestServedChoicesHaveSeedsOfTheirOwn(t *testing.T) {
	t.Parallel()
	s := newTestEnv(t, nil, serveVersions)
	a := s.post(t, s.url+"/v1/chat/completions", `{"model":"demo@3","n":3,"seed":7,"messages":[{"role":"user","content":"q"}]}`)
	require.Equal(t, http.StatusOK, a.status, a.body)
	seeds := map[uint64]bool{}
	for _, r := range s.requests() {
		seeds[r.Seed] = true
	}
	require.Equal(t, map[uint64]bool{7: true, 8: true, 9: true}, seeds)
	require.Len(t, choices(t, a.body), 3)
}

func TestAServedStreamTellsTokensAndEndsWithItsClient(t *testing.T) {
	t.Parallel()
	onProtocols(t, func(t *testing.T, p protocol) {
		s, d := newUnservedEnv(nil, serveVersions), make(tokenGate)
		s.beforeToken = d.beforeToken
		s.replies = [][]int32{say("12", tokenizer.End)}
		g := gateway.New(s.config)
		l := listenAt(t.Context(), g, p.path, strings.Replace(p.streaming("q"), `"m"`, `"demo@3"`, 1))
		d <- struct{}{}
		l.await(t, `"1"`)
		close(d)
		require.Equal(t, "12", p.streamedText(t, l.all()))
	})
}

func TestFailuresHaveTheShapeOfTheirAPI(t *testing.T) {
	t.Parallel()
	onProtocols(t, func(t *testing.T, p protocol) {
		s := newTestEnv(t, nil)
		for _, a := range []answer{
			s.send(t, p, `{`), s.send(t, p, `{}`), s.send(t, p, p.asking("q", ""), "Authorization", "Bearer wrong"),
			s.post(t, s.url+"/r/demo/train-3/17/2/9"+p.path, p.asking("q", "")),
		} {
			require.GreaterOrEqual(t, a.status, 400)
			require.Less(t, a.status, 500)
			body := object(t, a.body)
			require.NotEmpty(t, textAt(body, "error", "message"))
			require.NotEmpty(t, textAt(body, "error", "type"))
			if p.api == wire.Messages {
				require.Equal(t, "error", body["type"])
			} else {
				require.NotContains(t, body, "type")
			}
			require.Equal(t, "false", a.header.Get("X-Should-Retry"))
		}
	})
}

func TestTheKeyComesAsEitherSDKSendsIt(t *testing.T) {
	t.Parallel()
	onProtocols(t, func(t *testing.T, p protocol) {
		s := newTestEnv(t, nil)
		require.Equal(t, http.StatusOK, s.send(t, p, p.asking("q", ""), "Authorization", "", "X-Api-Key", key).status)
		require.Equal(t, http.StatusUnauthorized, s.send(t, p, p.asking("q", ""), "Authorization", "", "X-Api-Key", "sk-other").status)
		require.Equal(t, http.StatusUnauthorized, s.send(t, p, p.asking("q", ""), "Authorization", "").status)
		require.Len(t, s.recorded(t), 1)
	})
}

func TestModelsHaveTheShapeOfTheClientsAPI(t *testing.T) {
	t.Parallel()
	s := newTestEnv(t, nil, serveVersions)
	for _, url := range []string{s.base(), s.url} {
		list := object(t, s.do(t, http.MethodGet, url+"/v1/models", "Anthropic-Version", "2023-06-01").body)
		require.Contains(t, list, "has_more")
		require.Contains(t, textAt(list, "data", 0, "id"), "demo@")
		one := object(t, s.do(t, http.MethodGet, url+"/v1/models/demo@3", "Anthropic-Version", "2023-06-01").body)
		require.Equal(t, "model", one["type"])
		one = object(t, s.do(t, http.MethodGet, url+"/v1/models/demo@3").body)
		require.Equal(t, "model", one["object"])
	}
	missing := s.do(t, http.MethodGet, s.url+"/v1/models/demo@99", "Anthropic-Version", "2023-06-01")
	require.Equal(t, http.StatusNotFound, missing.status)
	require.Equal(t, "not_found_error", textAt(object(t, missing.body), "error", "type"))
}

func TestTokensAreCountedAsTheyWouldBeSampledAfter(t *testing.T) {
	t.Parallel()
	s := newTestEnv(t, nil, serveVersions)
	const body = `{"model":"demo@3","system":"s","messages":[{"role":"user","content":"q"}]}`
	for _, url := range []string{s.base(), s.url} {
		a := s.post(t, url+"/v1/messages/count_tokens", body)
		require.Equal(t, http.StatusOK, a.status, a.body)
		require.JSONEq(t, `{"input_tokens":7}`, a.body)
	}
	s.post(t, s.base()+"/v1/messages", strings.Replace(body, `{`, `{"max_tokens":9,`, 1))
	require.Len(t, s.requests()[0].Prompt, 7)
	require.Len(t, s.requests(), 1, "counting samples nothing")
}

func TestCompletionsAreSampledAfterTheBarePrompt(t *testing.T) {
	t.Parallel()
	s := newTestEnv(t, nil)
	url := s.base() + "/v1/completions"
	s.replies = [][]int32{say("4", tokenizer.ToolCall, "5", tokenizer.End)}
	a := s.post(t, url, `{"prompt":"2+2="}`)
	require.Equal(t, "4<call>5", textAt(object(t, a.body), "choices", 0, "text"), "nothing is a tool call here")
	require.Equal(t, say("2+2="), s.requests()[0].Prompt)
	require.Empty(t, s.recorded(t)[0].ParseError)
	// What was sampled is continued by its ids.
	s.restart(t)
	a = s.post(t, url, `{"prompt":[`+ids(s.recorded(t)[0].Prompt)+`,`+ids(s.recorded(t)[0].Completion)+`,11]}`)
	require.Equal(t, http.StatusOK, a.status, a.body)
	require.Equal(t, []int{-1, 0}, s.parents(t))
	require.Len(t, record.Merge(record.Calls(s.recorded(t))), 1)
	require.Equal(t, http.StatusOK, s.post(t, url, `{"prompt":["one"]}`).status)
	require.Equal(t, say("one"), s.requests()[2].Prompt)
	// A dialog does not go on from a completion.
	s.chat(t, request(message("assistant", "4<call>5"), message("user", "q")))
	require.Equal(t, -1, s.recorded(t)[3].Parent)

	for body, param := range map[string]string{
		`{"prompt":["a","b"]}`: "prompt", `{"prompt":""}`: "prompt", `{}`: "prompt", `{"prompt":[288]}`: "prompt", `{"prompt":[-1]}`: "prompt", `{"prompt":[[1],[2]]}`: "prompt",
	} {
		a := s.post(t, url, body)
		if body == `{"prompt":[-1]}` {
			require.Equal(t, http.StatusBadRequest, a.status, a.body)
			continue
		}
		requireRefusal(t, a, http.StatusBadRequest, "invalid_value", param)
	}
}

func TestLogprobsAreToldOnRequestWholeAndStreamed(t *testing.T) {
	t.Parallel()
	s := newTestEnv(t, nil)
	s.replies = [][]int32{say("12", tokenizer.End)}
	const asked = `"logprobs":true,"messages":[{"role":"user","content":"q"}]}`
	streamed := s.chat(t, `{"stream":true,`+asked, requestName, "e1")
	var tokens []string
	for _, e := range events(t, streamed.body) {
		if token := textAt(e, "choices", 0, "logprobs", "content", 0, "token"); token != "" {
			tokens = append(tokens, token)
		}
	}
	require.Equal(t, []string{"1", "2"}, tokens)
	whole := s.chat(t, `{`+asked, requestName, "e1", retry, "1")
	require.Contains(t, whole.body, `"token":"2","logprob":-1`)
	require.NotContains(t, s.chat(t, ask("q")).body, `"token"`)
}

// Whatever a client sends by whichever API, the gateway answers and never blames
// itself.
func FuzzEveryAPI(f *testing.F) {
	for i, p := range protocols() {
		f.Add(uint8(i), []byte(p.asking("q", "")))
		f.Add(uint8(i), []byte(p.richly("q")))
	}
	f.Add(uint8(0), []byte(`{"n":2,"stream":true,"stop":["1"],"tool_choice":"required","tools":[{"function":{"name":"f"}}],"messages":[{"role":"user"}]}`))
	f.Add(uint8(1), []byte(`{"prompt":[1,2],"logprobs":2,"n":2,"stream":true}`))
	f.Add(uint8(2), []byte(`{"previous_response_id":"resp_1","input":[]}`))
	f.Fuzz(func(t *testing.T, which uint8, body []byte) {
		p := protocols()[int(which)%4]
		s := newUnservedEnv(nil, form)
		s.replies = [][]int32{say(tokenizer.ToolCall, "{}", tokenizer.End), say("a", tokenizer.ToolCall, "{}", tokenizer.End), say("1\xff2", tokenizer.End)}
		send := func(headers ...string) *listener {
			return listen(t.Context(), gateway.New(s.config), address, p.path, string(body), headers...)
		}
		first := send(requestName, "e1")
		sent := first.all()
		if first.status != http.StatusOK {
			require.GreaterOrEqual(t, first.status, 400, sent)
			require.Less(t, first.status, 500, sent)
			require.Empty(t, s.recorded(t))
			return
		}
		require.False(t, first.broken, sent)
		require.NotEmpty(t, s.recorded(t))
		sampled := len(s.requests())
		require.Equal(t, sent, send(requestName, "e1", retry, "1").all(), "read back, it is the same")
		require.Len(t, s.requests(), sampled)
	})
}

// ids writes tokens as JSON does, without the brackets.
func ids(tokens []int32) string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(tokens), " ", ","), "[]")
}
