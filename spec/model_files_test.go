package spec_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/spec"
)

const withBase = `
model: {base: BASE, codec: template}
agent: {func: f}
tasks: {train: "arithmetic:train"}
grader: {type: exact}
training: {steps: 1}
`

func TestWhatIsNoModelDirectoryIsNamedWithTheWayOn(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"q4.gguf": "GGUF", "model.gz": "\x1f\x8b\x08\x00", "whole.bin": "PK\x03\x04",
		"pickled/config.json": "{}", "pickled/pytorch_model.bin": "x", "pickled/training_args.bin": "x",
		"meta/config.json": "{}", "meta/consolidated.00.pth": "x",
		"quantized/q4.gguf":           "GGUF",
		"adapter/adapter_config.json": `{"base_model_name_or_path": "acme/tiny"}`, "adapter/adapter_model.safetensors": "x",
		"cache/snapshots/abc/config.json":  "{}",
		"trained/checkpoint-9/config.json": "{}", "trained/optimizer.pt": "x",
		"renamed/config.json": "{}", "renamed/weights.safetensors": "x",
		"parts/config.json": "{}", "parts/a.safetensors": "x",
		"parts/model.safetensors.index.json": `{"weight_map": {"x": "a.safetensors", "y": "b.safetensors"}}`,
		"empty/README.md":                    "x",
	} {
		write(t, filepath.Join(dir, name), text)
	}
	at := func(name string) string { return filepath.Join(dir, name) }
	for base, want := range map[string][]string{
		"q4.gguf":                         {at("q4.gguf") + " is a file; make a directory of it with `fulgurite import " + at("q4.gguf") + " DIRECTORY`"},
		"model.gz":                        {"is a file; it is compressed by gzip: unpack it first (gunzip)"},
		"whole.bin":                       {"is a file; weights in this format have to be saved as safetensors first"},
		"parts/config.json":               {"is a file; give the directory that holds it"},
		"pickled":                         {at("pickled/model.safetensors") + ": no such file or directory; the directory has pytorch_model.bin: weights in this format have to be saved as safetensors first"},
		"meta":                            {"the directory has consolidated.00.pth"},
		"quantized":                       {at("quantized/config.json") + ": no such file or directory; the directory has q4.gguf: make a model directory of it with `fulgurite import " + at("quantized/q4.gguf") + " DIRECTORY`"},
		"adapter":                         {"it is an adapter, not a model: import its base (acme/tiny), and give the directory as model.lora.adapter"},
		"cache":                           {"give one, such as " + at("cache/snapshots/abc")},
		"trained":                         {"give one, such as " + at("trained/checkpoint-9")},
		"renamed":                         {"the directory has weights.safetensors: weights are read from model.safetensors"},
		"parts":                           {at("parts/b.safetensors") + ": no such file or directory; the weights are in several files: download all"},
		"empty":                           {at("empty/config.json") + ": no such file", at("empty/model.safetensors") + ": no such file"},
		"~/models/tiny":                   {"no such file or directory; write the path out: ~ is not expanded in a spec"},
		"hf:acme/tiny":                    {"make a directory of the model on the hub with `fulgurite import hf:acme/tiny DIR`"},
		"https://huggingface.co/acme/big": {"`fulgurite import hf:acme/big DIR`"},
		"acme/tiny":                       {"`fulgurite import` makes such a directory of a GGUF file, or of a model on the hub, named as hf:OWNER/NAME"},
	} {
		s := parse(t, withBase)
		s.Model.Base = base
		err := s.Resolve(dir).Check()
		for _, text := range want {
			require.ErrorContains(t, err, text, base)
		}
		var f *spec.Faults
		require.ErrorAs(t, err, &f)
		require.Len(t, f.List, len(want), "%s: %v", base, err)
		require.Equal(t, "model.base", f.List[0].Key)
	}
	write(t, at("parts/b.safetensors"), "x")
	s := parse(t, withBase)
	s.Model.Base = at("parts")
	require.NoError(t, s.Check(), "weights may be in several files")
}

func TestWhatIsNoAdapterIsNamedWithTheWayOn(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"a.gguf": "GGUF", "pickled/adapter_config.json": "{}", "pickled/adapter_model.bin": "x",
		"model/config.json": "{}", "model/model.safetensors": "x",
	} {
		write(t, filepath.Join(dir, name), text)
	}
	for adapter, want := range map[string]string{
		"pickled":      "adapter_model.safetensors: no such file or directory; the directory has adapter_model.bin: weights in this format have to be saved as safetensors first",
		"model":        "it is a model, not an adapter: give it as model.base",
		"a.gguf":       "is a file",
		"hf:acme/tiny": "download adapter_config.json and adapter_model.safetensors of acme/tiny into a directory",
		"none":         "give a directory with adapter_config.json and adapter_model.safetensors",
	} {
		s := parse(t, minimal)
		s.Model.LoRA = &spec.LoRA{Adapter: adapter}
		require.ErrorContains(t, s.Resolve(dir).CheckFiles(), want, adapter)
	}
}

func TestSourcesThatAreNotThereNameTheWayOn(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "folder/task.toml"), "")
	for source, want := range map[string]string{
		"hf:openai/gsm8k": `data sets on the hub are not downloaded: save a split as a file of JSON objects, as in datasets.load_dataset("openai/gsm8k", split="train").to_json(FILE)`,
		"https://huggingface.co/datasets/openai/gsm8k": `datasets.load_dataset("openai/gsm8k"`,
		"~/train.jsonl":           "write the path out: ~ is not expanded in a spec",
		"$HOME/train.jsonl":       "write the path out: $HOME is not expanded in a spec",
		"gsm8k:~/train.jsonl":     "write the path out: ~ is not expanded in a spec",
		"file:///train.jsonl":     "write the path alone, without file://",
		"train.jsonl ":            `there is white space around "train.jsonl": remove it`,
		"spyder:dev.json":         `no source is called "spyder": did you mean spider:?`,
		"folder":                  "folder is a directory; give a file in it, or harbor:" + filepath.Join(dir, "folder") + " for tasks in Harbor's format",
		"gsm8k:folder":            "folder is a directory; give a file",
		"harbor:none":             "no such file or directory",
		"harbor:folder/task.toml": "task.toml is a file; give a directory",
	} {
		s := parse(t, minimal)
		s.Tasks.Train = source
		require.ErrorContains(t, s.Resolve(dir).CheckFiles(), want, source)
	}
}
