package convert

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/gguf"
	"github.com/fulgurite/fulgurite/model/tokenizer"
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

// tokenizerJSON holds the parts of a tokenizer.json that llama.cpp needs.
type tokenizerJSON struct {
	Added        []addedToken    `json:"added_tokens"`
	Normalizer   json.RawMessage `json:"normalizer"`
	PreTokenizer json.RawMessage `json:"pre_tokenizer"`
	Model        struct {
		IgnoreMerges bool              `json:"ignore_merges"`
		Unknown      string            `json:"unk_token"`
		Vocab        map[string]int    `json:"vocab"`
		Merges       []json.RawMessage `json:"merges"`
	} `json:"model"`
}

// writeVocabulary writes the text settings that llama.cpp needs.
func writeVocabulary(b dialog.Bundle, a model.Architecture) (gguf.Metadata, error) {
	b.VocabSize = a.VocabSize
	codec, err := b.Codec(dialog.TemplatePrefix) // it knows which token ends a turn
	if err != nil {
		return nil, err
	}
	if err := checkTokenizer(b.Tokenizer, a); err != nil {
		return nil, err
	}
	var f tokenizerJSON
	if err := json.Unmarshal(b.Tokenizer, &f); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrFormat, tokenizerFile, err)
	}
	if err := f.checkAdded(); err != nil {
		return nil, err
	}
	tokens, kinds := f.tokens(a.VocabSize)
	write := f.writeByteLevel
	if f.isSentencePiece() {
		write = f.writeSentencePiece
	}
	m, err := write(tokens, kinds)
	if err != nil {
		return nil, err
	}
	special, err := f.special(b, codec, tokens)
	if err != nil {
		return nil, err
	}
	m = append(m, special...)
	m = append(m, gguf.Pair{Key: templateKey, Value: b.Template})
	if b.ToolTemplate != "" {
		m = append(m, gguf.Pair{Key: templatesKey, Value: []string{"tool_use"}}, gguf.Pair{Key: toolTemplateKey, Value: b.ToolTemplate})
	}
	return m, nil
}

// special returns the special tokens, and whether some are put around each text.
func (f *tokenizerJSON) special(b dialog.Bundle, codec dialog.Codec, tokens []string) (gguf.Metadata, error) {
	before, after, err := tokenizer.Around(b.Tokenizer)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", tokenizerFile, err)
	}
	ids := map[string]int{}
	for key, name := range map[string]string{bosKey: "bos_token", eosKey: "eos_token", unknownKey: "unk_token", paddingKey: "pad_token"} {
		if i := slices.Index(tokens, b.Special[name]); b.Special[name] != "" && i >= 0 {
			ids[key] = i
		}
	}
	if err := begin(ids, before); err != nil {
		return nil, err
	}
	if err := end(ids, codec, after, tokens); err != nil {
		return nil, err
	}
	m := gguf.Metadata{{Key: addBOSKey, Value: len(before) > 0}, {Key: addEOSKey, Value: len(after) > 0}}
	for _, key := range []string{bosKey, eosKey, eotKey, eomKey, unknownKey, paddingKey} {
		if id, ok := ids[key]; ok {
			m = append(m, gguf.Pair{Key: key, Value: uint32(id)})
		}
	}
	return m, nil
}

// begin sets the token with which each text begins.
func begin(ids map[string]int, before []int32) error {
	switch len(before) {
	case 0:
		return nil
	case 1:
		ids[bosKey] = int(before[0])
		return nil
	}
	return fmt.Errorf("%w: tokenizer.json: post_processor puts %d tokens before a text, and llama.cpp puts one", ErrUnsupported, len(before))
}

// end sets the tokens that end a reply. llama.cpp has three keys for them, and finds more
// by their texts.
func end(ids map[string]int, codec dialog.Codec, after []int32, tokens []string) error {
	stop := codec.Stop()
	turn := int(stop[0])
	if _, ok := ids[eosKey]; !ok {
		ids[eosKey] = turn
	}
	switch {
	case len(after) > 1 || len(after) == 1 && len(stop) > 0 && !slices.Contains(stop, after[0]):
		return fmt.Errorf("%w: tokenizer.json: post_processor puts tokens after a text that don't end one, and llama.cpp puts the end of text", ErrUnsupported)
	case len(after) == 1:
		ids[eosKey] = int(after[0])
	}
	ids[eotKey] = turn
	for _, id := range stop[1:] {
		switch {
		case int(id) == ids[eosKey] || endsByText(tokens[id], tokens):
		case ids[eomKey] == 0 || ids[eomKey] == int(id):
			ids[eomKey] = int(id)
		default:
			return fmt.Errorf("%w: the token %q ends a reply too, and llama.cpp has keys for three such tokens: leave it out of generation_config.json's eos_token_id",
				ErrUnsupported, tokens[id])
		}
	}
	return nil
}

// checkNormalizer returns an error unless the normalizer is one that llama.cpp needs not
// know: none, or NFC, which it leaves out.
func (f *tokenizerJSON) checkNormalizer() (nfc bool, err error) {
	if len(f.Normalizer) == 0 || string(f.Normalizer) == "null" {
		return false, nil
	}
	var n normalizerStep
	if err := json.Unmarshal(f.Normalizer, &n); err != nil {
		return false, fmt.Errorf("%w: %s: normalizer: %w", ErrFormat, tokenizerFile, err)
	}
	steps := n.Normalizers
	if n.Type != "Sequence" {
		steps = []normalizerStep{n}
	}
	for _, s := range steps {
		if s.Type != "NFC" {
			return false, fmt.Errorf("%w: tokenizer.json: normalizer: %s, of which llama.cpp has nothing for a byte-level BPE", ErrUnsupported, s.Type)
		}
		nfc = true
	}
	return nfc, nil
}

// checkAdded returns an error for an added token that llama.cpp would find in other places
// of a text.
func (f *tokenizerJSON) checkAdded() error {
	for _, t := range f.Added {
		for _, flag := range []struct {
			name string
			set  bool
		}{{"single_word", t.SingleWord}, {"lstrip", t.LStrip}, {"rstrip", t.RStrip}} {
			if flag.set {
				return fmt.Errorf("%w: tokenizer.json: added_tokens: %s of %q is true, of which llama.cpp knows nothing", ErrUnsupported, flag.name, t.Content)
			}
		}
	}
	return nil
}

// tokens returns the texts and kinds of all rows of the embedding. A row without a token
// gets a placeholder text and is marked as unused.
func (f *tokenizerJSON) tokens(rows int) ([]string, []int32) {
	tokens, kinds := make([]string, rows), make([]int32, rows)
	for i := range tokens {
		tokens[i], kinds[i] = fmt.Sprintf("[PAD%d]", i), unusedToken
	}
	for token, id := range f.Model.Vocab {
		if id < rows {
			tokens[id], kinds[id] = token, normalToken
		}
	}
	for _, t := range f.Added {
		if t.ID >= rows {
			continue // no row, so no model can read or write it
		}
		tokens[t.ID], kinds[t.ID] = t.Content, userToken
		if t.Special {
			kinds[t.ID] = controlToken
		}
	}
	return tokens, kinds
}

// writeByteLevel writes llama.cpp's settings of a byte-level BPE.
func (f *tokenizerJSON) writeByteLevel(tokens []string, kinds []int32) (gguf.Metadata, error) {
	nfc, err := f.checkNormalizer()
	if err != nil {
		return nil, err
	}
	p, err := nameOfPreTokenizer(f.PreTokenizer, nfc, f.Model.IgnoreMerges)
	if err != nil {
		return nil, err
	}
	pairs, err := f.pairs()
	if err != nil {
		return nil, err
	}
	merges := make([]string, len(pairs))
	for i, pair := range pairs {
		merges[i] = pair[0] + " " + pair[1]
	}
	return gguf.Metadata{
		{Key: modelKey, Value: byteLevel}, {Key: preKey, Value: p.names[0]}, {Key: tokensKey, Value: tokens},
		{Key: kindsKey, Value: kinds}, {Key: mergesKey, Value: merges},
	}, nil
}

// pairs returns the merges. A tokenizer.json writes each as a list of two tokens, or as
// two tokens with a space between them.
func (f *tokenizerJSON) pairs() ([][2]string, error) {
	pairs := make([][2]string, len(f.Model.Merges))
	for i, text := range f.Model.Merges {
		var line string
		if json.Unmarshal(text, &line) == nil {
			pairs[i][0], pairs[i][1], _ = strings.Cut(line, " ")
			continue
		}
		if err := json.Unmarshal(text, &pairs[i]); err != nil {
			return nil, fmt.Errorf("%w: %s: model.merges, line %d: %w", ErrFormat, tokenizerFile, i, err)
		}
	}
	return pairs, nil
}
