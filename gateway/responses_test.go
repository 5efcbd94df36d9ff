package gateway_test

import (
	"fmt"
	"net/http"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/model/tokenizer"
)

// respond makes a call by Responses and returns its id.
func (s *testEnv) respond(t *testing.T, attempt int, body string) string {
	t.Helper()
	a := s.post(t, s.url+"/r/"+at(attempt).String()+"/v1/responses", body)
	require.Equal(t, http.StatusOK, a.status, a.body)
	return textAt(object(t, a.body), "id")
}

func (s *testEnv) do(t *testing.T, method, url string, headers ...string) answer {
	t.Helper()
	a, err := s.try(t.Context(), method, url, "", headers...)
	require.NoError(t, err)
	return a
}

func TestRequestsContinueAReplyByName(t *testing.T) {
	t.Parallel()
	for _, restarted := range []bool{false, true} {
		t.Run(fmt.Sprintf("restarted %t", restarted), func(t *testing.T) {
			t.Parallel()
			onJournals(t, func(t *testing.T, s *testEnv) {
				odd := say(int32(32+'7'), tokenizer.End) // as no encoding would spell it
				s.replies = [][]int32{say("1", tokenizer.End), odd, say("3", tokenizer.End)}
				first := s.respond(t, 1, `{"instructions":"be brief","input":"a"}`)
				if restarted {
					s.restart(t)
				}
				second := s.respond(t, 1, `{"instructions":"be long","previous_response_id":"`+first+`","input":[{"role":"user","content":"b"}]}`)
				if restarted {
					s.restart(t)
				}
				s.respond(t, 1, `{"previous_response_id":"`+second+`","input":"c"}`)
				asked := s.requests()
				require.Equal(t, "<system>be brief<end><user>a<end><assistant>", text(asked[0].Prompt))
				require.Equal(t, "<system>be long<end><user>a<end><assistant>1<end><user>b<end><assistant>", text(asked[1].Prompt))
				require.Equal(t, "<user>a<end><assistant>1<end><user>b<end><assistant>7<end><user>c<end><assistant>", text(asked[2].Prompt), "instructions do not carry over")
			})
		})
	}
}

func TestANamedReplyIsContinuedByItsTokens(t *testing.T) {
	t.Parallel()
	onJournals(t, func(t *testing.T, s *testEnv) {
		odd := say(int32(32+'7'), tokenizer.End)
		s.replies = [][]int32{odd, say("7", tokenizer.End), odd, say("9", tokenizer.End), say("9", tokenizer.End)}
		first := s.respond(t, 1, `{"input":"a"}`)
		second := s.respond(t, 1, `{"input":"a"}`) // another sample that says the same
		s.restart(t)
		named := s.respond(t, 1, `{"previous_response_id":"`+first+`","input":"b"}`)
		require.Equal(t, 0, s.calls(t, 1)[2].Parent, "not the last that said so")
		require.True(t, slices.Contains(s.requests()[2].Prompt, int32(32+'7')))
		s.respond(t, 1, `{"previous_response_id":"`+second+`","input":"b"}`)
		require.Equal(t, 1, s.calls(t, 1)[3].Parent)
		s.respond(t, 1, `{"previous_response_id":"`+named+`","input":"c"}`)
		require.Equal(t, 2, s.calls(t, 1)[4].Parent)
	})
}

func TestToolResultsContinueANamedReply(t *testing.T) {
	t.Parallel()
	s := newTestEnv(t, nil)
	s.replies = [][]int32{say(tokenizer.ToolCall, "7*3", tokenizer.End), say("21", tokenizer.End)}
	const tool = `"tools":[{"type":"function","name":"f","parameters":{"type":"object","properties":{"x":{"type":"string"}},"required":["x"]}}],`
	first := s.respond(t, 1, `{`+tool+`"input":"q"}`)
	whole := object(t, s.do(t, http.MethodGet, s.base()+"/v1/responses/"+first).body)
	id := textAt(whole, "output", 0, "call_id")
	s.restart(t)
	s.respond(t, 1, `{`+tool+`"previous_response_id":"`+first+`","input":[{"type":"function_call_output","call_id":"`+id+`","output":"21"}]}`)
	require.Equal(t, "<user>q<end><assistant><call>7*3<end><tool>21<end><assistant>", text(s.requests()[1].Prompt))
	require.Equal(t, 0, s.recorded(t)[1].Parent)
}

func TestAReplayedAttemptFindsItsRepliesByName(t *testing.T) {
	t.Parallel()
	s := newTestEnv(t, nil)
	agent := func(attempt int) []string {
		first := s.respond(t, attempt, `{"input":"a"}`)
		return []string{first, s.respond(t, attempt, `{"previous_response_id":"`+first+`","input":"b"}`)}
	}
	want := agent(1)
	s.next(t, 2)
	require.Equal(t, want, agent(2))
	require.Equal(t, []int{1, 1}, s.from(t, 2))
}

func TestRepliesThatAreNotKnownCannotBeNamed(t *testing.T) {
	t.Parallel()
	s := newTestEnv(t, nil, serveVersions)
	url := s.base() + "/v1/responses"
	requireRefusal(t, s.post(t, url, `{"previous_response_id":"resp_x","input":"b"}`), http.StatusBadRequest, "previous_response_not_found", "previous_response_id")
	s.chat(t, ask("a")) // is a reply, but none of Responses
	requireRefusal(t, s.post(t, url, `{"previous_response_id":"`+s.recorded(t)[0].ID+`","input":"b"}`), http.StatusBadRequest, "previous_response_not_found", "previous_response_id")
	forgotten := s.respond(t, 1, `{"store":false,"input":"a"}`)
	requireRefusal(t, s.post(t, url, `{"previous_response_id":"`+forgotten+`","input":"b"}`), http.StatusBadRequest, "previous_response_not_found", "previous_response_id")
	requireRefusal(t, s.do(t, http.MethodGet, url+"/"+forgotten), http.StatusNotFound, "response_not_found", "id")

	a := s.post(t, s.url+"/v1/responses", `{"model":"demo@3","previous_response_id":"resp_x","input":"b"}`)
	requireRefusal(t, a, http.StatusBadRequest, "invalid_value", "previous_response_id")
	require.Contains(t, a.body, "only within an attempt")
}

func TestRepliesAreReadAgainByName(t *testing.T) {
	t.Parallel()
	onJournals(t, func(t *testing.T, s *testEnv) {
		url := s.base() + "/v1/responses"
		first := s.post(t, url, `{"instructions":"i","input":[{"role":"user","content":"a"},{"role":"user","content":"b"}]}`)
		id := textAt(object(t, first.body), "id")
		s.restart(t)
		url = s.base() + "/v1/responses/" + id
		require.Equal(t, first.body, s.do(t, http.MethodGet, url).body)
		items := object(t, s.do(t, http.MethodGet, url+"/input_items").body)
		require.Equal(t, "list", items["object"])
		require.Len(t, items["data"], 2)
		require.Equal(t, "a", textAt(items, "data", 1, "content", 0, "text"), "the last comes first")

		gone := s.do(t, http.MethodDelete, url)
		require.Equal(t, http.StatusOK, gone.status)
		require.Equal(t, true, object(t, gone.body)["deleted"])
		requireRefusal(t, s.do(t, http.MethodGet, url), http.StatusNotFound, "response_not_found", "id")
		requireRefusal(t, s.do(t, http.MethodDelete, url), http.StatusNotFound, "response_not_found", "id")
		require.Len(t, s.calls(t, 1), 1, "the record stands")
	})
}

func TestStreamedRepliesContinueByName(t *testing.T) {
	t.Parallel()
	s := newTestEnv(t, nil)
	s.replies = [][]int32{say("1", tokenizer.End)}
	a := s.post(t, s.base()+"/v1/responses", `{"stream":true,"input":"a"}`)
	require.Contains(t, a.body, "response.completed")
	s.respond(t, 1, `{"previous_response_id":"`+a.header.Get("X-Request-Id")+`","input":"b"}`)
	require.Equal(t, "<user>a<end><assistant>1<end><user>b<end><assistant>", text(s.requests()[1].Prompt))
}
