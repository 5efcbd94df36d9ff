package dialog

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fulgurite/fulgurite/dialog/jinja"
	"github.com/fulgurite/fulgurite/internal/textfile"
	"github.com/fulgurite/fulgurite/model"
)

// ReadBundle reads the bundle of a model directory in the layout of Hugging Face's tools.
// The tokenizer is in tokenizer.json, to which tokenizer_config.json or, without its
// added_tokens_decoder, special_tokens_map.json and added_tokens.json can add tokens. The
// chat template is in chat_template.jinja (and additional_chat_templates/tool_use.jinja) or
// in tokenizer_config.json. The special tokens are in tokenizer_config.json or
// special_tokens_map.json. The tokens that end a completion are in generation_config.json
// and config.json.
func ReadBundle(dir string) (Bundle, error) { return ReadBundleWith(dir, "") }

// ReadBundleWith works like ReadBundle, but takes the chat template from the file at
// template unless that is empty. The directory then needs no template. An error about the
// template has line and column.
func ReadBundleWith(dir, template string) (Bundle, error) {
	b, err := readBundle(dir, template)
	if err != nil {
		return Bundle{}, fmt.Errorf("read codec of %s: %w", dir, err)
	}
	return b, nil
}

func readBundle(dir, template string) (Bundle, error) {
	var b Bundle
	settings, err := readTokenSettings(dir)
	if err != nil {
		return Bundle{}, err
	}
	if b.Tokenizer, err = readTokenizer(dir, settings); err != nil {
		return Bundle{}, err
	}
	b.Special = settings.specials()
	if template != "" {
		err = b.readTemplate(template)
	} else {
		err = b.readTemplates(dir, settings.config["chat_template"])
	}
	if err != nil {
		return Bundle{}, err
	}
	var config struct {
		EOS       tokenIDs `json:"eos_token_id"`
		VocabSize int      `json:"vocab_size"`
	}
	for _, name := range []string{"config.json", "generation_config.json"} {
		if err := readOptional(dir, name, &config); err != nil {
			return Bundle{}, err
		}
		b.Stop = append(b.Stop, config.EOS...)
	}
	slices.Sort(b.Stop)
	b.Stop, b.VocabSize = slices.Compact(b.Stop), config.VocabSize
	return b, nil
}

// ReadTokenizer returns the tokenizer.json of a model directory, with the tokens that
// other files of the directory add.
func ReadTokenizer(dir string) (json.RawMessage, error) {
	settings, err := readTokenSettings(dir)
	if err != nil {
		return nil, err
	}
	return readTokenizer(dir, settings)
}

func readTokenizer(dir string, settings tokenSettings) (json.RawMessage, error) {
	text, err := textfile.Read(filepath.Join(dir, tokenizerFile))
	if errors.Is(err, textfile.ErrText) {
		return nil, fmt.Errorf("%w: %w", ErrBundle, err)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: the directory of a model has its tokenizer: %w", ErrBundle, err)
	}
	var raw json.RawMessage
	if err := model.DecodeJSON(text, &raw); err != nil {
		return nil, fmt.Errorf("%w: tokenizer.json: %w", ErrBundle, err)
	}
	return settings.merge(text)
}

// readOptional reads a JSON file into a value. A file that does not exist changes
// nothing.
func readOptional(dir, name string, into any) error {
	text, err := textfile.Read(filepath.Join(dir, filepath.FromSlash(name)))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = model.DecodeJSON(text, into)
	}
	if err != nil {
		return fmt.Errorf("%w: %s: %w", ErrBundle, name, err)
	}
	return nil
}

// tokenIDs is a list of token ids, which JSON may also write as one id.
type tokenIDs []int32

// UnmarshalJSON implements json.Unmarshaler.
func (ids *tokenIDs) UnmarshalJSON(text []byte) error {
	var one *int32
	if json.Unmarshal(text, &one) == nil {
		*ids = nil
		if one != nil {
			*ids = tokenIDs{*one}
		}
		return nil
	}
	var several []*int32
	if err := json.Unmarshal(text, &several); err != nil {
		return errors.New("eos_token_id: want a token id or a list of them")
	}
	*ids = nil
	for _, id := range several {
		if id != nil { // null, as for one id, names none: it must not become token 0
			*ids = append(*ids, *id)
		}
	}
	return nil
}

// specialTokens returns the settings named …_token. Each setting is a text or an object
// that has one.
func specialTokens(settings map[string]json.RawMessage) map[string]string {
	tokens := map[string]string{}
	for name, value := range settings {
		if !strings.HasSuffix(name, "_token") {
			continue
		}
		if text := tokenText(value); text != "" {
			tokens[name] = text
		}
	}
	return tokens
}

func (b *Bundle) readTemplate(file string) error {
	text, err := textfile.Read(file)
	if err == nil {
		_, err = jinja.Parse(string(text))
	}
	if err == nil && len(text) == 0 {
		err = errors.New("the file is empty")
	}
	if err != nil {
		return fmt.Errorf("%w: chat template of model.template, %s: %w", ErrBundle, file, err)
	}
	b.Template = string(text)
	return nil
}

func (b *Bundle) readTemplates(dir string, setting json.RawMessage) error {
	named := map[string]string{}
	var one string
	var several []struct {
		Name     string `json:"name"`
		Template string `json:"template"`
	}
	switch {
	case json.Unmarshal(setting, &one) == nil:
		named["default"] = one
	case json.Unmarshal(setting, &several) == nil:
		for _, t := range several {
			named[t.Name] = t.Template
		}
	case len(setting) > 0:
		return fmt.Errorf("%w: tokenizer_config.json: chat_template: want a template or a list of named ones", ErrBundle)
	}
	for name, file := range map[string]string{"default": "chat_template.jinja", "tool_use": "additional_chat_templates/tool_use.jinja"} {
		text, err := textfile.Read(filepath.Join(dir, filepath.FromSlash(file)))
		if err == nil {
			named[name] = string(text)
		} else if !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%w: %s: %w", ErrBundle, file, err)
		}
	}
	if b.Template = named["default"]; b.Template == "" {
		return fmt.Errorf("%w: no chat template: give a file as model.template, put chat_template.jinja into the directory, or use a model that was trained to chat", ErrBundle)
	}
	b.ToolTemplate = named["tool_use"]
	return nil
}

// WriteDirectory writes the bundle into a model's directory, in the files that ReadBundle
// and other tools read: tokenizer.json, tokenizer_config.json, generation_config.json and
// the chat templates. It makes dir if it does not exist, and replaces these files.
func (b Bundle) WriteDirectory(dir string) error {
	if err := b.writeDirectory(dir); err != nil {
		return fmt.Errorf("write codec to %s: %w", dir, err)
	}
	return nil
}

func (b Bundle) writeDirectory(dir string) error {
	codec, err := b.Codec(TemplatePrefix)
	if err != nil {
		return err
	}
	stop := codec.Stop()
	tokenizer := map[string]any{
		// The class that uses tokenizer.json unchanged.
		"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": false, "add_prefix_space": false,
	}
	for name, token := range b.Special {
		tokenizer[name] = token
	}
	if b.Special["eos_token"] == "" {
		tokenizer["eos_token"] = codec.Text(stop[:1])
	}
	files := map[string]any{"tokenizer_config.json": tokenizer, "generation_config.json": map[string]any{"eos_token_id": stop}}
	texts := map[string][]byte{"tokenizer.json": b.Tokenizer, "chat_template.jinja": []byte(b.Template)}
	if b.ToolTemplate != "" {
		texts["additional_chat_templates/tool_use.jinja"] = []byte(b.ToolTemplate)
	}
	for name, content := range files {
		if texts[name], err = json.MarshalIndent(content, "", "  "); err != nil {
			return fmt.Errorf("encode %s: %w", name, err)
		}
	}
	for name, text := range texts {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, text, 0o644); err != nil {
			return err
		}
	}
	return nil
}
