package models_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/models"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/plan"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/terminal"
	"github.com/fulgurite/fulgurite/internal/golden"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/hf"
)

const commit = "0123456789abcdef0123456789abcdef01234567"

// published writes a model as one is published, its weights in two files.
func published(t *testing.T) (dir string, a model.Architecture, w model.Weights) {
	t.Helper()
	dir = t.TempDir()
	a = model.Tiny(707)
	w = a.Init(1)
	config, err := hf.WriteConfig(a)
	require.NoError(t, err)
	tokenizer, err := os.ReadFile("../../../../model/tokenizer/testdata/qwen.json")
	require.NoError(t, err)
	var parts [2]bytes.Buffer
	require.NoError(t, hf.WriteSafetensors(&parts[0], w[3:], nil))
	require.NoError(t, hf.WriteSafetensors(&parts[1], w[:3], nil))
	for name, text := range map[string][]byte{
		"config.json": config, "tokenizer.json": tokenizer, "README.md": []byte("# Tiny"),
		"tokenizer_config.json":            []byte(`{"eos_token": "<|im_end|>"}`),
		"model-00001-of-00002.safetensors": parts[0].Bytes(), "model-00002-of-00002.safetensors": parts[1].Bytes(),
		"model.safetensors.index.json": []byte(`{"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}`),
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), text, 0o600))
	}
	return dir, a, w
}

func run(c models.Import) (string, error) {
	var out bytes.Buffer
	err := c.Run(context.Background(), &terminal.Terminal{Out: &out, Err: &out})
	return out.String(), err
}

func requireModel(t *testing.T, dir string, a model.Architecture, w model.Weights) {
	t.Helper()
	gotA, gotW, err := hf.ReadDirectory(dir)
	require.NoError(t, err)
	require.Equal(t, a, gotA)
	require.Empty(t, cmp.Diff(w, gotW))
	require.FileExists(t, filepath.Join(dir, "model.safetensors"))
	beside, err := os.ReadDir(filepath.Dir(dir))
	require.NoError(t, err)
	require.Len(t, beside, 1, "nothing temporary is left")
}

func TestADirectoryIsImported(t *testing.T) {
	t.Parallel()
	source, a, w := published(t)
	dir := filepath.Join(t.TempDir(), "new", "tiny")
	out, err := run(models.Import{Source: source, Directory: dir})
	require.NoError(t, err)
	require.Contains(t, out, "2 layers")
	golden.Compare(t, "import", golden.Steady(out, source, dir))
	requireModel(t, dir, a, w)

	_, err = run(models.Import{Source: source, Directory: dir})
	require.ErrorContains(t, err, "config.json")
	requireModel(t, dir, a, w)
}

func TestAnImportThatFailsLeavesNothing(t *testing.T) {
	t.Parallel()
	source, _, _ := published(t)
	part := filepath.Join(source, "model-00002-of-00002.safetensors")
	text, err := os.ReadFile(part)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(part, text[:len(text)-1], 0o600))
	parent := t.TempDir()
	c := models.Import{Source: source, Directory: filepath.Join(parent, "tiny")}
	_, err = run(c)
	require.ErrorContains(t, err, "model-00002-of-00002.safetensors: ")
	refused := map[string]string{"a file that was cut": golden.Steady(err.Error(), source, parent)}
	require.NoError(t, os.WriteFile(part, text, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(source, "tokenizer.json"), []byte(`{"model": {"type": "WordPiece"}}`), 0o600))
	_, err = run(c)
	require.ErrorContains(t, err, `"WordPiece"`)
	refused["a tokenizer of another type"] = golden.Steady(err.Error(), source, parent)
	golden.Table(t, "import_refused", refused)
	entries, err := os.ReadDir(parent)
	require.NoError(t, err)
	require.Empty(t, entries)
}

// hub serves a directory as the Hugging Face hub does, and cuts off the first answer with
// weights.
func hub(t *testing.T, source string) {
	t.Helper()
	cut := true
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if name, ok := strings.CutPrefix(r.URL.Path, "/acme/tiny/resolve/"+commit+"/"); ok {
			text, err := os.ReadFile(filepath.Join(source, name))
			if err != nil {
				http.NotFound(w, r)
				return
			}
			if cut && strings.HasSuffix(name, ".safetensors") {
				cut = false
				w.Header().Set("Content-Length", "100000")
				_, _ = w.Write(text[:1000])
				panic(http.ErrAbortHandler)
			}
			http.ServeFile(w, r, filepath.Join(source, name)) // obeys Range
			return
		}
		entries, _ := os.ReadDir(source)
		var siblings []any
		for _, e := range entries {
			text, _ := os.ReadFile(filepath.Join(source, e.Name()))
			sum := sha256.Sum256(text)
			siblings = append(siblings, map[string]any{"rfilename": e.Name(), "size": len(text), "lfs": map[string]any{"sha256": hex.EncodeToString(sum[:])}})
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"sha": commit, "siblings": siblings})
	}))
	t.Cleanup(server.Close)
	t.Setenv("HF_ENDPOINT", server.URL)
}

func TestAModelOnTheHubIsImported(t *testing.T) {
	source, a, w := published(t)
	hub(t, source)
	dir := filepath.Join(t.TempDir(), "tiny")
	out, err := run(models.Import{Source: "hf:acme/tiny", Directory: dir})
	require.NoError(t, err)
	require.Contains(t, out, "acme/tiny@"+commit+": 6 files")
	requireModel(t, dir, a, w)
	require.NoFileExists(t, filepath.Join(dir, "README.md"))
}

func TestWhatTheHubLacksIsNamed(t *testing.T) {
	source, _, _ := published(t)
	hub(t, source)
	dir := filepath.Join(t.TempDir(), "tiny")
	_, err := run(models.Import{Source: "hf:acme/tiny:q4.gguf", Directory: dir})
	require.ErrorContains(t, err, "q4.gguf")
	missing := map[string]string{"a file": golden.Steady(err.Error(), dir)}
	require.NoError(t, os.Remove(filepath.Join(source, "tokenizer.json")))
	_, err = run(models.Import{Source: "hf:acme/tiny", Directory: dir})
	require.ErrorContains(t, err, "tokenizer.json")
	missing["a tokenizer"] = golden.Steady(err.Error(), dir)
	weights, err := filepath.Glob(filepath.Join(source, "model*"))
	require.NoError(t, err)
	for _, path := range weights {
		require.NoError(t, os.Rename(path, path+".gguf"))
	}
	_, err = run(models.Import{Source: "hf:acme/tiny", Directory: dir})
	require.ErrorContains(t, err, "hf:acme/tiny:model-00001-of-00002.safetensors.gguf")
	missing["which GGUF file"] = golden.Steady(err.Error(), dir)
	golden.Table(t, "hub_lacks", missing)
}

func TestAnImportSaysWhatARunWillDoWithTheModel(t *testing.T) {
	t.Parallel()
	source, a, w := published(t)
	template, err := os.ReadFile("../../../../dialog/testdata/templates/hermes.jinja")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(source, "chat_template.jinja"), template, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(source, "generation_config.json"), []byte(`{"eos_token_id": [702, 700], "top_p": NaN}`), 0o600))
	// As in a small base model, the marks of tool calls were never trained.
	table, err := w.Tensor("model.embed_tokens.weight")
	require.NoError(t, err)
	for _, id := range []int{701, 703, 704} {
		copy(table.Data[id*a.HiddenSize:(id+1)*a.HiddenSize], table.Data[690*a.HiddenSize:])
	}
	var part bytes.Buffer
	require.NoError(t, hf.WriteSafetensors(&part, w[:3], nil))
	require.NoError(t, os.WriteFile(filepath.Join(source, "model-00002-of-00002.safetensors"), part.Bytes(), 0o600))
	dir := t.TempDir()
	out, err := run(models.Import{Source: source, Directory: filepath.Join(dir, "tiny")})
	require.NoError(t, err)
	for _, want := range []string{"<|im_end|> (702), <|endoftext|> (700)", "hermes", "<tool_call> and </tool_call>", "model.lora.trainable_tokens: [auto]", "model.tool_parser"} {
		require.Contains(t, out, want)
	}
	golden.Compare(t, "import_with_template", golden.Steady(out, source, dir))

	// The plan of a run follows that advice.
	planned := func(tokens string) plan.Plan {
		path := filepath.Join(t.TempDir(), "spec.yaml")
		text := fmt.Sprintf("model: {base: %q, codec: template, lora: {trainable_tokens: %s}}\nagent: {func: calculator}\ntasks: {train: \"arithmetic:train:8\"}\ngrader: {type: exact}\ntraining: {steps: 1, tasks_per_step: 2}\n",
			filepath.Join(dir, "tiny"), tokens)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		p, err := plan.Make(t.Context(), path)
		require.NoError(t, err)
		return p
	}
	without, auto, some := planned("[]"), planned("[auto]"), planned(`[<tool_call>, "705"]`)
	require.Contains(t, strings.Join(without.Warnings, "\n"), "<tool_call> and </tool_call>, have the same row")
	require.NotContains(t, strings.Join(auto.Warnings, "\n"), "the same row")
	require.Contains(t, strings.Join(some.Warnings, "\n"), " </tool_call>, have the same row")
	require.Equal(t, without.Sizes.Weights+2*4*int64(a.HiddenSize), auto.Sizes.Weights)
	var printed bytes.Buffer
	auto.Print(&terminal.Terminal{Out: &printed})
	require.Contains(t, printed.String(), "tokens       <tool_call>, </tool_call>:")
}

// vLLM can be told to leave out 1024 ids, and Qwen's tokenizer has no token for more of
// this model's.
func TestAServerThatCannotLeaveOutAllIDsWithoutATokenIsRefused(t *testing.T) {
	t.Parallel()
	source, _, _ := published(t)
	dir, a := t.TempDir(), model.Tiny(2000)
	require.NoError(t, hf.WriteDirectory(dir, a, a.Init(1)))
	for name, from := range map[string]string{"tokenizer.json": filepath.Join(source, "tokenizer.json"), "chat_template.jinja": "../../../../dialog/testdata/templates/hermes.jinja"} {
		text, err := os.ReadFile(from)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), text, 0o600))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "generation_config.json"), []byte(`{"eos_token_id": 702}`), 0o600))
	path := filepath.Join(t.TempDir(), "spec.yaml")
	makePlan := func(lora, server string) error {
		text := fmt.Sprintf("model: {base: %q, codec: template%s}\nagent: {func: calculator}\ntasks: {train: \"arithmetic:train:8\"}\ngrader: {type: exact}\ntraining: {steps: 1, tasks_per_step: 2}\nsampling: {%s}\n", dir, lora, server)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		_, err := plan.Make(t.Context(), path)
		return err
	}
	const (
		refusal = "sampling.server.type: 1293 rows of the model's vocabulary have no token, and a server of type vllm can be told to leave out 1024: "
		builtIn = "leave sampling.server out, so that the built-in sampler samples"
		adapter = ", lora: {rank: 2}"
	)
	server := func(settings string) string {
		return `server: {urls: ["http://127.0.0.1:1"], model: m, ` + settings + "}"
	}
	require.EqualError(t, makePlan("", server("type: vllm, versions: none")), refusal+"give sglang, or "+builtIn)
	require.NoError(t, makePlan("", server("type: sglang, versions: none")))
	require.EqualError(t, makePlan("", server("type: vllm, directory: /d")), refusal+"give sglang with sampling.server.versions reload, or "+builtIn)
	require.NoError(t, makePlan("", server("type: sglang, versions: reload, directory: /d")))
	require.EqualError(t, makePlan(adapter, server("type: vllm, directory: /d")), refusal+builtIn, "a server of type sglang takes no adapters")
	require.NoError(t, makePlan(adapter, ""))
}

func TestAModelOnTheHubIsRecognized(t *testing.T) {
	t.Parallel()
	for source, want := range map[string]string{
		"HuggingFaceTB/SmolLM2-135M":                         "hf:HuggingFaceTB/SmolLM2-135M",
		"https://huggingface.co/acme/tiny":                   "hf:acme/tiny",
		"https://huggingface.co/acme/tiny/tree/v1":           "hf:acme/tiny@v1",
		"https://huggingface.co/acme/tiny/blob/main/q4.gguf": "hf:acme/tiny@main:q4.gguf",
		"huggingface.co/acme/tiny/resolve/main/config.json":  "hf:acme/tiny@main",
	} {
		_, err := run(models.Import{Source: source, Directory: filepath.Join(t.TempDir(), "tiny")})
		require.ErrorContains(t, err, "a model on the hub is written "+want)
	}
	_, err := run(models.Import{Source: "./nothing/here", Directory: filepath.Join(t.TempDir(), "tiny")})
	require.ErrorContains(t, err, "no such file")
	require.NotContains(t, err.Error(), "hf:")
}

func TestWeightsInOtherFormatsAreNamedWithTheWayOn(t *testing.T) {
	source, _, _ := published(t)
	for _, name := range []string{"model.safetensors.index.json", "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"} {
		require.NoError(t, os.Remove(filepath.Join(source, name)))
	}
	require.NoError(t, os.WriteFile(filepath.Join(source, "pytorch_model.bin"), []byte("x"), 0o600))
	dir := filepath.Join(t.TempDir(), "tiny")
	_, err := run(models.Import{Source: source, Directory: dir})
	require.ErrorContains(t, err, "the directory has pytorch_model.bin: weights in this format have to be saved as safetensors first")
	require.NoError(t, os.WriteFile(filepath.Join(source, "big-00002-of-00003.gguf"), []byte("x"), 0o600))
	hub(t, source)
	_, err = run(models.Import{Source: "hf:acme/tiny:big-00002-of-00003.gguf", Directory: dir})
	require.ErrorContains(t, err, "big-00002-of-00003.gguf is part 2 of 3 of a model")
	require.ErrorContains(t, err, "llama-gguf-split --merge")
	require.NoError(t, os.Remove(filepath.Join(source, "big-00002-of-00003.gguf")))
	_, err = run(models.Import{Source: "hf:acme/tiny", Directory: dir})
	require.ErrorContains(t, err, "has no safetensors; it has pytorch_model.bin")
}

func TestFilesThatAreNoModelAreNamedWithTheWayOn(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"q4.gguf": "version https://git-lfs.github.com/spec/v1\n", "tiny.tar.gz": "\x1f\x8b\x08\x00", "pytorch_model.bin": "PK\x03\x04",
		"model.safetensors": "x", "rows.parquet": "PAR1", "adapter/adapter_config.json": "{}", "quantized/q4.gguf": "GGUF",
	} {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	for source, want := range map[string]string{
		"q4.gguf":           "it is no GGUF file; it is a pointer of Git LFS, not the file itself: fetch the file (git lfs pull)",
		"tiny.tar.gz":       "it is compressed by gzip: unpack it first (gunzip)",
		"pytorch_model.bin": "weights in this format have to be saved as safetensors first",
		"model.safetensors": "give the directory that holds it",
		"rows.parquet":      "it is a Parquet file: give a directory with safetensors, or a GGUF file",
		"adapter":           "it is an adapter, not a model: import its base",
		"quantized":         "the directory has q4.gguf: make a model directory of it with `fulgurite import " + filepath.Join(dir, "quantized", "q4.gguf") + " DIRECTORY`",
	} {
		_, err := run(models.Import{Source: filepath.Join(dir, source), Directory: filepath.Join(t.TempDir(), "tiny")})
		require.ErrorContains(t, err, want, source)
	}
}
