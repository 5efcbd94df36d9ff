package tokenizer_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/model/tokenizer"
)

// processed returns the tokenizer of a file with another post-processor.
func processed(t *testing.T, file string, setting json.RawMessage) *tokenizer.BPE {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", file+".json"))
	require.NoError(t, err)
	var whole map[string]json.RawMessage
	require.NoError(t, json.Unmarshal(text, &whole))
	whole["post_processor"] = setting
	text, err = json.Marshal(whole)
	require.NoError(t, err)
	b, err := tokenizer.FromJSON(text)
	require.NoError(t, err)
	return b
}

func TestPromptsAreThoseOfTheReference(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/prompts.json")
	require.NoError(t, err)
	var cases []struct {
		Tokenizer     string          `json:"tokenizer"`
		PostProcessor json.RawMessage `json:"post_processor"`
		Text          string          `json:"text"`
		IDs           []int32         `json:"ids"`
	}
	require.NoError(t, json.Unmarshal(text, &cases))
	require.NotEmpty(t, cases)
	var b *tokenizer.BPE
	for i, c := range cases {
		if i == 0 || c.Tokenizer != cases[i-1].Tokenizer || !bytes.Equal(c.PostProcessor, cases[i-1].PostProcessor) {
			b = processed(t, c.Tokenizer, c.PostProcessor)
		}
		got, err := b.EncodePrompt(c.Text)
		require.NoError(t, err)
		require.Equal(t, c.IDs, append([]int32{}, got...), "%s, %s: %q", c.Tokenizer, c.PostProcessor, c.Text)
	}
}

func TestATextThatBeginsWithItsFirstTokenGetsNoSecondOne(t *testing.T) {
	t.Parallel()
	b := processed(t, "llama2", json.RawMessage(`{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>","type_id":0}},{"Sequence":{"id":"A","type_id":0}}],"special_tokens":{"<s>":{"id":"<s>","ids":[1],"tokens":["<s>"]}}}`))
	begun, err := b.EncodePrompt("<s>[INST] hi")
	require.NoError(t, err)
	require.EqualValues(t, 1, begun[0])
	require.NotEqualValues(t, 1, begun[1])
}

func TestAnUnknownPostProcessorRefusesPromptsAlone(t *testing.T) {
	t.Parallel()
	for _, setting := range []string{
		`{"type":"Other"}`, `{"type":"Sequence","processors":[{"type":"Other"}]}`, `{"type":"BertProcessing"}`,
		`{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>"}}],"special_tokens":{}}`,
		`{"type":"TemplateProcessing","single":[]}`,
		`{"type":"Sequence","processors":[{"type":"BertProcessing","sep":["</s>",2],"cls":["<s>",1]},{"type":"RobertaProcessing","sep":["</s>",2],"cls":["<s>",1]}]}`,
	} {
		b := processed(t, "llama2", json.RawMessage(setting))
		_, err := b.EncodePrompt("a")
		require.Error(t, err, setting)
		require.NotEmpty(t, b.EncodeSpecial("a"))
	}
}
