// Package convert converts models. From a GGUF file or a Hugging Face directory it makes
// a model directory with which a run can start. From one of our models it makes a GGUF
// file.
//
// It translates the meaning of llama.cpp's files: keys and names of tensors, the order of
// rows that its rotary embedding needs, the vocabulary and its patterns. Packages gguf
// and hf read and write the file formats. Package convert downloads nothing; package hub
// does that. It refuses architectures and tokenizers that the rest of this project cannot
// use, with an error that names the key which asks for them.
//
// Guarantees: numbers that are not quantized are copied to the bit and keep their type.
// Quantized numbers become the float32 numbers with which llama.cpp computes. Only a few
// rows are in memory at a time, whatever the model's size.
package convert

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/internal/textfile"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/gguf"
	"github.com/fulgurite/fulgurite/model/files/hf"
	"github.com/fulgurite/fulgurite/model/tokenizer"
)

// ErrFormat means that a file is not what it should be. ErrUnsupported means that the
// file needs something that is not supported.
var (
	ErrFormat      = gguf.ErrFormat
	ErrUnsupported = gguf.ErrUnsupported
)

// Options are the choices of an import.
type Options struct {
	// DType is the type of all written weights. If it is empty, F32, F16 and BF16 weights
	// keep their type and quantized weights become F32.
	DType hf.DType
	// Free, if not nil, is how many bytes may be written to the disk of the target.
	Free func() (int64, error)
	// Progress, if not nil, is called with the number of bytes of weights written so far.
	Progress func(done, total int64)
}

// Result describes the output of an import.
type Result struct {
	Architecture model.Architecture
	// Source counts the tensors by the type that they came in.
	Source map[string]int
	// Bytes is the size of the weights that were written.
	Bytes int64
	// Template says whether the model has a chat template.
	Template bool
	// Untied says that config.json ties the output layer to the embedding, but the files
	// hold another one, which was kept.
	Untied bool
	// Copied says that the file holds the embedding a second time as its output layer,
	// which was left out.
	Copied bool
}

const tokenizerFile = "tokenizer.json"

// weights writes model.safetensors into dir. It calls write for the bytes of each tensor.
func (o Options) weights(dir string, layouts []hf.Layout, write func(l hf.Layout, w io.Writer) error) (int64, error) {
	total := int64(0)
	for _, l := range layouts {
		total += l.Bytes()
	}
	if o.Free != nil {
		free, err := o.Free()
		if err == nil && free < total {
			err = fmt.Errorf("%s: the weights take %d MB, and %d MB are free", dir, total/1e6, free/1e6)
		}
		if err != nil {
			return total, err
		}
	}
	done := int64(0)
	return total, create(filepath.Join(dir, model.WeightsFile), func(f io.Writer) error {
		// transformers requires the name of the framework whose layout the tensors have.
		return hf.WriteTensors(f, layouts, map[string]string{"format": "pt"}, func(l hf.Layout, w io.Writer) error {
			if o.Progress != nil {
				w = io.MultiWriter(w, writes(func(n int) { done += int64(n); o.Progress(done, total) }))
			}
			return write(l, w)
		})
	})
}

// writes is an io.Writer that calls the function with the number of bytes written.
type writes func(n int)

func (w writes) Write(b []byte) (int, error) {
	w(len(b))
	return len(b), nil
}

// create writes a new file, complete or not at all. It fails if the file exists. Errors
// contain the path.
func create(path string, write func(io.Writer) error) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	if err = write(f); err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", path, err), os.Remove(path))
	}
	return nil
}

func createText(path string, text []byte) error {
	return create(path, func(w io.Writer) error {
		_, err := w.Write(text)
		return err
	})
}

func createJSON(path string, value any) error {
	text, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return createText(path, append(text, '\n'))
}

// configWith returns a config.json with some settings changed.
func configWith(text []byte, changes map[string]any) (map[string]any, error) {
	settings := map[string]json.RawMessage{}
	if err := json.Unmarshal(model.StandardJSON(text), &settings); err != nil {
		return nil, fmt.Errorf("%w: config.json: %w", hf.ErrFormat, err)
	}
	all := map[string]any{}
	for key, value := range settings {
		all[key] = value
	}
	for key, value := range changes {
		all[key] = value
	}
	return all, nil
}

// dtypeName returns config.json's name for the type of a model's matrices, the widest
// type if they differ.
func dtypeName(layouts []hf.Layout) string {
	has := func(d hf.DType) bool {
		return slices.ContainsFunc(layouts, func(l hf.Layout) bool { return len(l.Shape) > 1 && l.DType == d })
	}
	switch {
	case has(hf.F32) || has(hf.F16) && has(hf.BF16):
		return "float32"
	case has(hf.F16):
		return "float16"
	}
	return "bfloat16"
}

// checkTokenizer returns an error for a tokenizer.json that no run could use with the
// model. Tokens beyond the rows of the embedding are no error: the codec never uses them.
func checkTokenizer(text []byte, a model.Architecture) error {
	t, err := tokenizer.FromJSON(text)
	if err != nil {
		return fmt.Errorf("%s: %w", tokenizerFile, err)
	}
	for id := range int32(min(t.VocabSize(), a.VocabSize)) {
		if t.Has(id) {
			return nil
		}
	}
	return fmt.Errorf("%w: %s has %d tokens, and none of them has one of the embedding's %d rows", ErrFormat, tokenizerFile, t.VocabSize(), a.VocabSize)
}

// Files returns the files of a Hugging Face directory that an import uses, apart from the
// weights. Optional files may be absent.
func Files() (needed, optional []string) {
	return []string{model.ConfigFile, tokenizerFile}, []string{
		"tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "generation_config.json",
		templateFile, toolTemplateFile,
	}
}

const (
	templateFile     = "chat_template.jinja"
	toolTemplateFile = "additional_chat_templates/tool_use.jinja"
)

// FromDirectory imports the model of a Hugging Face directory into dir, which must be
// empty. It writes the weights into one file.
func FromDirectory(source, dir string, o Options) (Result, error) {
	s, err := hf.OpenDirectory(source)
	if err != nil {
		return Result{}, err
	}
	r, err := fromDirectory(s, source, dir, o)
	if err = errors.Join(err, s.Close()); err != nil {
		return Result{}, fmt.Errorf("import %s: %w", source, err)
	}
	return r, nil
}

func fromDirectory(s *hf.Stored, source, dir string, o Options) (Result, error) {
	r := Result{Architecture: s.Architecture, Source: map[string]int{}, Untied: s.Untied}
	text, err := dialog.ReadTokenizer(source)
	if err != nil {
		return r, err
	}
	if err := checkTokenizer(text, s.Architecture); err != nil {
		return r, err
	}
	needed, optional := Files()
	for _, name := range append(needed[1:], optional...) {
		text, err := textfile.Read(filepath.Join(source, filepath.FromSlash(name)))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = createText(filepath.Join(dir, filepath.FromSlash(name)), text)
		}
		if err != nil {
			return r, err
		}
		r.Template = r.Template || name == templateFile || name == "tokenizer_config.json" && hasTemplate(text)
	}
	layouts := make([]hf.Layout, len(s.Layouts))
	for i, l := range s.Layouts {
		r.Source[string(l.DType)]++
		if o.DType != "" {
			l.DType = o.DType
		}
		layouts[i] = l
	}
	if r.Bytes, err = o.weights(dir, layouts, func(l hf.Layout, w io.Writer) error { return s.CopyTensor(w, l.Name, l.DType) }); err != nil {
		return r, err
	}
	if o.DType == "" {
		return r, createText(filepath.Join(dir, model.ConfigFile), s.Config)
	}
	config, err := configWith(s.Config, map[string]any{"torch_dtype": dtypeName(layouts)})
	if err != nil {
		return r, err
	}
	delete(config, "dtype") // a newer name for torch_dtype
	return r, createJSON(filepath.Join(dir, model.ConfigFile), config)
}

// hasTemplate reports whether a tokenizer_config.json has a chat template.
func hasTemplate(text []byte) bool {
	var settings struct {
		Template json.RawMessage `json:"chat_template"`
	}
	return json.Unmarshal(text, &settings) == nil && len(settings.Template) > 0 && string(settings.Template) != "null"
}

// endTexts lists the texts of the tokens at which llama.cpp ends a reply whatever the
// file's keys say (llama_vocab, special_eog_ids).
func endTexts() []string {
	return []string{
		"<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|flush|>", "<|calls|>", "<end_of_turn>",
		"<|endoftext|>", "</s>", "<|eom_id|>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]", "<|end_of_text|>",
		"<end_of_utterance>", "<eos>", "<turn|>", "<|tool_response>",
	}
}

// fillTexts lists the texts of the tokens of code models that pad a text, and that begin a
// repository and a file. llama.cpp ends a reply at one of each kind.
func fillTexts() [][]string {
	return [][]string{
		{"<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"},
		{"<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"},
		{"<|file_sep|>"},
	}
}

// endsByText reports whether llama.cpp ends a reply at the token with a text because of
// that text, in a model with the given tokens.
func endsByText(text string, tokens []string) bool {
	if slices.Contains(endTexts(), text) {
		return true
	}
	for _, kind := range fillTexts() {
		if slices.Contains(kind, text) {
			others := slices.DeleteFunc(kind, func(other string) bool { return other == text })
			return !slices.ContainsFunc(others, func(other string) bool { return slices.Contains(tokens, other) })
		}
	}
	return false
}

// lastEndText is a text that makes a token the end of a turn in a file that names none.
const lastEndText = "<｜end▁of▁sentence｜>"

// endAtTexts adds the tokens at which llama.cpp ends a reply because of their texts. Two
// families of models use an end token in the middle of a reply, and llama.cpp leaves it
// out there.
func (v *vocabulary) endAtTexts(namesTurn bool) {
	ids := map[string]int{}
	for id, text := range v.tokens {
		if _, ok := ids[text]; !ok {
			ids[text] = id
		}
	}
	has := func(texts ...string) bool {
		return !slices.ContainsFunc(texts, func(text string) bool { _, ok := ids[text]; return !ok })
	}
	end := func(text string) {
		id, ok := ids[text]
		if !ok {
			return
		}
		if v.kinds[id] == userToken {
			v.kinds[id] = controlToken // llama.cpp never finds it in what a user says
		}
		if !slices.Contains(v.stop, id) {
			v.stop = append(v.stop, id)
		}
	}
	for _, text := range endTexts() {
		switch {
		case text == "<|end|>" && (has("<|return|>", "<|call|>") || has("<|return|>", "<|calls|>") || has("<|flush|>", "<|call|>") || has("<|flush|>", "<|calls|>")):
		case text == "</s>" && has("<|tool_response>"):
		default:
			end(text)
		}
	}
	if !namesTurn {
		end(lastEndText)
	}
	for _, kind := range fillTexts() {
		for _, text := range kind {
			end(text)
		}
	}
	slices.Sort(v.stop)
}
