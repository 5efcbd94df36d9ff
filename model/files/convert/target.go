package convert

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

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
