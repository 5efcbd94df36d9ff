package convert

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/fulgurite/fulgurite/model/files/gguf"
)

// The keys that only a vocabulary of SentencePiece has.
const (
	scoresKey   = "tokenizer.ggml.scores"
	addSpaceKey = "tokenizer.ggml.add_space_prefix"
)

// wordStart is how a vocabulary of SentencePiece writes a space.
const wordStart = "\u2581"

// sentencePieceBPE is a vocabulary whose tokens have scores. Of all neighbouring tokens
// whose texts together are a token, the pair whose result has the highest score is merged
// first. Characters without a token become bytes.
type sentencePieceBPE struct {
	scores   []float64
	addSpace bool // whether a space is put before a text
}

func (s *sentencePieceBPE) read(m gguf.Metadata, v *vocabulary) (bool, error) {
	var err error
	if s.scores, err = m.Floats(scoresKey); err != nil {
		return false, err
	}
	if len(s.scores) != len(v.tokens) {
		return false, fmt.Errorf("%w: %s has %d elements, %s has %d", ErrFormat, scoresKey, len(s.scores), tokensKey, len(v.tokens))
	}
	for i, score := range s.scores {
		if math.IsNaN(score) {
			return false, fmt.Errorf("%w: %s: element %d is not a number", ErrFormat, scoresKey, i)
		}
	}
	s.addSpace = true
	if m.Has(addSpaceKey) {
		s.addSpace, err = m.Bool(addSpaceKey)
	}
	return true, err
}

// inVocabulary reports true: SentencePiece numbers special tokens together with the
// others.
func (s *sentencePieceBPE) inVocabulary(*vocabulary, int) bool { return true }

// special returns the ids that SentencePiece gives special tokens by default.
func (s *sentencePieceBPE) special(name string) int {
	switch name {
	case "unk_token":
		return 0
	case "bos_token":
		return 1
	case "eos_token":
		return 2
	}
	return -1
}

func (s *sentencePieceBPE) describe(file, model map[string]any, v *vocabulary) {
	spaces := map[string]any{"type": "Replace", "pattern": map[string]any{"String": " "}, "content": wordStart}
	normalizers := []any{spaces}
	decoders := []any{
		map[string]any{"type": "Replace", "pattern": map[string]any{"String": wordStart}, "content": " "},
		map[string]any{"type": "ByteFallback"}, map[string]any{"type": "Fuse"},
	}
	if s.addSpace {
		normalizers = []any{map[string]any{"type": "Prepend", "prepend": wordStart}, spaces}
		decoders = append(decoders, map[string]any{"type": "Strip", "content": " ", "start": 1, "stop": 0})
	}
	file["normalizer"] = map[string]any{"type": "Sequence", "normalizers": normalizers}
	file["decoder"] = map[string]any{"type": "Sequence", "decoders": decoders}
	if unknown := slices.Index(v.kinds, unknownToken); unknown >= 0 {
		model["unk_token"], model["fuse_unk"] = v.tokens[unknown], true
	}
	model["byte_fallback"], model["merges"] = slices.Contains(v.kinds, byteToken), s.merges(v)
}

// merges returns all pairs of tokens that together are a token, highest score first.
func (s *sentencePieceBPE) merges(v *vocabulary) [][2]string {
	scores := map[string]float64{}
	for id, token := range v.tokens {
		if v.kinds[id] == normalToken {
			scores[token] = s.scores[id]
		}
	}
	type merge struct {
		pair  [2]string
		id    int
		score float64
	}
	var all []merge
	for id, token := range v.tokens {
		if v.kinds[id] != normalToken {
			continue
		}
		for at := range token {
			left, right := token[:at], token[at:]
			_, isLeft := scores[left]
			if _, isRight := scores[right]; isLeft && isRight {
				all = append(all, merge{[2]string{left, right}, id, scores[token]})
			}
		}
	}
	// Tokens of equal scores are ordered by their numbers.
	slices.SortStableFunc(all, func(a, b merge) int { return cmp.Or(cmp.Compare(b.score, a.score), cmp.Compare(a.id, b.id)) })
	pairs := make([][2]string, len(all))
	for i, m := range all {
		pairs[i] = m.pair
	}
	return pairs
}
