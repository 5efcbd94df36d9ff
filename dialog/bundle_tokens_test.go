package dialog_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/model/tokenizer"
)

// directoryOf writes the files of a codec whose tokenizer.json has the tokens 700 to 706
// behind its vocabulary.
func directoryOf(t *testing.T, files map[string]string) string {
	t.Helper()
	dir, b := t.TempDir(), bundle(t, "hermes")
	all := map[string]string{"tokenizer.json": string(b.Tokenizer), "chat_template.jinja": b.Template}
	for name, text := range files {
		all[name] = text
	}
	for name, text := range all {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	return dir
}

// What transformers 5.24 makes of these directories.
func TestTokensOfAllFilesAreMergedAsTransformersMergesThem(t *testing.T) {
	t.Parallel()
	added := func(special string, token string) string {
		return `{"content":"` + token + `","lstrip":false,"normalized":false,"rstrip":false,"single_word":false,"special":` + special + `}`
	}
	const text = "a<NEW>b<NEW2>"
	plain := []int32{64, 27, 45, 36, 54, 29, 65, 27, 45, 36, 54, 17, 29}
	for name, c := range map[string]struct {
		files   map[string]string
		ids     []int32
		special []string
	}{
		"none":                           {nil, plain, nil},
		"added_tokens_decoder":           {map[string]string{"tokenizer_config.json": `{"added_tokens_decoder":{"707":` + added("true", "<NEW>") + `}}`}, []int32{64, 707, 65, 27, 45, 36, 54, 17, 29}, []string{"<NEW>"}},
		"added_tokens_decoder, two":      {map[string]string{"tokenizer_config.json": `{"added_tokens_decoder":{"708":` + added("false", "<NEW2>") + `,"707":` + added("true", "<NEW>") + `}}`}, []int32{64, 707, 65, 708}, []string{"<NEW>"}},
		"added_tokens_decoder and map":   {map[string]string{"tokenizer_config.json": `{"added_tokens_decoder":{"707":` + added("true", "<NEW>") + `}}`, "special_tokens_map.json": `{"eos_token":"<NEW2>"}`}, []int32{64, 707, 65, 27, 45, 36, 54, 17, 29}, []string{"<NEW>"}},
		"eos_token":                      {map[string]string{"tokenizer_config.json": `{"eos_token":"<NEW>"}`}, []int32{64, 707, 65, 27, 45, 36, 54, 17, 29}, []string{"<NEW>"}},
		"eos_token as an object":         {map[string]string{"tokenizer_config.json": `{"eos_token":` + added("true", "<NEW>") + `}`}, []int32{64, 707, 65, 27, 45, 36, 54, 17, 29}, []string{"<NEW>"}},
		"additional_special_tokens":      {map[string]string{"tokenizer_config.json": `{"additional_special_tokens":["<tool_call>","<NEW>"]}`}, []int32{64, 707, 65, 27, 45, 36, 54, 17, 29}, []string{"<NEW>"}},
		"extra_special_tokens":           {map[string]string{"tokenizer_config.json": `{"extra_special_tokens":{"image_token":"<NEW>"}}`}, []int32{64, 707, 65, 27, 45, 36, 54, 17, 29}, []string{"<NEW>"}},
		"special_tokens_map":             {map[string]string{"special_tokens_map.json": `{"additional_special_tokens":["<NEW>"],"eos_token":"<NEW2>"}`}, []int32{64, 708, 65, 707}, []string{"<NEW>", "<NEW2>"}},
		"added_tokens":                   {map[string]string{"added_tokens.json": `{"<NEW2>":708,"<NEW>":707}`}, []int32{64, 707, 65, 708}, nil},
		"added_tokens with a named one":  {map[string]string{"added_tokens.json": `{"<NEW2>":708,"<NEW>":707}`, "tokenizer_config.json": `{"pad_token":"<NEW2>"}`}, []int32{64, 707, 65, 708}, []string{"<NEW2>"}},
		"a token that is listed already": {map[string]string{"added_tokens.json": `{"<tool_call>":703}`}, plain, nil},
	} {
		b, err := dialog.ReadBundle(directoryOf(t, c.files))
		require.NoError(t, err, name)
		vocabulary, err := tokenizer.FromJSON(b.Tokenizer)
		require.NoError(t, err, name)
		require.Equal(t, c.ids, vocabulary.EncodeSpecial(text), name)
		for _, token := range []string{"<NEW>", "<NEW2>"} {
			id, ok := vocabulary.ID(token)
			require.Equal(t, strings.Contains(strings.Join(c.special, " "), token), ok && vocabulary.Special(id), "%s: %s", name, token)
			if ok {
				require.Equal(t, token, vocabulary.Name(id), name)
			}
		}
	}
	unchanged, err := dialog.ReadBundle(directoryOf(t, map[string]string{"tokenizer_config.json": `{"eos_token":"<|im_end|>"}`}))
	require.NoError(t, err)
	require.Equal(t, bundle(t, "hermes").Tokenizer, unchanged.Tokenizer, "what adds nothing changes no byte")

	// A token that one file calls special is special, whatever tokenizer.json says.
	b, err := dialog.ReadBundle(directoryOf(t, map[string]string{"tokenizer_config.json": `{"added_tokens_decoder":{"706":` + added("true", "</think>") + `}}`}))
	require.NoError(t, err)
	vocabulary, err := tokenizer.FromJSON(b.Tokenizer)
	require.NoError(t, err)
	require.True(t, vocabulary.Special(706))
}

func TestTokensThatOtherProgramsWouldNumberOtherwiseAreRefused(t *testing.T) {
	t.Parallel()
	b := bundle(t, "hermes")
	for want, files := range map[string]map[string]string{
		`tokenizer_config.json: added_tokens_decoder gives the token "<NEW>" the id 710, but the next free id of tokenizer.json is 707`: {
			"tokenizer_config.json": `{"added_tokens_decoder":{"710":{"content":"<NEW>"}}}`},
		`added_tokens.json gives the token "<NEW>" the id 708, but the next free id of tokenizer.json is 707`: {"added_tokens.json": `{"<NEW>":708}`},
		`added_tokens.json gives the token "<think>" the id 7, but in tokenizer.json it has the id 705`:       {"added_tokens.json": `{"<think>":7}`},
		`added_tokens_decoder: "x" is no token id`:                                                            {"tokenizer_config.json": `{"added_tokens_decoder":{"x":{"content":"<NEW>"}}}`},
	} {
		_, err := dialog.ReadBundle(directoryOf(t, files))
		require.ErrorIs(t, err, dialog.ErrBundle)
		require.ErrorContains(t, err, want)
	}
	gap := strings.Replace(string(b.Tokenizer), `"id": 706`, `"id": 709`, 1)
	if gap == string(b.Tokenizer) {
		gap = strings.Replace(string(b.Tokenizer), `"id":706`, `"id":709`, 1)
	}
	_, err := tokenizer.FromJSON([]byte(gap))
	require.ErrorContains(t, err, `added_tokens: "</think>" has the id 709, but the next free one is 706`)
}

// As in transformers, the post_processor of tokenizer.json decides.
func TestTokensAroundATextAreThoseOfTheTokenizer(t *testing.T) {
	t.Parallel()
	b, err := dialog.ReadBundle(directoryOf(t, map[string]string{"tokenizer_config.json": `{"add_bos_token":true,"bos_token":"<|im_start|>"}`}))
	require.NoError(t, err)
	before, after, err := tokenizer.Around(b.Tokenizer)
	require.NoError(t, err)
	require.Empty(t, before)
	require.Empty(t, after)
}

func TestTokensWithoutARowAreNeverUsed(t *testing.T) {
	t.Parallel()
	b := bundle(t, "hermes")
	b.VocabSize, b.Stop = 703, []int32{702, 705, 9000} // without <tool_call> and what follows
	c, err := b.Codec("template:x")
	require.NoError(t, err)
	require.Equal(t, 703, c.VocabSize())
	require.Equal(t, []int32{702}, c.Stop())
	ask := func(text string) []dialog.Message { return []dialog.Message{{Role: dialog.User, Content: text}} }
	ids, err := c.Prompt(ask("Hello"), nil)
	require.NoError(t, err)
	require.NotEmpty(t, ids)
	// What an assistant said may have marks of thoughts; a user's text never becomes one.
	said := append(ask("Hello"), dialog.Message{Role: dialog.Assistant, Content: "a <think> b"}, ask("Why?")[0])
	_, err = c.Prompt(said, nil)
	require.ErrorIs(t, err, dialog.ErrDialog)
	require.ErrorContains(t, err, `the prompt needs the token "<think>", whose id 705 has no row in the model's embedding of 703 rows`)
	_, err = c.Bridge(said, nil)
	require.ErrorContains(t, err, `"<think>", whose id 705`)
	_, _, err = c.Demonstration(dialog.Dialog{Messages: append(ask("Hello"), dialog.Message{Role: dialog.Assistant, Content: "</tool_call>"})})
	require.Error(t, err)
}

func TestMoreStopTokensAreNamedByTextOrID(t *testing.T) {
	t.Parallel()
	dir := directoryOf(t, nil)
	c, _, err := dialog.ReadCodecWith(dir, dialog.Choices{StopTokens: []string{"<|endoftext|>", "705"}})
	require.NoError(t, err)
	require.Equal(t, []int32{702, 700, 705}, c.Stop())
	for want, token := range map[string]string{`no token "<|nothing|>"`: "<|nothing|>", `no token "100000"`: "100000"} {
		_, _, err := dialog.ReadCodecWith(dir, dialog.Choices{StopTokens: []string{token}})
		require.ErrorContains(t, err, "sampling.stop_tokens: ")
		require.ErrorContains(t, err, want)
	}
}
