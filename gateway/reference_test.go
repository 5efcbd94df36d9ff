package gateway_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/model/tokenizer"
)

// Clients that count on stored replies send the id of an item instead of the item.
func TestAnItemOfAReplyMayBeReferredTo(t *testing.T) {
	t.Parallel()
	for name, restarted := range map[string]bool{"at once": false, "restarted": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onJournals(t, func(t *testing.T, s *testEnv) {
				s.replies = [][]int32{say(int32(32+'7'), tokenizer.End), say("3", tokenizer.End), say("4", tokenizer.End)}
				item := "msg_" + strings.TrimPrefix(s.respond(t, 1, `{"input":"a"}`), "resp_")
				input := `{"role":"user","content":"a"},{"type":"item_reference","id":"` + item + `"},{"role":"user","content":"b"}`
				for range 2 { // the call that refers is itself continued
					if restarted {
						s.restart(t)
					}
					next := s.respond(t, 1, `{"input":[`+input+`]}`)
					input += `,{"type":"item_reference","id":"msg_` + strings.TrimPrefix(next, "resp_") + `"},{"role":"user","content":"c"}`
				}
				require.Equal(t, "<user>a<end><assistant>7<end><user>b<end><assistant>3<end><user>c<end><assistant>", text(s.requests()[2].Prompt))
				require.Contains(t, s.requests()[2].Prompt, int32(32+'7'), "as it was sampled")
				require.Equal(t, 1, s.calls(t, 1)[2].Parent)
			})
		})
	}
}

func TestOnlyItemsOfTheAttemptsOwnRepliesAreKnown(t *testing.T) {
	t.Parallel()
	s := newTestEnv(t, nil, serveVersions)
	for url, param := range map[string]string{s.base() + "/v1/responses": "input[0].id", s.url + "/v1/responses": "input"} {
		requireRefusal(t, s.post(t, url, `{"model":"demo@3","input":[{"type":"item_reference","id":"msg_1f"}]}`), http.StatusBadRequest, "invalid_value", param)
	}
	require.Empty(t, s.requests())
}
