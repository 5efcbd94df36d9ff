package convert

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/fulgurite/fulgurite/model/files/gguf"
)

// preTokenizer is the meaning of a name in llama.cpp's key tokenizer.ggml.pre: how the
// text is cut into pieces before pairs are merged.
type preTokenizer struct {
	names []string // the first is written
	// json is the pre_tokenizer of a tokenizer.json. nfc tells that the text is
	// normalized to NFC before. ignoreMerges tells that a piece which is a token is used
	// without merges.
	json              string
	nfc, ignoreMerges bool
	// addsBOS tells that a text begins with the beginning-of-text token unless the file
	// says otherwise.
	addsBOS bool
}

// preTokenizers returns the known ones, with the patterns from the models' own
// tokenizer.json files.
func preTokenizers() []preTokenizer {
	split := func(digits string) string {
		pattern := `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|` + digits +
			`| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
		text, err := json.Marshal(pattern)
		if err != nil {
			panic(err) // it is a string
		}
		return `{"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"Regex":` + string(text) +
			`},"behavior":"Isolated","invert":false},{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":false}]}`
	}
	const gpt2 = `{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":true}`
	return []preTokenizer{
		{names: []string{"gpt-2"}, json: gpt2},
		{names: []string{"smollm"}, json: `{"type":"Sequence","pretokenizers":[{"type":"Digits","individual_digits":true},` + gpt2 + `]}`},
		{names: []string{"llama-bpe", "llama3", "llama-v3"}, json: split(`\p{N}{1,3}`), ignoreMerges: true, addsBOS: true},
		{names: []string{"qwen2", "deepseek-r1-qwen"}, json: split(`\p{N}`), nfc: true},
	}
}

// namedPreTokenizer returns the preTokenizer that has the name.
func namedPreTokenizer(name string) (preTokenizer, error) {
	var known []string
	for _, p := range preTokenizers() {
		if slices.Contains(p.names, name) {
			return p, nil
		}
		known = append(known, p.names...)
	}
	return preTokenizer{}, fmt.Errorf("%w: %s is %q, which is not one of %s", ErrUnsupported, preKey, name, strings.Join(known, ", "))
}

// nameOfPreTokenizer finds the preTokenizer that equals the one in a tokenizer.json,
// apart from settings of offsets.
func nameOfPreTokenizer(text json.RawMessage, nfc, ignoreMerges bool) (preTokenizer, error) {
	for _, p := range preTokenizers() {
		if p.nfc == nfc && p.ignoreMerges == ignoreMerges && reflect.DeepEqual(withoutOffsets(text), withoutOffsets([]byte(p.json))) {
			return p, nil
		}
	}
	return preTokenizer{}, fmt.Errorf("%w: tokenizer.json: fulgurite knows no name that llama.cpp has for the pre_tokenizer %.300s (NFC: %t, ignore_merges: %t)",
		ErrUnsupported, text, nfc, ignoreMerges)
}

// withoutOffsets returns a decoded pre_tokenizer without its settings of offsets.
func withoutOffsets(text []byte) any {
	var value any
	if json.Unmarshal(text, &value) != nil {
		return nil
	}
	var strip func(any)
	strip = func(value any) {
		switch v := value.(type) {
		case map[string]any:
			delete(v, "trim_offsets")
			for _, inner := range v {
				strip(inner)
			}
		case []any:
			for _, inner := range v {
				strip(inner)
			}
		}
	}
	strip(value)
	return value
}

// byteLevelBPE is a vocabulary whose tokens are the bytes and the results of merging
// them.
type byteLevelBPE struct {
	merges []string
	pre    preTokenizer
}

func (b *byteLevelBPE) read(m gguf.Metadata, _ *vocabulary) (bool, error) {
	name, err := m.String(preKey)
	if err != nil {
		return false, err
	}
	if b.pre, err = namedPreTokenizer(name); err != nil {
		return false, err
	}
	if b.merges, err = m.Strings(mergesKey); err != nil {
		return false, err
	}
	if len(b.merges) == 0 {
		return false, fmt.Errorf("%w: %s is empty", ErrFormat, mergesKey)
	}
	for i, merge := range b.merges {
		if left, right, ok := strings.Cut(merge, " "); !ok || left == "" || right == "" || strings.Contains(right, " ") {
			return false, fmt.Errorf("%w: %s: element %d is %q, want two tokens", ErrFormat, mergesKey, i, merge)
		}
	}
	return b.pre.addsBOS, nil
}

// inVocabulary reports whether a special token is also listed in the vocabulary. Behind
// the last ordinary token, tokenizers numbers added tokens consecutively, so those tokens
// are not in it. After a gap the numbers are not consecutive, and what follows is in both
// lists.
func (b *byteLevelBPE) inVocabulary(v *vocabulary, id int) bool {
	last := len(v.tokens) // the first of the tokens at the end that are special or unused
	for last > 0 && (v.special(last-1) || v.kinds[last-1] == unusedToken) {
		last--
	}
	return id < last || slices.Contains(v.kinds[last:id], unusedToken)
}

// special returns -1: the ids that llama.cpp takes without a key are those of other
// models.
func (b *byteLevelBPE) special(string) int { return -1 }

func (b *byteLevelBPE) describe(file, model map[string]any, _ *vocabulary) {
	if b.pre.nfc {
		file["normalizer"] = map[string]any{"type": "NFC"}
	}
	file["pre_tokenizer"] = json.RawMessage(b.pre.json)
	file["decoder"] = map[string]any{"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true}
	model["ignore_merges"], model["merges"] = b.pre.ignoreMerges, b.merges
}
