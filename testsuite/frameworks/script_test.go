package main

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/tokenizer"
)

func TestSpecialTokensAreReadByName(t *testing.T) {
	t.Parallel()
	s := &script{}
	got := s.read("I look.<call>city<arg>{}")
	var want []int32
	want = append(want, s.tokens.Encode("I look.")...)
	want = append(want, tokenizer.ToolCall)
	want = append(want, s.tokens.Encode("city")...)
	want = append(want, tokenizer.Argument)
	want = append(want, s.tokens.Encode("{}")...)
	require.Equal(t, want, got)
}

func TestTheFirstReplyThatFitsIsSaid(t *testing.T) {
	t.Parallel()
	s := &script{replies: []reply{{To: []string{"a", "b"}, Say: "both"}, {To: []string{"a"}, Say: "one"}}, abort: func(err error) { t.Error(err) }}
	var emitted []int32
	for prompt, want := range map[string]string{"a": "one", "ba": "both"} {
		emitted = nil
		c, weights, err := s.Sample(t.Context(), model.VersionID{}, model.DecodeRequest{
			Prompt: s.tokens.Encode(prompt), MaxTokens: 10, Emit: func(token int32, _ float32) { emitted = append(emitted, token) },
		})
		require.NoError(t, err)
		require.Equal(t, append(s.tokens.Encode(want), tokenizer.End), c.Tokens)
		require.Equal(t, c.Tokens, emitted)
		require.Len(t, c.Logprobs, len(c.Tokens))
		require.Equal(t, scriptWeights, weights)
	}
}

func TestAReplyThatCannotBeSaidEndsTheWalk(t *testing.T) {
	t.Parallel()
	for complete, r := range map[string]model.DecodeRequest{
		"text": {MaxTokens: 99, Form: &model.Form{Codec: dialog.CompactName, Schema: json.RawMessage(`{}`)}},
	} {
		var abort error
		s := &script{replies: []reply{{Say: complete}}, abort: func(err error) { abort = err }}
		_, _, err := s.Sample(t.Context(), model.VersionID{}, r)
		require.ErrorContains(t, err, complete)
		require.Equal(t, err, abort)
	}
}

func TestAReplyThatIsTooLongIsCutOff(t *testing.T) {
	t.Parallel()
	c, err := (&script{}).complete("long", model.DecodeRequest{MaxTokens: 3})
	require.NoError(t, err)
	require.Len(t, c.Tokens, 3)
	require.Equal(t, "length", c.Finish)
}

func TestWhatAFormLeavesNoChoiceIsForced(t *testing.T) {
	t.Parallel()
	s := &script{}
	form := model.Form{Codec: dialog.CompactName, Schema: json.RawMessage(`{"type":"object","properties":{"city":{"type":"string"}},"required":["city"],"additionalProperties":false}`)}
	c, err := s.complete(`{"city":"Oslo"}`, model.DecodeRequest{MaxTokens: 99, Form: &form})
	require.NoError(t, err)
	require.Len(t, c.Forced, len(c.Tokens))
	require.Contains(t, c.Forced, true)
	require.Contains(t, c.Forced, false)
}
