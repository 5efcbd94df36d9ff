package convert

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/gguf"
)

// tokenizerJSON holds the parts of a tokenizer.json that llama.cpp needs.
type tokenizerJSON struct {
	Added         []addedToken    `json:"added_tokens"`
	Normalizer    json.RawMessage `json:"normalizer"`
	PreTokenizer  json.RawMessage `json:"pre_tokenizer"`
	PostProcessor struct {
		Single []struct {
			SpecialToken struct {
				ID string `json:"id"`
			}
		} `json:"single"`
	} `json:"post_processor"`
	Model struct {
		IgnoreMerges bool              `json:"ignore_merges"`
		Unknown      string            `json:"unk_token"`
		Vocab        map[string]int    `json:"vocab"`
		Merges       []json.RawMessage `json:"merges"`
	} `json:"model"`
}

// writeVocabulary writes the text settings that llama.cpp needs.
func writeVocabulary(b dialog.Bundle, a model.Architecture) (gguf.Metadata, error) {
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
	tokens, kinds := f.tokens(a.VocabSize)
	write := f.writeByteLevel
	if f.isSentencePiece() {
		write = f.writeSentencePiece
	}
	m, err := write(tokens, kinds)
	if err != nil {
		return nil, err
	}
	first := f.PostProcessor.Single
	m = append(m, gguf.Pair{Key: addBOSKey, Value: len(first) > 0 && first[0].SpecialToken.ID != ""})
	id := func(key, token string) {
		if i := slices.Index(tokens, token); token != "" && i >= 0 {
			m = append(m, gguf.Pair{Key: key, Value: uint32(i)})
		}
	}
	turn := tokens[codec.Stop()[0]]
	end := b.Special["eos_token"]
	if !slices.Contains(tokens, end) {
		end = turn
	}
	id(bosKey, b.Special["bos_token"])
	id(eosKey, end)
	id(eotKey, turn)
	id(unknownKey, b.Special["unk_token"])
	id(paddingKey, b.Special["pad_token"])
	m = append(m, gguf.Pair{Key: templateKey, Value: b.Template})
	if b.ToolTemplate != "" {
		m = append(m, gguf.Pair{Key: templatesKey, Value: []string{"tool_use"}}, gguf.Pair{Key: toolTemplateKey, Value: b.ToolTemplate})
	}
	return m, nil
}

// tokens returns the texts and kinds of all rows of the embedding. A row without a token
// gets a placeholder text and is marked as unused.
func (f *tokenizerJSON) tokens(rows int) ([]string, []int32) {
	tokens, kinds := make([]string, rows), make([]int32, rows)
	for i := range tokens {
		tokens[i], kinds[i] = fmt.Sprintf("[PAD%d]", i), unusedToken
	}
	for token, id := range f.Model.Vocab {
		tokens[id], kinds[id] = token, normalToken
	}
	for _, t := range f.Added {
		tokens[t.ID], kinds[t.ID] = t.Content, userToken
		if t.Special {
			kinds[t.ID] = controlToken
		}
	}
	return tokens, kinds
}

// writeByteLevel writes llama.cpp's settings of a byte-level BPE.
func (f *tokenizerJSON) writeByteLevel(tokens []string, kinds []int32) (gguf.Metadata, error) {
	// NFC is the only normalizer that checkTokenizer admits.
	p, err := nameOfPreTokenizer(f.PreTokenizer, strings.Contains(string(f.Normalizer), `"NFC"`), f.Model.IgnoreMerges)
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
