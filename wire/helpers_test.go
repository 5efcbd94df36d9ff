package wire_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/wire"
)

// plain returns a reply of one text.
func plain(model, text string) wire.Reply {
	return wire.Reply{
		ID: "1f", Created: time.Unix(1795176000, 0), Model: model, PromptTokens: 6,
		Choices: []wire.Choice{{Message: dialog.Message{Role: dialog.Assistant, Content: text}, Finish: wire.Stop, Tokens: 2}},
	}
}

// whole returns the body of a reply.
func whole(t require.TestingT, r *wire.Request, reply wire.Reply) object {
	body, err := r.Encode(reply)
	require.NoError(t, err)
	return parse(t, string(body))
}

// minimal returns a request of every API that asks for all that can be asked for.
func minimal(t testing.TB) map[wire.API]*wire.Request {
	t.Helper()
	return map[wire.API]*wire.Request{
		wire.Chat:        decode(t, wire.Chat, `{"model":"m","n":2,"logprobs":true,"stream":true,"stream_options":{"include_usage":true},`+hi+`}`),
		wire.Completions: decode(t, wire.Completions, `{"model":"m","n":2,"logprobs":1,"prompt":"a","stream":true,"stream_options":{"include_usage":true}}`),
		wire.Responses:   decode(t, wire.Responses, `{"model":"m","include":["message.output_text.logprobs"],"input":"hi","stream":true}`),
		wire.Messages:    decode(t, wire.Messages, `{"model":"m","max_tokens":9,"stream":true,`+hi+`}`),
	}
}

// anyReply draws a reply to a request.
func anyReply(t *rapid.T, r *wire.Request) wire.Reply {
	reply := wire.Reply{
		ID: rapid.StringMatching(`[0-9a-f]{1,24}`).Draw(t, "id"), Created: time.Unix(rapid.Int64Range(0, 1<<31).Draw(t, "created"), 0),
		Model: "m", PromptTokens: rapid.IntRange(0, 99).Draw(t, "prompt"),
	}
	for range r.N {
		reply.Choices = append(reply.Choices, anyChoice(t, r))
	}
	return reply
}

func anyChoice(t *rapid.T, r *wire.Request) wire.Choice {
	c := wire.Choice{
		Message: dialog.Message{Role: dialog.Assistant, Content: rapid.String().Draw(t, "content")},
		Finish:  rapid.SampledFrom([]wire.Finish{wire.Stop, wire.Length, ""}).Draw(t, "finish"),
		Tokens:  rapid.IntRange(0, 99).Draw(t, "tokens"),
		Stopped: rapid.SampledFrom([]string{"", "END"}).Draw(t, "stopped"),
	}
	for range rapid.IntRange(0, 3).Draw(t, "logprobs") {
		token := wire.Token{Text: rapid.String().Draw(t, "token"), Logprob: rapid.Float32Range(-50, 0).Draw(t, "logprob")}
		if rapid.Bool().Draw(t, "with bytes") {
			token.Bytes = []byte(token.Text)
		}
		c.Logprobs = append(c.Logprobs, token)
	}
	if r.API == wire.Completions {
		return c
	}
	c.Message.Reasoning = rapid.SampledFrom([]string{"", "hm", rapid.String().Draw(t, "reasoning")}).Draw(t, "thoughts")
	for k := range rapid.IntRange(0, 3).Draw(t, "calls") {
		arguments, err := json.Marshal(rapid.MapOf(rapid.String(), rapid.String()).Draw(t, "arguments"))
		require.NoError(t, err)
		c.Message.ToolCalls = append(c.Message.ToolCalls, call(fmt.Sprintf("call_%d", k), "f", string(arguments)))
	}
	return c
}
