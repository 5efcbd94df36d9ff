package dialog

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// WriteDirectory writes the bundle beside a model, in the files that ReadBundle and
// other tools read: tokenizer.json, tokenizer_config.json, generation_config.json and
// the chat templates. It makes dir if need be and replaces these files.
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
		// The class that takes tokenizer.json for what it is.
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
