package convert

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/fulgurite/fulgurite/model/files/gguf"
)

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
