package upstream_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/sampler/upstream"
)

func TestARealLlamaServer(t *testing.T) {
	dir, _, _ := published(t)
	s, err := upstream.New(upstream.Options{Type: upstream.OpenAI, URLs: []string{startLlamaServer(t, dir)}, Model: realName, Versions: upstream.None})
	require.NoError(t, err)
	t.Cleanup(s.Close)
	relayedByReal(t, s, false)
}

// relayedByReal tests a real server with messages. Not all servers return
// log-probabilities in streams of dialogs with tools.
func relayedByReal(t *testing.T, s *upstream.Sampler, streamsLogprobs bool) {
	t.Helper()
	codec := dialog.Messages()
	tools := []dialog.Tool{{Name: "measure", Parameters: []byte(`{"type":"object","properties":{"n":{"type":"integer","minimum":0,"maximum":9}},"required":["n"],"additionalProperties":false}`)}}
	question := dialog.Message{Role: dialog.User, Content: "How long is it?"}
	prompt, err := codec.Prompt([]dialog.Message{question}, tools)
	require.NoError(t, err)
	v := model.VersionID{Run: "demo"}
	for _, streamed := range []bool{false, true} {
		r := model.DecodeRequest{Prompt: prompt, Temperature: 1, MaxTokens: 2}
		if streamed {
			r.Emit = func(int32, float32) {}
		}
		// Random weights produce half characters more often than not, and the server
		// returns no text for them.
		var pieces []dialog.Piece
		for seed := uint64(0); seed < 200 && len(pieces) < 2; seed += 2 {
			r.Seed = seed
			got, _, err := s.Sample(t.Context(), v, r)
			require.NoError(t, err)
			used, ok := codec.Counted(got.Tokens)
			require.True(t, ok)
			require.Positive(t, used.Prompt)
			require.LessOrEqual(t, used.Completion, 2)
			pieces = codec.Pieces(got.Tokens, got.Logprobs)
		}
		if !streamed || streamsLogprobs {
			require.Len(t, pieces, 2, "each of the server's tokens has its log-probability")
			require.Negative(t, pieces[0].Logprob)
		}

		r.MaxTokens, r.Form = 200, &model.Form{Schema: []byte(`{"type":"object","properties":{"a":{"enum":["x","y"]}},"required":["a"],"additionalProperties":false}`)}
		// Random weights may continue with spaces, which the form allows, up to the last
		// token.
		var got model.Completion
		for got.Finish = "length"; got.Finish == "length"; r.Seed += 2 {
			got, _, err = s.Sample(t.Context(), v, r)
			require.NoError(t, err)
			require.Less(t, r.Seed, uint64(1000), "no reply ends")
		}
		reply, _ := codec.Parse(got.Tokens, nil, nil)
		require.Regexp(t, `^\{\s*"a"\s*:\s*"[xy]"\s*\}$`, strings.TrimSpace(reply.Content))

		said := append([]dialog.Message{}, question, dialog.Message{Role: dialog.Assistant, ToolCalls: []dialog.ToolCall{
			{ID: "call_0", Type: "function", Function: dialog.Function{Name: "measure", Arguments: `{"n": 3}`}},
		}}, dialog.Message{Role: dialog.ToolReply, Content: "3 cm", ToolCallID: "call_0"})
		r.Form, r.MaxTokens = &model.Form{NoCall: true, Stop: []string{"zzz"}}, 8
		r.Prompt, err = codec.Prompt(said, tools)
		require.NoError(t, err)
		got, _, err = s.Sample(t.Context(), v, r)
		require.NoError(t, err, "the dialog goes on")
		require.NotEmpty(t, got.Tokens)
	}
	text, _, err := s.Sample(t.Context(), v, model.DecodeRequest{Prompt: codec.Encode("Once upon"), MaxTokens: 8, Temperature: 1})
	require.NoError(t, err)
	require.NotEmpty(t, codec.Text(text.Tokens))
	long, err := codec.Prompt([]dialog.Message{{Role: dialog.User, Content: strings.Repeat("word and ", 3000)}}, nil)
	require.NoError(t, err)
	_, _, err = s.Sample(t.Context(), v, model.DecodeRequest{Prompt: long, MaxTokens: 8, Temperature: 1})
	require.ErrorIs(t, err, model.ErrPromptTooLong)
}
