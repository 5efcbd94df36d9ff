package gateway_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/gateway"
)

const chatml = `{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}`

// publishedModel is a published model's codec, whose tokenizer has the post-processor.
func publishedModel(t *testing.T, postProcessor string) func(*gateway.Config) {
	t.Helper()
	text, err := os.ReadFile("../model/tokenizer/testdata/qwen.json")
	require.NoError(t, err)
	var file map[string]json.RawMessage
	require.NoError(t, json.Unmarshal(text, &file))
	file["post_processor"] = json.RawMessage(postProcessor)
	text, err = json.Marshal(file)
	require.NoError(t, err)
	c, err := dialog.Bundle{Tokenizer: text, Template: chatml, Stop: []int32{702}}.Codec("published")
	require.NoError(t, err)
	return func(g *gateway.Config) { g.Codecs = func(string) (dialog.Codec, error) { return c, nil } }
}

// An agent that renders the model's own chat format gets the tokens that the gateway gives
// the same dialog, in an attempt and from a served version.
func TestATextPromptHasTheTokensOfTheModelsOwnTokenizer(t *testing.T) {
	t.Parallel()
	const rendered = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
	const begins = `{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<|endoftext|>","type_id":0}},{"Sequence":{"id":"A","type_id":0}}],"special_tokens":{"<|endoftext|>":{"id":"<|endoftext|>","ids":[%d],"tokens":["<|endoftext|>"]}}}`
	plain := newTestEnv(t, nil, publishedModel(t, "null"), serveVersions)
	require.Equal(t, http.StatusOK, plain.chat(t, ask("hi")).status)
	want := plain.requests()[0].Prompt
	var first int32
	for id := range int32(800) {
		if c, _ := plain.config.Codecs(""); c.Text([]int32{id}) == "<|endoftext|>" {
			first = id
		}
	}
	require.Positive(t, first)
	marked := newTestEnv(t, nil, publishedModel(t, fmt.Sprintf(begins, first)), serveVersions)
	for _, c := range []struct {
		env  *testEnv
		text string
		want []int32
	}{
		{plain, rendered, want},
		{marked, rendered, append([]int32{first}, want...)},
		{marked, "<|endoftext|>" + rendered, append([]int32{first}, want...)},
	} {
		for _, url := range []string{c.env.base(), c.env.url} {
			body, err := json.Marshal(map[string]any{"model": "demo@3", "max_tokens": 1, "prompt": c.text})
			require.NoError(t, err)
			a := c.env.post(t, url+"/v1/completions", string(body))
			require.Equal(t, http.StatusOK, a.status, a.body)
			asked := c.env.requests()
			require.Equal(t, c.want, asked[len(asked)-1].Prompt)
		}
	}
	unknown := newTestEnv(t, nil, publishedModel(t, `{"type":"Other"}`))
	a := unknown.post(t, unknown.base()+"/v1/completions", `{"prompt":"hi"}`)
	requireRefusal(t, a, http.StatusBadRequest, "invalid_value", "prompt")
	require.Contains(t, a.body, "send token ids")
	require.Equal(t, http.StatusOK, unknown.post(t, unknown.base()+"/v1/completions", `{"prompt":[1,2]}`).status)
	require.Equal(t, http.StatusOK, unknown.chat(t, ask("hi")).status)
}
