package convert_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/convert"
	"github.com/fulgurite/fulgurite/model/files/hf"
)

// directory returns a published model's directory: a tokenizer of 707 tokens and an
// embedding of 710 rows.
func directory(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "source")
	a := small()
	require.NoError(t, hf.WriteDirectory(dir, a, a.Init(1)))
	text, err := os.ReadFile(filepath.Join("..", "..", "tokenizer", "testdata", "qwen.json"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "tokenizer.json"), text, 0o600))
	return dir
}

func TestDirectoriesThatLieAreRefusedByName(t *testing.T) {
	t.Parallel()
	replaced := func(old, with string) func([]byte) []byte {
		return func(text []byte) []byte { return bytes.Replace(text, []byte(old), []byte(with), 1) }
	}
	cut := func(n int) func([]byte) []byte { return func(text []byte) []byte { return text[:len(text)-n] } }
	for name, c := range map[string]struct {
		file   string
		change func([]byte) []byte // nil removes the file
		want   string
	}{
		"nothing amiss":          {"config.json", cut(0), ""},
		"no config":              {"config.json", nil, "config.json: no such file"},
		"no tokenizer":           {"tokenizer.json", nil, "the directory of a model has its tokenizer"},
		"no weights":             {model.WeightsFile, nil, "model.safetensors"},
		"half a config":          {"config.json", cut(3), "config.json"},
		"half a tokenizer":       {"tokenizer.json", cut(3), "tokenizer.json"},
		"half the weights":       {model.WeightsFile, cut(400), "model.safetensors"},
		"weights without data":   {model.WeightsFile, func(b []byte) []byte { return b[:6] }, "model.safetensors"},
		"a lying length":         {model.WeightsFile, func(b []byte) []byte { return append([]byte{0, 0, 0, 0, 0, 0, 0, 64}, b[8:]...) }, "model.safetensors"},
		"an unknown type":        {model.WeightsFile, replaced(`"F32"`, `"F31"`), `type "F31" is not supported`},
		"another tensor":         {model.WeightsFile, replaced("q_proj.weight", "z_proj.weight"), "q_proj.weight is absent"},
		"fewer rows than tokens": {"config.json", replaced(`"vocab_size": 710`, `"vocab_size": 700`), "has shape [710 48], config.json makes it [700 48]"},
		"more layers":            {"config.json", replaced(`"num_hidden_layers": 2`, `"num_hidden_layers": 3`), "model.layers.2"},
		"absurdly many layers":   {"config.json", replaced(`"num_hidden_layers": 2`, `"num_hidden_layers": 2000000000`), "layers is 2000000000"},
		"no heads":               {"config.json", replaced(`"num_attention_heads": 4`, `"num_attention_heads": 0`), "heads is 0"},
		"another architecture":   {"config.json", replaced(`"llama"`, `"other"`), `model_type "other"`},
		"another kind of tokens": {"tokenizer.json", replaced(`"type":"BPE"`, `"type":"Unigram"`), `model.type is "Unigram", want BPE`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			source, dir := directory(t), t.TempDir()
			path := filepath.Join(source, c.file)
			if c.change == nil {
				require.NoError(t, os.Remove(path))
			} else {
				text, err := os.ReadFile(path)
				require.NoError(t, err)
				require.NoError(t, os.WriteFile(path, c.change(text), 0o600))
			}
			_, err := convert.FromDirectory(source, dir, convert.Options{})
			if c.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.want)
			require.ErrorContains(t, err, source)
			require.NoFileExists(t, filepath.Join(dir, model.WeightsFile))
		})
	}
}
