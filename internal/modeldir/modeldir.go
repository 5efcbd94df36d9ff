// Package modeldir says what lies where a spec or a command expects the directory of a
// model or of an adapter, and how that becomes one: weights in another format, an adapter
// in place of its base, a GGUF file, a cache of the hub, the name of a model on the hub.
//
// It looks at names and at the first bytes of files. It does not check what a directory of
// the right form holds.
package modeldir

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/fulgurite/fulgurite/internal/shell"
	"github.com/fulgurite/fulgurite/internal/textfile"
)

const (
	configFile         = "config.json"
	weightsFile        = "model.safetensors"
	indexFile          = weightsFile + ".index.json"
	adapterConfigFile  = "adapter_config.json"
	adapterWeightsFile = "adapter_model.safetensors"
)

// SaveAsSafetensors is the way on from weights that only PyTorch, TensorFlow or JAX read.
const SaveAsSafetensors = "weights in this format have to be saved as safetensors first: load them with transformers (an adapter: with peft) and call save_pretrained"

// Missing returns the files that the directory of a model needs and lacks, by name: its
// config.json, and its weights in one file or in the files of an index.
func Missing(dir string) []string {
	missing := func(names ...string) []string {
		return slices.DeleteFunc(names, func(name string) bool { return exists(dir, name) })
	}
	if exists(dir, weightsFile) || !exists(dir, indexFile) {
		return missing(configFile, weightsFile)
	}
	return missing(append([]string{configFile}, parts(dir)...)...)
}

// parts returns the files that an index names. It returns none if the index can't be read,
// which the reader of the weights reports.
func parts(dir string) []string {
	text, err := textfile.Read(filepath.Join(dir, indexFile))
	var index struct {
		WeightMap map[string]string `json:"weight_map"`
	}
	if err != nil || json.Unmarshal(text, &index) != nil {
		return nil
	}
	var names []string
	for _, name := range index.WeightMap {
		if filepath.IsLocal(name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// MissingOfAdapter returns the files that the directory of an adapter needs and lacks.
func MissingOfAdapter(dir string) []string {
	return slices.DeleteFunc([]string{adapterConfigFile, adapterWeightsFile}, func(name string) bool { return exists(dir, name) })
}

// InsteadOfModel says what a directory holds in place of a model's config.json and
// safetensors, and the way on. It returns "" if it finds nothing of that kind.
func InsteadOfModel(dir string) string {
	switch {
	case exists(dir, adapterConfigFile) && !exists(dir, weightsFile) && !exists(dir, indexFile):
		return fmt.Sprintf("the directory has %s, so it is an adapter, not a model: import its base%s, and give the directory as model.lora.adapter", adapterConfigFile, baseOf(dir))
	case exists(dir, indexFile):
		return "the weights are in several files: download all that " + indexFile + " names"
	}
	if text := otherWeights(dir); text != "" {
		return text
	}
	for _, pattern := range []string{filepath.Join("snapshots", "*"), "*"} {
		if found, _ := filepath.Glob(filepath.Join(dir, pattern, configFile)); len(found) > 0 { // the pattern is well-formed
			return "the directory holds directories of models: give one, such as " + filepath.Dir(found[len(found)-1])
		}
	}
	return ""
}

// InsteadOfAdapter works like InsteadOfModel for the directory of an adapter.
func InsteadOfAdapter(dir string) string {
	if !exists(dir, adapterConfigFile) && exists(dir, configFile) {
		return fmt.Sprintf("the directory has %s, so it is a model, not an adapter: give it as model.base, or make an adapter of it with peft", configFile)
	}
	return otherWeights(dir)
}

// baseOf names the base of an adapter, as in " (gpt2)".
func baseOf(dir string) string {
	text, err := textfile.Read(filepath.Join(dir, adapterConfigFile))
	var config struct {
		Base string `json:"base_model_name_or_path"`
	}
	if err != nil || json.Unmarshal(text, &config) != nil || config.Base == "" {
		return ""
	}
	return " (" + config.Base + ")"
}

// otherWeights names weights that the directory has in another format or under another
// name.
func otherWeights(dir string) string {
	entries, _ := os.ReadDir(dir) // without entries nothing is known
	find := func(is func(string) bool) string {
		for _, e := range entries {
			if !e.IsDir() && is(e.Name()) {
				return e.Name()
			}
		}
		return ""
	}
	with := func(extension string) func(string) bool {
		return func(name string) bool { return strings.ToLower(filepath.Ext(name)) == extension }
	}
	if name := find(with(".gguf")); name != "" {
		return fmt.Sprintf("the directory has %s: make a model directory of it with `%s`", name, shell.Command("import", filepath.Join(dir, name), "DIRECTORY"))
	}
	if name := find(IsOtherWeights); name != "" {
		return fmt.Sprintf("the directory has %s: %s", name, SaveAsSafetensors)
	}
	if name := find(with(".safetensors")); name != "" && name != weightsFile && name != adapterWeightsFile {
		return fmt.Sprintf("the directory has %s: weights are read from %s, or from the files that %s names", name, weightsFile, indexFile)
	}
	return ""
}

// IsOtherWeights reports whether a file by its name holds weights in a format that is not
// read: that of PyTorch, TensorFlow, JAX or ONNX.
func IsOtherWeights(name string) bool {
	return slices.Contains([]string{".bin", ".pt", ".pth", ".ckpt", ".h5", ".msgpack", ".onnx"}, strings.ToLower(filepath.Ext(name))) && !isTrainerState(filepath.Base(name))
}

// isTrainerState reports whether a file holds what a trainer keeps beside weights.
func isTrainerState(name string) bool {
	for _, prefix := range []string{"training_args", "optimizer", "scheduler", "rng_state", "scaler"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// InsteadOfDirectory says what a file is that is named in place of the directory of a
// model, and the way on.
func InsteadOfDirectory(file string) string {
	if format, _ := formatOf(file); format.Name == textfile.GGUF || strings.EqualFold(filepath.Ext(file), ".gguf") {
		return fmt.Sprintf("make a directory of it with `%s`, and give that", shell.Command("import", file, "DIRECTORY"))
	}
	return cmp.Or(InsteadOfGGUF(file), "give a directory")
}

// InsteadOfGGUF says what a file is that is named in place of a GGUF file, and the way on. It
// returns "" if that is not known.
func InsteadOfGGUF(file string) string {
	format, other := formatOf(file)
	extension := strings.ToLower(filepath.Ext(file))
	switch {
	case format.Name == textfile.GGUF:
		return ""
	case IsOtherWeights(file):
		return SaveAsSafetensors
	case extension == ".safetensors" || extension == ".json":
		return "give the directory that holds it"
	case other && format.Remedy != "":
		return fmt.Sprintf("it is %s: %s", format.Name, format.Remedy)
	case other:
		return fmt.Sprintf("it is %s: give a directory with safetensors, or a GGUF file", format.Name)
	}
	return ""
}

// GGUF returns the GGUF file that a path names or that its directory holds in place of
// safetensors. It returns "" if there is none.
func GGUF(path string) string {
	if format, _ := formatOf(path); format.Name == textfile.GGUF {
		return path
	}
	if len(Missing(path)) == 0 {
		return ""
	}
	found, _ := filepath.Glob(filepath.Join(path, "*.gguf")) // the pattern is well-formed, or there is nothing to find
	if len(found) == 0 {
		return ""
	}
	return found[0]
}

// formatOf returns the format of a file by its first bytes.
func formatOf(path string) (textfile.Format, bool) {
	f, err := os.Open(path)
	if err != nil {
		return textfile.Format{}, false
	}
	defer func() { _ = f.Close() }() // it was only read
	return NameFormat(f)
}

// NameFormat returns the format of a file that was expected to hold weights, by its first
// bytes. It returns false for safetensors, and for what has no known format.
func NameFormat(r io.ReaderAt) (textfile.Format, bool) {
	begin := make([]byte, textfile.Begin)
	n, _ := r.ReadAt(begin, 0) // a file may be shorter
	f, other := textfile.FormatOf(begin[:n])
	return f, other && f.Name != textfile.Safetensors && f.Name != textfile.Binary
}

var onHub = regexp.MustCompile(`(?:^|/)(?:hf:/{0,2}|(?:https?:/{1,2})?huggingface\.co/)([\w.-]+/[\w.-]+)`)

// OnHub returns OWNER/NAME if a path is the name of a model on the hub, as in hf:OWNER/NAME,
// or the address of its page. A spec has made the path absolute.
func OnHub(path string) string {
	if m := onHub.FindStringSubmatch(path); m != nil {
		return m[1]
	}
	return ""
}

func exists(dir, name string) bool {
	_, err := os.Stat(filepath.Join(dir, name))
	return err == nil
}
