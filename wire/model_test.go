package wire_test

import (
	"encoding/json"
	"testing"

	"github.com/sashabaranov/go-openai"
	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/wire"
)

func TestModelsAreListedAsEachAPIDoes(t *testing.T) {
	t.Parallel()
	const open = `{"id":"a","object":"model","created":0,"owned_by":"fulgurite"}`
	require.Equal(t, open, string(wire.Chat.Model("a")))
	require.Equal(t, `{"object":"list","data":[`+open+`]}`, string(wire.Responses.Models([]string{"a"})))
	require.Equal(t, `{"object":"list","data":[]}`, string(wire.Chat.Models(nil)))
	var list openai.ModelsList
	require.NoError(t, json.Unmarshal(wire.Chat.Models([]string{"a", "b"}), &list))
	require.Equal(t, "b", list.Models[1].ID)

	const other = `{"type":"model","id":"a","display_name":"a","created_at":"1970-01-01T00:00:00Z"}`
	require.JSONEq(t, other, string(wire.Messages.Model("a")))
	require.JSONEq(t, `{"data":[`+other+`],"has_more":false,"first_id":"a","last_id":"a"}`, string(wire.Messages.Models([]string{"a"})))
	require.JSONEq(t, `{"data":[],"has_more":false,"first_id":null,"last_id":null}`, string(wire.Messages.Models(nil)))
}

func TestIDsSayWhichAPITheyAreOf(t *testing.T) {
	t.Parallel()
	for api, id := range map[wire.API]string{
		wire.Chat: "chatcmpl-1f", wire.Completions: "cmpl-1f", wire.Responses: "resp_1f", wire.Messages: "msg_1f",
	} {
		require.Equal(t, id, api.ReplyID("1f"))
	}
}

func TestTokensOfAPromptAreCounted(t *testing.T) {
	t.Parallel()
	require.Equal(t, `{"input_tokens":7}`, string(wire.Count(7)))
}
