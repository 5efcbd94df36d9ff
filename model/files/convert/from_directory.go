package convert

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/internal/textfile"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/hf"
)

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
