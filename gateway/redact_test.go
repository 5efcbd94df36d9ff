package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/gateway"
	"github.com/fulgurite/fulgurite/model/tokenizer"
	"github.com/fulgurite/fulgurite/record"
)

// withoutAnn is a redactor that knows one name. It fails at the text "bad".
func withoutAnn(c *gateway.Config) {
	c.Redact = func(_ context.Context, command []string, _ time.Duration, text string) (string, error) {
		if !slices.Equal(command, []string{"redact"}) || strings.Contains(text, "bad") {
			return "", errors.New("the redactor hangs")
		}
		return strings.ReplaceAll(text, "Ann", "NAME"), nil
	}
}

func newRedacting(t *testing.T) traffic {
	t.Helper()
	s := newTraffic(t, withoutAnn)
	s.versions.redactor = []string{"redact"}
	return s
}

func TestWhatTheRedactorChangesIsStoredWithoutTokens(t *testing.T) {
	t.Parallel()
	for path, turns := range map[string][]string{
		"/v1/chat/completions": {
			`"logprobs":true,"messages":[{"role":"user","content":"hi"}]`,
			`"logprobs":true,"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"1"},{"role":"user","content":"I am Ann"}]`,
			`"logprobs":true,"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"1"},{"role":"user","content":"I am Ann"},{"role":"assistant","content":"Hello Ann"},{"role":"user","content":"bye"}]`,
		},
		"/v1/messages": {
			`"max_tokens":99,"messages":[{"role":"user","content":"hi"}]`,
			`"max_tokens":99,"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"1"},{"role":"user","content":"I am Ann"}]`,
			`"max_tokens":99,"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"1"},{"role":"user","content":"I am Ann"},{"role":"assistant","content":"Hello Ann"},{"role":"user","content":"bye"}]`,
		},
	} {
		for _, stream := range []string{"", `"stream":true,`} {
			for _, restarted := range []bool{false, true} {
				s := newRedacting(t)
				s.replies = [][]int32{odd(), say("Hello Ann", tokenizer.End), say("bye", tokenizer.End)}
				for i, turn := range turns {
					a := s.post(t, s.url+path, `{`+stream+`"model":"demo",`+turn+`}`)
					require.Equal(t, http.StatusOK, a.status, a.body)
					if i == 1 && stream == "" {
						require.Contains(t, a.body, "Hello Ann", "the client gets what was said")
					}
					if restarted {
						s.restart(t)
					}
				}
				c, calls := s.calls(t, 0)
				require.True(t, c.Redacted)
				require.Len(t, calls, 3)
				require.NotEmpty(t, calls[0].Prompt, "nothing of it changed")
				for _, call := range calls[1:] {
					require.Empty(t, call.Prompt)
					require.Empty(t, call.Completion)
					require.Empty(t, call.Logprobs)
					require.NotContains(t, string(call.Request)+string(call.Response), "Ann")
					require.Contains(t, string(call.Request), "I am NAME")
					require.Equal(t, -1, call.Parent)
				}
				require.Contains(t, string(calls[1].Response), "Hello NAME")
				asked := s.requests()
				require.Len(t, asked, 3)
				require.True(t, strings.HasSuffix(text(asked[2].Prompt), "<user>I am Ann<end><assistant>Hello Ann<end><user>bye<end><assistant>"), "the version reads what was said: %s", text(asked[2].Prompt))
				before := append(append([]int32{}, calls[0].Prompt...), calls[0].Completion...)
				require.Equal(t, before, asked[1].Prompt[:len(before)])
			}
		}
	}
}

func TestARedactedReplyIsNoAnswerToARetry(t *testing.T) {
	t.Parallel()
	s := newRedacting(t)
	for _, restart := range []bool{false, true} {
		s.replies = [][]int32{say("Hello Ann", tokenizer.End), say("Hello Ann", tokenizer.End)}
		s.say(t, []string{message("user", "I am Ann")})
		if restart {
			s.restart(t)
		}
		a := s.say(t, []string{message("user", "I am Ann")}, "X-Stainless-Retry-Count", "1")
		require.Equal(t, "Hello Ann", content(t, a.body))
	}
	s.requireConversations(t, 2, 2)
}

func TestWhatTheRedactorFailsAtIsNotStored(t *testing.T) {
	t.Parallel()
	for _, deliver := range []bool{false, true} {
		s := newRedacting(t)
		s.versions.deliver = deliver
		for path, rest := range map[string]string{"/v1/chat/completions": `"messages":[` + message("user", "bad") + `]`, "/v1/completions": `"prompt":[97]`} {
			a := s.post(t, s.url+path, `{"model":"demo",`+rest+`}`)
			if deliver {
				require.Equal(t, http.StatusOK, a.status, a.body)
			} else {
				require.Equal(t, http.StatusServiceUnavailable, a.status)
			}
		}
		if deliver {
			s.requireConversations(t, 0, 0)
		} else {
			s.requireConversations(t)
		}
	}
	s := newTraffic(t)
	s.versions.redactor = []string{"redact"}
	a := s.post(t, s.url+"/v1/chat/completions", `{"model":"demo","messages":[`+message("user", "a")+`]}`)
	require.Equal(t, http.StatusServiceUnavailable, a.status, "a gateway without redactors stores nothing of a run that has one")
}

func TestTheTextsOfFeedbackAreRedactedToo(t *testing.T) {
	t.Parallel()
	s := newTraffic(t, withoutAnn, func(c *gateway.Config) { c.Feedback = c.Conversations.(gateway.Feedback) })
	s.versions.redactor = []string{"redact"}
	s.say(t, []string{`{"role":"user","content":"hello"}`})
	_, calls := s.calls(t, 0)
	post := func(id, rest string, status int) {
		a := s.post(t, s.url+"/v1/feedback", fmt.Sprintf(`{"id":%q,"reply":%q,%s}`, id, calls[0].ID, rest))
		require.Equal(t, status, a.status, a.body)
	}
	post("a", `"comment":"Ann was here"`, http.StatusCreated)
	post("b", `"corrected_text":"Hello Ann"`, http.StatusCreated)
	post("c", `"corrected_text":"Hello"`, http.StatusCreated)
	post("d", `"comment":"bad"`, http.StatusServiceUnavailable)
	all, err := s.store.Feedback(t.Context(), "demo", 0)
	require.NoError(t, err)
	require.Len(t, all, 3, "nothing is recorded without the redactor's answer")
	byID := map[string]record.Feedback{}
	for _, f := range all {
		byID[f.ID] = f
	}
	require.NotContains(t, byID["a"].Comment, "Ann")
	require.NotContains(t, *byID["b"].CorrectedText, "Ann")
	require.True(t, byID["b"].Redacted)
	require.False(t, byID["c"].Redacted)
}

func TestPeoplesOwnObjectsAreRedactedWhole(t *testing.T) {
	t.Parallel()
	s := newRedacting(t)
	a := s.post(t, s.url+"/v1/messages", `{"model":"demo","max_tokens":9,"metadata":{"id":"Ann"},"messages":[{"role":"user","content":"hi"},
{"role":"assistant","content":[{"type":"tool_use","id":"t1","name":"f","input":{"user":"Ann 1","status":{"Ann 2":"Ann 3"}}}]},
{"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":"ok"}]}],"tools":[{"name":"f","input_schema":{"type":"object"}}]}`)
	require.Equal(t, http.StatusOK, a.status, a.body)
	c, calls := s.calls(t, 0)
	require.True(t, c.Redacted)
	require.Empty(t, calls[0].Completion)
	require.NotContains(t, string(calls[0].Request), "Ann")
	require.Contains(t, string(calls[0].Request), `"NAME 2":"NAME 3"`)
	require.Contains(t, string(calls[0].Request), `"id":"t1"`, "the API's own names stay")
}
