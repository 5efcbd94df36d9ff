package convert_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/convert"
	"github.com/fulgurite/fulgurite/model/files/gguf"
	"github.com/fulgurite/fulgurite/model/files/hf"
	"github.com/fulgurite/fulgurite/model/tokenizer"
)

// edited returns a tokenizer.json with some fields replaced.
func edited(t *testing.T, text []byte, fields map[string]string) json.RawMessage {
	t.Helper()
	file := map[string]json.RawMessage{}
	require.NoError(t, json.Unmarshal(text, &file))
	for name, value := range fields {
		file[name] = json.RawMessage(value)
	}
	out, err := json.Marshal(file)
	require.NoError(t, err)
	return out
}

const llama3Ends = `{"type":"Sequence","processors":[{"type":"ByteLevel","add_prefix_space":true,"trim_offsets":false,"use_regex":true},
	{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<|begin_of_text|>","type_id":0}},{"Sequence":{"id":"A","type_id":0}}],
	"pair":[],"special_tokens":{"<|begin_of_text|>":{"id":"<|begin_of_text|>","ids":[700],"tokens":["<|begin_of_text|>"]}}}]}`

func opened(t *testing.T, path string) *gguf.File {
	t.Helper()
	f, err := os.Open(path)
	require.NoError(t, err)
	t.Cleanup(func() { _ = f.Close() })
	stat, err := f.Stat()
	require.NoError(t, err)
	read, err := gguf.Open(f, stat.Size())
	require.NoError(t, err)
	return read
}

func TestTheTokenThatBeginsATextIsExported(t *testing.T) {
	t.Parallel()
	a := small()
	plain := bundle(t, "llama3", "llama", "<|eot_id|>")
	for name, c := range map[string]struct {
		ends string
		adds bool
	}{
		"a sequence of processors": {llama3Ends, true},
		"bytes only":               {`{"type":"ByteLevel","add_prefix_space":true,"trim_offsets":false,"use_regex":true}`, false},
		"Roberta's":                {`{"type":"RobertaProcessing","sep":["<|eot_id|>",705],"cls":["<|begin_of_text|>",700],"trim_offsets":true,"add_prefix_space":false}`, true},
		"none":                     {"null", false},
	} {
		b := plain
		b.Tokenizer = edited(t, plain.Tokenizer, map[string]string{"post_processor": c.ends})
		path, dir := filepath.Join(t.TempDir(), "model.gguf"), t.TempDir()
		require.NoError(t, convert.ToGGUF(path, "tiny", a, a.Init(1), b, gguf.F32), name)
		adds, err := opened(t, path).Metadata.Bool("tokenizer.ggml.add_bos_token")
		require.NoError(t, err)
		require.Equal(t, c.adds, adds, name)
		_, err = convert.FromGGUF(path, dir, convert.Options{})
		require.NoError(t, err, name)
		text, err := os.ReadFile(filepath.Join(dir, "tokenizer.json"))
		require.NoError(t, err)
		wantBefore, wantAfter, err := tokenizer.Around(b.Tokenizer)
		require.NoError(t, err)
		before, after, err := tokenizer.Around(text)
		require.NoError(t, err)
		require.Equal(t, wantBefore, before, name)
		require.Equal(t, wantAfter, after, name)
	}
}

func TestWhatLlamaCppCannotTokenizeIsNotExported(t *testing.T) {
	t.Parallel()
	a, good := small(), bundle(t, "qwen", "hermes", "<|im_end|>")
	special := `{"SpecialToken":{"id":"<|im_start|>","type_id":0}}`
	for want, fields := range map[string]map[string]string{
		"normalizer: Replace":                     {"normalizer": `{"type":"Sequence","normalizers":[{"type":"NFC"},{"type":"Replace","pattern":{"String":"a"},"content":"b"}]}`},
		"normalizer: Prepend":                     {"normalizer": `{"type":"Prepend","prepend":"x"}`},
		"post_processor puts 2 tokens before":     {"post_processor": `{"type":"TemplateProcessing","single":[` + special + `,` + special + `,{"Sequence":{"id":"A","type_id":0}}],"special_tokens":{"<|im_start|>":{"id":"<|im_start|>","ids":[701],"tokens":["<|im_start|>"]}}}`},
		"post_processor puts tokens after a text": {"post_processor": `{"type":"TemplateProcessing","single":[{"Sequence":{"id":"A","type_id":0}},` + special + `],"special_tokens":{"<|im_start|>":{"id":"<|im_start|>","ids":[701],"tokens":["<|im_start|>"]}}}`},
		`lstrip of "<|endoftext|>" is true`:       {"added_tokens": strings.Replace(addedOf(t, good.Tokenizer), `"lstrip":false`, `"lstrip":true`, 1)},
		`post_processor.type is "Something else"`: {"post_processor": `{"type":"Something else"}`},
	} {
		b := good
		b.Tokenizer = edited(t, good.Tokenizer, fields)
		err := convert.ToGGUF(filepath.Join(t.TempDir(), "model.gguf"), "tiny", a, a.Init(1), b, gguf.F32)
		require.ErrorContains(t, err, want)
	}
}

func addedOf(t *testing.T, text []byte) string {
	t.Helper()
	var file struct {
		Added json.RawMessage `json:"added_tokens"`
	}
	require.NoError(t, json.Unmarshal(text, &file))
	var list []map[string]any
	require.NoError(t, json.Unmarshal(file.Added, &list))
	compact, err := json.Marshal(list)
	require.NoError(t, err)
	return string(compact)
}

// rewritten returns the path of a copy of an F32 file with more metadata and other tensors.
func rewritten(t *testing.T, path string, more gguf.Metadata, change func(name string, numbers []float32) map[string][]float32) string {
	t.Helper()
	f := opened(t, path)
	m := gguf.Metadata{}
	for _, p := range append(f.Metadata, more...) {
		switch v := p.Value.(type) {
		case int64:
			p.Value = uint32(v)
		case uint64:
			p.Value = uint32(v)
		case float64:
			p.Value = float32(v)
		case []int64:
			list := make([]int32, len(v))
			for i, n := range v {
				list[i] = int32(n)
			}
			p.Value = list
		}
		m = append(m, p)
	}
	var entries []gguf.Entry
	var data [][]float32
	for _, tensor := range f.Tensors {
		raw, numbers := make([]byte, tensor.RowBytes()*tensor.Rows()), make([]float32, tensor.Rows()*tensor.Width())
		require.NoError(t, tensor.ReadRows(raw, 0))
		tensor.Decode(numbers, raw)
		for name, numbers := range change(tensor.Name, numbers) {
			entries, data = append(entries, gguf.Entry{Name: name, Shape: tensor.Shape, Type: gguf.F32}), append(data, numbers)
		}
	}
	to := filepath.Join(t.TempDir(), "other.gguf")
	out, err := os.Create(to)
	require.NoError(t, err)
	w, err := gguf.NewWriter(out, m, entries)
	require.NoError(t, err)
	for _, numbers := range data {
		require.NoError(t, w.Write(numbers))
	}
	require.NoError(t, w.Close())
	require.NoError(t, out.Close())
	return to
}

func same(name string, numbers []float32) map[string][]float32 {
	return map[string][]float32{name: numbers}
}

func exported(t *testing.T) (string, model.Architecture) {
	t.Helper()
	a, path := small(), filepath.Join(t.TempDir(), "model.gguf")
	require.NoError(t, convert.ToGGUF(path, "tiny", a, a.Init(1), bundle(t, "llama3", "llama", "<|eot_id|>"), gguf.F32))
	return path, a
}

func TestFilesThatAreNoWholeModelNameTheWayOn(t *testing.T) {
	t.Parallel()
	path, _ := exported(t)
	for want, pair := range map[string]gguf.Pair{
		"split.count is 3: the model is split":          {Key: "split.count", Value: uint32(3)},
		`llama.rope.scaling.factor is 4, which without`: {Key: "llama.rope.scaling.factor", Value: float32(4)},
		`llama.rope.scale_linear is 2, which without`:   {Key: "llama.rope.scale_linear", Value: float32(2)},
	} {
		_, err := convert.FromGGUF(rewritten(t, path, gguf.Metadata{pair}, same), t.TempDir(), convert.Options{})
		require.ErrorIs(t, err, convert.ErrUnsupported)
		require.ErrorContains(t, err, want)
	}
	adapter := filepath.Join(t.TempDir(), "adapter.gguf")
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	changed := strings.Replace(string(text), "general.type\x08\x00\x00\x00\x05\x00\x00\x00\x00\x00\x00\x00model", "general.type\x08\x00\x00\x00\x05\x00\x00\x00\x00\x00\x00\x00mmprj", 1)
	require.NotEqual(t, string(text), changed)
	require.NoError(t, os.WriteFile(adapter, []byte(changed), 0o600))
	_, err = convert.FromGGUF(adapter, t.TempDir(), convert.Options{})
	require.ErrorContains(t, err, `general.type is "mmprj", want a model`)
	_, err = convert.FromGGUF(rewritten(t, path, gguf.Metadata{{Key: "llama.rope.scaling.type", Value: "none"}, {Key: "llama.rope.scaling.factor", Value: float32(4)}}, same), t.TempDir(), convert.Options{})
	require.NoError(t, err, "llama.cpp ignores the factor of no scaling")
}

func TestAnOutputLayerThatRepeatsTheEmbeddingIsLeftOut(t *testing.T) {
	t.Parallel()
	path, a := exported(t)
	for name, own := range map[string]bool{"copy": false, "its own": true} {
		with := rewritten(t, path, nil, func(name string, numbers []float32) map[string][]float32 {
			tensors := same(name, numbers)
			if name == "token_embd.weight" {
				tensors["output.weight"] = append([]float32{}, numbers...)
				if own {
					tensors["output.weight"][7]++
				}
			}
			return tensors
		})
		dir := t.TempDir()
		made, err := convert.FromGGUF(with, dir, convert.Options{})
		require.NoError(t, err, name)
		require.Equal(t, !own, made.Copied, name)
		want := a
		want.Tied = !own
		got, _, err := hf.ReadDirectory(dir)
		require.NoError(t, err, name)
		require.Equal(t, want, got, name)
	}
}

func TestADirectoryWithAnOutputLayerOfItsOwnIsImportedUntied(t *testing.T) {
	t.Parallel()
	source, dir, a := directory(t), t.TempDir(), small()
	w := a.Init(1)
	head := model.Tensor{Name: "lm_head.weight", Shape: w[0].Shape, Data: append([]float32{}, w[0].Data...)}
	head.Data[3]++
	f, err := os.Create(filepath.Join(source, model.WeightsFile))
	require.NoError(t, err)
	require.NoError(t, hf.WriteSafetensors(f, append(w, head), nil))
	require.NoError(t, f.Close())
	made, err := convert.FromDirectory(source, dir, convert.Options{})
	require.NoError(t, err)
	require.True(t, made.Untied)
	got, weights, err := hf.ReadDirectory(dir)
	require.NoError(t, err)
	require.False(t, got.Tied)
	kept, err := weights.Tensor("lm_head.weight")
	require.NoError(t, err)
	require.Equal(t, head.Data, kept.Data)
	config, err := os.ReadFile(filepath.Join(dir, model.ConfigFile))
	require.NoError(t, err)
	require.Contains(t, string(config), `"tie_word_embeddings": false`)
}

func TestAnImportEndsRepliesWhereLlamaCppDoes(t *testing.T) {
	t.Parallel()
	a, path, dir := small(), filepath.Join(t.TempDir(), "model.gguf"), t.TempDir()
	b := bundle(t, "qwen", "hermes", "<|im_end|>")
	// A model of code has tokens that pad a text and that begin a repository and a file.
	b.Tokenizer = edited(t, b.Tokenizer, map[string]string{"added_tokens": strings.TrimSuffix(addedOf(t, b.Tokenizer), "]") +
		`,{"id":707,"content":"<|fim_pad|>","special":true},{"id":708,"content":"<|repo_name|>","special":true},{"id":709,"content":"<|other|>","special":true}]`})
	require.NoError(t, convert.ToGGUF(path, "tiny", a, a.Init(1), b, gguf.F32))
	_, err := convert.FromGGUF(path, dir, convert.Options{})
	require.NoError(t, err)
	got, err := dialog.ReadBundle(dir)
	require.NoError(t, err)
	require.Equal(t, []int32{700, 702, 707, 708}, got.Stop)

	// What was imported is exported again, and ends replies at the same tokens.
	again, dir := filepath.Join(t.TempDir(), "model.gguf"), t.TempDir()
	require.NoError(t, convert.ToGGUF(again, "tiny", a, a.Init(1), got, gguf.F32))
	_, err = convert.FromGGUF(again, dir, convert.Options{})
	require.NoError(t, err)
	second, err := dialog.ReadBundle(dir)
	require.NoError(t, err)
	require.Equal(t, got.Stop, second.Stop)

	// llama.cpp takes one token of those that pad a text, so each of two needs a key, and there is one for both.
	got.Tokenizer = bytes.ReplaceAll(got.Tokenizer, []byte("|other|"), []byte("fim_pad"))
	got.Stop = append(got.Stop, 709)
	err = convert.ToGGUF(filepath.Join(t.TempDir(), "model.gguf"), "tiny", a, a.Init(1), got, gguf.F32)
	require.ErrorIs(t, err, convert.ErrUnsupported)
	require.ErrorContains(t, err, "ends a reply too, and llama.cpp has keys for three such tokens")
}
