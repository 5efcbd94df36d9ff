package gateway_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/model/tokenizer"
)

func TestAReplyThatTheClientBeganIsRefusedAtItsMessage(t *testing.T) {
	t.Parallel()
	s := newTestEnv(t, nil, serveVersions)
	turns := message("user", "q") + "," + message("assistant", "The answer is")
	for _, c := range []struct{ path, body string }{
		{"/v1/messages", `{"model":"demo@3","max_tokens":9,"messages":[` + turns + `]}`},
		{"/v1/messages", `{"model":"demo@3","max_tokens":9,"messages":[` + message("user", "q") + `,{"role":"assistant","content":[{"type":"text","text":"{"}]}]}`},
		{"/v1/chat/completions", `{"model":"demo@3","continue_final_message":true,"add_generation_prompt":false,"messages":[` + turns + `]}`},
		{"/v1/chat/completions", `{"model":"demo@3","continue_final_message":true,"messages":[` + turns + `]}`},
		{"/v1/chat/completions", `{"model":"demo@3","add_generation_prompt":false,"messages":[` + turns + `]}`},
		{"/v1/chat/completions", `{"model":"demo@3","messages":[` + message("user", "q") + `,{"role":"assistant","content":"{","prefix":true}]}`},
		{"/v1/chat/completions", `{"model":"demo@3","messages":[` + message("user", "q") + `,{"role":"assistant","content":"{","partial":true}]}`},
	} {
		for _, url := range []string{s.base(), s.url} {
			for _, more := range []string{"", `,"stream":true`} {
				a := s.post(t, url+c.path, strings.TrimSuffix(c.body, "}")+more+"}")
				require.Equal(t, http.StatusBadRequest, a.status, c.body)
				require.Equal(t, "unsupported_parameter", a.header.Get("X-Fulgurite-Code"), a.body)
				require.Contains(t, a.body, "messages[1] is the beginning of the reply")
			}
		}
	}
	require.Empty(t, s.requests())
	count := s.post(t, s.base()+"/v1/messages/count_tokens", `{"model":"m","messages":[`+turns+`]}`)
	require.Equal(t, http.StatusOK, count.status, "a dialog can be counted whoever spoke last")
	for _, wish := range []string{`"continue_final_message":false`, `"add_generation_prompt":true`} {
		require.Equal(t, http.StatusOK, s.chat(t, `{`+wish+`,"messages":[`+turns+`]}`).status)
	}
}

func TestBlocksOfInstructionsAreParagraphs(t *testing.T) {
	t.Parallel()
	s := newTestEnv(t, nil)
	a := s.post(t, s.base()+"/v1/messages", `{"max_tokens":9,"system":[{"type":"text","text":"Be brief."},{"type":"text","text":""},{"type":"text","text":"Add."}],"messages":[`+message("user", "q")+`]}`)
	require.Equal(t, http.StatusOK, a.status, a.body)
	require.Contains(t, text(s.requests()[0].Prompt), "Be brief.\n\nAdd.<")
	a = s.post(t, s.base()+"/v1/messages", `{"max_tokens":9,"system":[{"text":"Be brief."}],"messages":[`+message("user", "q")+`]}`)
	require.Equal(t, http.StatusBadRequest, a.status)
	require.Contains(t, a.body, "system[0].type: the part has no type")
}

// Clients join "…/v1/" and "/chat/completions", and many follow no redirect of a POST.
func TestAPathWithEmptySegmentsIsServed(t *testing.T) {
	t.Parallel()
	onProtocols(t, func(t *testing.T, p protocol) {
		s := newTestEnv(t, nil, serveVersions)
		s.replies = [][]int32{say("1", tokenizer.End), say("1", tokenizer.End), say("1", tokenizer.End)}
		for _, url := range []string{
			s.base() + strings.Replace(p.path, "/v1", "/v1/", 1), s.base() + "/" + p.path, s.url + "/" + p.path,
		} {
			a := s.post(t, url, strings.Replace(p.asking("q", ""), `"m"`, `"demo@3"`, 1))
			require.Equal(t, http.StatusOK, a.status, "%s: %s", url, a.body)
			require.Equal(t, "1", p.said(t, a.body))
		}
	})
}

func TestARefusalOnRecordNamesItsField(t *testing.T) {
	t.Parallel()
	s := newTestEnv(t, nil)
	require.Equal(t, http.StatusBadRequest, s.chat(t, `{"messages":[{"role":"user","content":[{"type":"image_url"}]}]}`).status)
	refusals, err := s.Refusals(t.Context(), address)
	require.NoError(t, err)
	require.Len(t, refusals, 1)
	require.Equal(t, `messages[0].content[0].type: parts of type "image_url" are not supported: the model reads text only`, refusals[0].Message)
}
