package convert

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/gguf"
	"github.com/fulgurite/fulgurite/model/tokenizer"
)

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
