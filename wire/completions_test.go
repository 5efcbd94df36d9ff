package wire_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/wire"
)

func TestAPromptIsOneTextOrOneListOfTokens(t *testing.T) {
	t.Parallel()
	for prompt, want := range map[string]wire.Request{
		`"a"`: {Text: "a"}, `["a"]`: {Text: "a"}, `[1,2]`: {Tokens: []int32{1, 2}}, `[[1,2]]`: {Tokens: []int32{1, 2}}, `[0]`: {Tokens: []int32{0}},
	} {
		r := decode(t, wire.Completions, `{"prompt":`+prompt+`}`)
		require.Equal(t, want.Text, r.Text, prompt)
		require.Equal(t, want.Tokens, r.Tokens, prompt)
		require.Empty(t, r.Dialog)
	}
	for _, prompt := range []string{
		`null`, `""`, `[]`, `[[]]`, `[""]`, `7`, `{}`, `["a","b"]`, `[[1],[2]]`, `[1,"a"]`, `["a",1]`, `[1.5]`, `[-1]`, `[null]`,
		`[3000000000]`, `[[null]]`, `[true]`,
	} {
		require.Equal(t, "prompt", refused(t, wire.Completions, `{"prompt":`+prompt+`}`).Param, prompt)
	}
}

func TestBadCompletionsAreRefusedByField(t *testing.T) {
	t.Parallel()
	for body, param := range map[string]string{
		`{}`:                                "prompt",
		`{"prompt":"a","echo":true}`:        "echo",
		`{"prompt":"a","suffix":"b"}`:       "suffix",
		`{"prompt":"a","best_of":2}`:        "best_of",
		`{"prompt":"a","n":0}`:              "n",
		`{"prompt":"a","max_tokens":0}`:     "max_tokens",
		`{"prompt":"a","logprobs":-1}`:      "logprobs",
		`{"prompt":"a","logprobs":true}`:    "logprobs",
		`{"prompt":"a","stop":{}}`:          "stop",
		`{"prompt":"a","stream_options":7}`: "stream_options",
	} {
		f := refused(t, wire.Completions, body)
		require.Equal(t, param, f.Param, body)
	}
	r := decode(t, wire.Completions, `{"prompt":"a","echo":false,"suffix":null,"n":3,"best_of":3,"logprobs":0,"user":"u"}`)
	require.Equal(t, 3, r.N)
	require.True(t, r.Logprobs)
	require.Zero(t, r.TopLogprobs)
}
