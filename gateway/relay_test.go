package gateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/gateway"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
)

// texts is a sampler that behaves like a server of messages: it calls the tool of a
// request once, and then repeats the last message.
type texts struct {
	mu     sync.Mutex
	asked  []dialog.Asked
	forms  []*model.Form
	refuse error
}

func (s *texts) Sample(_ context.Context, _ model.VersionID, r model.DecodeRequest) (model.Completion, string, error) {
	asked, err := dialog.ReadPrompt(r.Prompt)
	if err != nil {
		return model.Completion{}, "", err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked, s.forms = append(s.asked, asked), append(s.forms, r.Form)
	if s.refuse != nil {
		return model.Completion{}, "", s.refuse
	}
	reply := dialog.Speaker{Emit: r.Emit}
	last := dialog.Message{Role: dialog.User, Content: asked.Text}
	if len(asked.Messages) > 0 {
		last = asked.Messages[len(asked.Messages)-1]
	}
	facts := dialog.Facts{ID: "srv-1", Model: "gpt", Finish: "stop", Usage: &dialog.Usage{Prompt: 40, Completion: 3}}
	if last.Role == dialog.User && len(asked.Tools) > 0 && (r.Form == nil || !r.Form.NoCall) {
		reply.Call(dialog.Function{Name: asked.Tools[0].Name, Arguments: `{"expression": "7*3"}`})
		return reply.End(facts), "server:gpt", nil
	}
	reply.SayToken([]byte("so: "), -0.5)
	reply.SayToken([]byte(last.Content), -0.25)
	return reply.End(facts), "server:gpt", nil
}

func newRelayEnv(t *testing.T, change func(*record.Attempt)) (*testEnv, *texts) {
	t.Helper()
	server := &texts{}
	s := newTestEnv(t, func(a *record.Attempt) {
		a.Terms.Codec = dialog.MessagesName
		a.Terms.MaxTokens = 64
		if change != nil {
			change(a)
		}
	}, func(c *gateway.Config) { c.Sampler = server })
	return s, server
}

func TestARelayedReplyIsAnsweredInEachAPI(t *testing.T) {
	t.Parallel()
	for path, c := range map[string]struct {
		body, want, streamed string
	}{
		"/v1/chat/completions": {
			`{"model":"x","messages":[{"role":"user","content":"hi"}],"logprobs":true}`,
			`"usage":{"prompt_tokens":40,"completion_tokens":3,"total_tokens":43}`, `"delta":{"content":"so: "}`,
		},
		"/v1/responses":   {`{"model":"x","input":"hi"}`, `"input_tokens":40`, `"delta":"so: "`},
		"/v1/messages":    {`{"model":"x","max_tokens":9,"messages":[{"role":"user","content":"hi"}]}`, `"output_tokens":3`, `"text":"so: "`},
		"/v1/completions": {`{"model":"x","prompt":"hi","logprobs":1}`, `"token_logprobs":[-0.5,-0.25]`, `"text":"so: "`},
	} {
		s, server := newRelayEnv(t, nil)
		got := s.post(t, s.base()+path, c.body)
		require.Equal(t, http.StatusOK, got.status, got.body)
		require.Contains(t, got.body, "so: hi", path)
		require.Contains(t, got.body, c.want, path)
		streamed := s.post(t, s.base()+path, strings.Replace(c.body, "{", `{"stream":true,`, 1))
		require.Equal(t, http.StatusOK, streamed.status)
		require.Contains(t, streamed.body, c.streamed, path)
		require.Len(t, server.asked, 2)
		for _, call := range s.recorded(t) {
			require.NotContains(t, call.Untrained, false, "nothing of it can be trained")
			require.Equal(t, "server:gpt", call.Weights)
		}
	}
}

func TestARelayedDialogGoesOnAlsoAfterARestart(t *testing.T) {
	t.Parallel()
	s, server := newRelayEnv(t, nil)
	const tools = `"tools":[{"type":"function","function":{"name":"calculator","parameters":{"type":"object"}}}]`
	first := s.chat(t, `{"model":"x",`+tools+`,"messages":[{"role":"user","content":"7*3?"}]}`)
	var reply struct {
		Choices []struct {
			Message json.RawMessage `json:"message"`
			Finish  string          `json:"finish_reason"`
		} `json:"choices"`
	}
	require.NoError(t, json.Unmarshal([]byte(first.body), &reply))
	require.Equal(t, "tool_calls", reply.Choices[0].Finish)
	var said dialog.Message
	require.NoError(t, json.Unmarshal(reply.Choices[0].Message, &said))
	id := said.ToolCalls[0].ID
	require.NotEmpty(t, id)

	s.restart(t)
	// The client writes the arguments in its own way and asks for no more calls.
	second := s.chat(t, fmt.Sprintf(`{"model":"x",%s,"tool_choice":"none","logprobs":true,"messages":[{"role":"user","content":"7*3?"},
		{"role":"assistant","content":"","tool_calls":[{"id":%q,"type":"function","function":{"name":"calculator","arguments":"{\"expression\":\"7*3\"}"}}]},
		{"role":"tool","tool_call_id":%q,"content":"21"}]}`, tools, id, id))
	require.Equal(t, "so: 21", content(t, second.body))
	require.Contains(t, second.body, `{"token":"so: ","logprob":-0.5,"bytes":[115,111,58,32],"top_logprobs":[]}`)
	asked := server.asked[1].Messages
	require.Len(t, asked, 3)
	require.Equal(t, `{"expression": "7*3"}`, asked[1].ToolCalls[0].Function.Arguments, "the server's own words")
	require.Equal(t, id, asked[1].ToolCalls[0].ID)
	require.Equal(t, id, asked[2].ToolCallID)
	require.True(t, server.forms[1].NoCall)
	calls := s.recorded(t)
	require.Equal(t, 0, calls[1].Parent)
	require.False(t, calls[1].Drift)
}

func TestChoicesAndBudgetsOfARelayedReplyAreTheServers(t *testing.T) {
	t.Parallel()
	s, server := newRelayEnv(t, func(a *record.Attempt) { a.Terms.TokenBudget = 7 })
	got := s.chat(t, `{"model":"x","n":2,"messages":[{"role":"user","content":"hi"}]}`)
	require.Contains(t, got.body, `"completion_tokens":6`)
	require.Len(t, server.asked, 2)
	require.Equal(t, http.StatusOK, s.chat(t, `{"model":"x","messages":[{"role":"user","content":"hello"}]}`).status)
	require.Contains(t, s.chat(t, `{"model":"x","messages":[{"role":"user","content":"more"}]}`).body, "token_limit")

	s, server = newRelayEnv(t, nil)
	s.chat(t, `{"model":"x","messages":[{"role":"user","content":"hi"}],"tools":[
		{"type":"function","function":{"name":"a"}},{"type":"function","function":{"name":"b"}}],
		"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[{"type":"function","function":{"name":"b"}}]}},
		"response_format":{"type":"json_schema","json_schema":{"name":"x","strict":true,"schema":{"type":"object"}}}}`)
	require.Equal(t, []model.FormTool{{Name: "b"}}, server.forms[0].Tools)
	require.True(t, server.forms[0].Strict)
	require.JSONEq(t, `{"type":"object"}`, string(server.forms[0].Schema))
	require.Equal(t, http.StatusBadRequest, s.post(t, s.base()+"/v1/messages/count_tokens", `{"model":"x","messages":[{"role":"user","content":"hi"}]}`).status)
}

func TestWhatTheServerRefusesIsToldToTheAgent(t *testing.T) {
	t.Parallel()
	s, server := newRelayEnv(t, nil)
	server.refuse = fmt.Errorf("%w: no such thing", model.ErrRefused)
	got := s.chat(t, `{"model":"x","messages":[{"role":"user","content":"hi"}]}`)
	require.Equal(t, http.StatusBadRequest, got.status)
	require.Contains(t, got.body, "no such thing")
	require.Contains(t, got.body, "refused_by_server")
}
