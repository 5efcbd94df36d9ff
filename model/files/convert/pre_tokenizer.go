package convert

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
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
