package convert

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/gguf"
)

// The keys of a vocabulary.
const (
	modelKey        = "tokenizer.ggml.model"
	preKey          = "tokenizer.ggml.pre"
	tokensKey       = "tokenizer.ggml.tokens"
	kindsKey        = "tokenizer.ggml.token_type"
	mergesKey       = "tokenizer.ggml.merges"
	addBOSKey       = "tokenizer.ggml.add_bos_token"
	addEOSKey       = "tokenizer.ggml.add_eos_token"
	bosKey          = "tokenizer.ggml.bos_token_id"
	eosKey          = "tokenizer.ggml.eos_token_id"
	eotKey          = "tokenizer.ggml.eot_token_id"
	eomKey          = "tokenizer.ggml.eom_token_id"
	unknownKey      = "tokenizer.ggml.unknown_token_id"
	paddingKey      = "tokenizer.ggml.padding_token_id"
	templateKey     = "tokenizer.chat_template"
	templatesKey    = "tokenizer.chat_templates"
	toolTemplateKey = "tokenizer.chat_template.tool_use"
)

// llama.cpp's names for byte-level BPE and for BPE of SentencePiece.
const (
	byteLevel     = "gpt2"
	sentencePiece = "llama"
)

// The kinds of tokens.
const (
	normalToken  = 1
	unknownToken = 2
	controlToken = 3
	userToken    = 4
	unusedToken  = 5
	byteToken    = 6
)

// vocabulary has the text settings of a GGUF file.
type vocabulary struct {
	tokens   []string
	kinds    []int64
	bpe      bpe
	addBOS   bool
	addEOS   bool
	ids      map[string]int    // ids of special tokens by their names in Hugging Face's files
	stop     []int             // tokens that end a reply, as llama.cpp finds them
	template string            // empty if there is no template
	more     map[string]string // more templates, by file name
	text     []byte            // the tokenizer.json
}

// readVocabulary reads the tokenizer and the chat template of a model.
func readVocabulary(m gguf.Metadata, a model.Architecture) (*vocabulary, error) {
	v := &vocabulary{ids: map[string]int{}, more: map[string]string{}}
	for _, read := range []func(gguf.Metadata) error{v.readTokens, v.readSpecial, v.readTemplates} {
		if err := read(m); err != nil {
			return nil, err
		}
	}
	v.endAtTexts(m.Has(eotKey))
	var err error
	if v.text, err = v.json(); err != nil {
		return nil, err
	}
	return v, checkTokenizer(v.text, a)
}

// bpe is the part of a vocabulary in which the two kinds of BPE differ.
type bpe interface {
	// read reads the metadata that only this kind has. It reports whether a text begins
	// with the beginning-of-text token unless the file says otherwise.
	read(m gguf.Metadata, v *vocabulary) (begins bool, err error)
	// inVocabulary reports whether a special token is also listed in the vocabulary.
	inVocabulary(v *vocabulary, id int) bool
	// special returns the id that a special token has if the file doesn't say, and -1 if it
	// has none.
	special(name string) int
	// describe fills in the parts of a tokenizer.json that depend on the kind.
	describe(file, model map[string]any, v *vocabulary)
}

func (v *vocabulary) readTokens(m gguf.Metadata) error {
	kind, err := m.String(modelKey)
	if err != nil {
		return err
	}
	switch kind {
	case byteLevel:
		v.bpe = &byteLevelBPE{}
	case sentencePiece:
		v.bpe = &sentencePieceBPE{}
	default:
		return fmt.Errorf("%w: %s is %q, want %q, a byte-level BPE, or %q, a BPE of SentencePiece", ErrUnsupported, modelKey, kind, byteLevel, sentencePiece)
	}
	if v.tokens, err = m.Strings(tokensKey); err != nil {
		return err
	}
	if len(v.tokens) == 0 {
		return fmt.Errorf("%w: %s is empty", ErrFormat, tokensKey)
	}
	if v.kinds, err = m.Ints(kindsKey); err != nil {
		return err
	}
	if v.kinds == nil {
		v.kinds = slices.Repeat([]int64{normalToken}, len(v.tokens))
	}
	if len(v.kinds) != len(v.tokens) {
		return fmt.Errorf("%w: %s has %d elements, %s has %d", ErrFormat, kindsKey, len(v.kinds), tokensKey, len(v.tokens))
	}
	if v.addBOS, err = v.bpe.read(m, v); err != nil {
		return err
	}
	if m.Has(addBOSKey) {
		if v.addBOS, err = m.Bool(addBOSKey); err != nil {
			return err
		}
	}
	v.addEOS, err = m.Bool(addEOSKey)
	return err
}

func (v *vocabulary) readSpecial(m gguf.Metadata) error {
	for _, s := range []struct {
		name, key string
		stops     bool
	}{
		{"bos_token", bosKey, false}, {"eos_token", eosKey, true}, {"", eotKey, true}, {"", eomKey, true},
		{"unk_token", unknownKey, false}, {"pad_token", paddingKey, false},
	} {
		id, err := m.Int(s.key, -1)
		if err != nil {
			return err
		}
		if !m.Has(s.key) {
			if id = v.bpe.special(s.name); id < 0 || id >= len(v.tokens) {
				continue
			}
		}
		if id < 0 || id >= len(v.tokens) {
			return fmt.Errorf("%w: %s is %d of %d tokens", ErrFormat, s.key, id, len(v.tokens))
		}
		if s.name != "" {
			v.ids[s.name] = id
		}
		if s.stops && !slices.Contains(v.stop, id) {
			v.stop = append(v.stop, id)
		}
	}
	return nil
}

func (v *vocabulary) readTemplates(m gguf.Metadata) error {
	var err error
	if v.template, err = m.String(templateKey); err != nil {
		return err
	}
	tools, err := m.String(toolTemplateKey)
	if tools != "" {
		v.more[toolTemplateFile] = tools
	}
	return err
}

// addedToken is an entry of the added_tokens of a tokenizer.json.
type addedToken struct {
	ID         int    `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"`
	LStrip     bool   `json:"lstrip"`
	RStrip     bool   `json:"rstrip"`
	Normalized bool   `json:"normalized"`
	Special    bool   `json:"special"`
}

// json returns the tokenizer.json.
func (v *vocabulary) json() ([]byte, error) {
	ids, added := map[string]int{}, []addedToken{}
	for id, token := range v.tokens {
		switch {
		case v.kinds[id] == unusedToken:
			continue
		case v.special(id):
			added = append(added, addedToken{ID: id, Content: token, Special: v.kinds[id] != userToken})
			if !v.bpe.inVocabulary(v, id) {
				continue
			}
		}
		if other, ok := ids[token]; ok {
			return nil, fmt.Errorf("%w: %s: tokens %d and %d are both %q", ErrFormat, tokensKey, other, id, token)
		}
		ids[token] = id
	}
	model := map[string]any{
		"type": "BPE", "dropout": nil, "unk_token": nil, "continuing_subword_prefix": nil, "end_of_word_suffix": nil,
		"fuse_unk": false, "byte_fallback": false, "ignore_merges": false, "vocab": ids,
	}
	file := map[string]any{
		"version": "1.0", "truncation": nil, "padding": nil, "added_tokens": added, "normalizer": nil,
		"pre_tokenizer": nil, "post_processor": nil, "model": model,
	}
	v.bpe.describe(file, model, v)
	var before, after []int
	if bos, ok := v.ids["bos_token"]; ok && v.addBOS {
		before = append(before, bos)
	}
	if eos, ok := v.ids["eos_token"]; ok && v.addEOS {
		after = append(after, eos)
	}
	if len(before)+len(after) > 0 {
		file["post_processor"] = v.around(before, after)
	}
	text, err := json.Marshal(file)
	if err != nil {
		return nil, fmt.Errorf("write tokenizer.json: %w", err)
	}
	return text, nil
}

func (v *vocabulary) special(id int) bool {
	return v.kinds[id] == controlToken || v.kinds[id] == userToken || v.kinds[id] == unknownToken
}

// around puts tokens before and after every text.
func (v *vocabulary) around(before, after []int) any {
	specials := map[string]any{}
	var single []any
	add := func(ids []int) {
		for _, id := range ids {
			token := v.tokens[id]
			single = append(single, map[string]any{"SpecialToken": map[string]any{"id": token, "type_id": 0}})
			specials[token] = map[string]any{"id": token, "ids": []int{id}, "tokens": []string{token}}
		}
	}
	sequence := func(name string, kind int) any {
		return map[string]any{"Sequence": map[string]any{"id": name, "type_id": kind}}
	}
	add(before)
	single = append(single, sequence("A", 0))
	add(after)
	return map[string]any{
		"type": "TemplateProcessing", "single": single, "pair": append(slices.Clone(single), sequence("B", 1)), "special_tokens": specials,
	}
}

// write puts the files of the vocabulary into dir.
func (v *vocabulary) write(dir string) error {
	settings := map[string]any{
		// This class uses tokenizer.json unchanged.
		"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": false, "add_prefix_space": false,
	}
	for name, id := range v.ids {
		settings[name] = v.tokens[id]
	}
	if err := createText(filepath.Join(dir, tokenizerFile), v.text); err != nil {
		return err
	}
	if err := createJSON(filepath.Join(dir, "tokenizer_config.json"), settings); err != nil {
		return err
	}
	if err := createJSON(filepath.Join(dir, "generation_config.json"), v.config()); err != nil {
		return err
	}
	if v.template != "" {
		v.more[templateFile] = v.template
	}
	for name, text := range v.more {
		if err := createText(filepath.Join(dir, filepath.FromSlash(name)), []byte(text)); err != nil {
			return err
		}
	}
	return nil
}

// config returns the special tokens as config.json and generation_config.json name them.
func (v *vocabulary) config() map[string]any {
	settings := map[string]any{}
	for name, id := range v.ids {
		if name != "unk_token" {
			settings[name+"_id"] = id
		}
	}
	if len(v.stop) > 1 {
		settings["eos_token_id"] = v.stop
	}
	return settings
}
