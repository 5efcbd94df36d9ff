package convert

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"unicode/utf8"

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

// unusedScore is the score of a row without a token.
const unusedScore = -1e6

// writeSentencePiece returns what llama.cpp needs from a BPE of SentencePiece. This
// contains no merges: llama.cpp merges any two neighbours whose texts together are a
// token, highest score first. Merges that no scores can express are refused.
func (f *tokenizerJSON) writeSentencePiece(tokens []string, kinds []int32) (gguf.Metadata, error) {
	addSpace, err := f.addSpacePrefix()
	if err != nil {
		return nil, err
	}
	if f.Model.IgnoreMerges {
		return nil, fmt.Errorf("%w: tokenizer.json: model.ignore_merges is true in a vocabulary of SentencePiece, whose tokens llama.cpp makes only by merging", ErrUnsupported)
	}
	if id, ok := f.Model.Vocab[f.Model.Unknown]; ok {
		kinds[id] = unknownToken
	}
	for _, t := range f.Added {
		if addSpace && t.Normalized {
			return nil, fmt.Errorf("%w: tokenizer.json: added_tokens: %q is searched in the normalized text (normalized is true), but llama.cpp searches it in the text before that", ErrUnsupported, t.Content)
		}
	}
	for b := range 256 {
		id, ok := f.Model.Vocab[fmt.Sprintf("<0x%02X>", b)]
		if !ok {
			return nil, fmt.Errorf("%w: tokenizer.json: model.vocab has no token for the byte 0x%02X, and llama.cpp needs all of them", ErrUnsupported, b)
		}
		kinds[id] = byteToken
	}
	scores, err := f.scores(tokens, kinds)
	if err != nil {
		return nil, err
	}
	return gguf.Metadata{
		{Key: modelKey, Value: sentencePiece}, {Key: preKey, Value: "default"}, {Key: tokensKey, Value: tokens},
		{Key: scoresKey, Value: scores}, {Key: kindsKey, Value: kinds}, {Key: addSpaceKey, Value: addSpace},
	}, nil
}

// normalizerStep holds the parts of a normalizer or a pre_tokenizer that matter for
// SentencePiece.
type normalizerStep struct {
	Type          string           `json:"type"`
	Normalizers   []normalizerStep `json:"normalizers"`
	Prepend       string           `json:"prepend"`
	Pattern       json.RawMessage  `json:"pattern"`
	Content       string           `json:"content"`
	PrependScheme string           `json:"prepend_scheme"`
	Split         *bool            `json:"split"`
}

// isSentencePiece reports whether merging starts from characters. Otherwise it starts
// from bytes: checkTokenizer admits only these two kinds.
func (f *tokenizerJSON) isSentencePiece() bool {
	var p normalizerStep
	return json.Unmarshal(f.PreTokenizer, &p) != nil || p.Type == "" || p.Type == "Metaspace"
}

// addSpacePrefix reports whether llama.cpp has to put a space before a text, and before
// what follows a special token.
func (f *tokenizerJSON) addSpacePrefix() (bool, error) {
	var n, p *normalizerStep
	for _, part := range []struct {
		name string
		text json.RawMessage
		into **normalizerStep
	}{{"normalizer", f.Normalizer, &n}, {"pre_tokenizer", f.PreTokenizer, &p}} {
		if len(part.text) == 0 {
			continue
		}
		if err := json.Unmarshal(part.text, part.into); err != nil {
			return false, fmt.Errorf("%w: %s: %s: %w", ErrFormat, tokenizerFile, part.name, err)
		}
	}
	if p != nil {
		return false, p.checkExportable(n)
	}
	if n == nil {
		n = &normalizerStep{}
	}
	steps := n.Normalizers
	if n.Type != "Sequence" {
		steps = []normalizerStep{*n}
	}
	prefix := len(steps) > 1 && steps[0].Type == "Prepend" && steps[0].Prepend == wordStart
	if prefix {
		steps = steps[1:]
	}
	if len(steps) != 1 || steps[0].Type != "Replace" || string(steps[0].Pattern) != `{"String":" "}` || steps[0].Content != wordStart {
		return false, fmt.Errorf("%w: tokenizer.json: normalizer: llama.cpp only turns each space of such a vocabulary into %s, perhaps after adding one before the text", ErrUnsupported, wordStart)
	}
	return prefix, nil
}

// checkExportable returns an error for a Metaspace that llama.cpp cannot express. llama.cpp
// puts a space both before a text and after each special token, or in neither place. The
// scheme "first", which puts it before the text only, is exported as neither: in a chat,
// text follows a special token and gets no space.
func (s *normalizerStep) checkExportable(n *normalizerStep) error {
	switch {
	case n != nil:
		return fmt.Errorf("%w: tokenizer.json: both a normalizer and a pre_tokenizer Metaspace", ErrUnsupported)
	case s.PrependScheme != "first" && s.PrependScheme != "never":
		return fmt.Errorf("%w: tokenizer.json: pre_tokenizer: prepend_scheme is %q, want \"first\" or \"never\": llama.cpp would put a space before a space, too", ErrUnsupported, s.PrependScheme)
	case s.Split == nil || *s.Split:
		return fmt.Errorf("%w: tokenizer.json: pre_tokenizer: split is true: llama.cpp merges across spaces", ErrUnsupported)
	}
	return nil
}

// scores gives scores to the results of merges, in the order of the merges. The scores
// differ, because among equal scores llama.cpp would take the first pair in the text.
// Tokens that no merge makes get lower scores.
func (f *tokenizerJSON) scores(tokens []string, kinds []int32) ([]float32, error) {
	pairs, err := f.pairs()
	if err != nil {
		return nil, err
	}
	scores := make([]float32, len(kinds))
	ranked, known, last := map[string]bool{}, map[[2]string]bool{}, ""
	rank := func(id int) { scores[id] = -float32(len(ranked)) }
	for i, pair := range pairs {
		result := pair[0] + pair[1]
		if known[pair] = true; ranked[result] && result != last {
			return nil, fmt.Errorf("%w: tokenizer.json: model.merges, line %d: other merges come between those that make %q, and llama.cpp has one score for all of them", ErrUnsupported, i, result)
		}
		if result != last {
			rank(f.Model.Vocab[result])
			ranked[result], last = true, result
		}
	}
	if err := requireAllMerges(tokens, kinds, ranked, known); err != nil {
		return nil, err
	}
	for id, kind := range kinds {
		switch {
		case kind == unusedToken:
			scores[id] = unusedScore
		case kind == normalToken && !ranked[tokens[id]]:
			rank(id)
			ranked[tokens[id]] = true
		}
	}
	return scores, nil
}

// requireAllMerges returns an error if the merges lack one that llama.cpp would make.
// Tokens that are found in a text without merging need no merges.
func requireAllMerges(tokens []string, kinds []int32, results map[string]bool, known map[[2]string]bool) error {
	made := func(text string) bool { return results[text] || utf8.RuneCountInString(text) == 1 }
	for id, token := range tokens {
		if kinds[id] != normalToken {
			continue
		}
		for at := range token {
			if left, right := token[:at], token[at:]; made(left) && made(right) && !known[[2]string{left, right}] {
				return fmt.Errorf("%w: tokenizer.json: model.merges lacks %q and %q, which llama.cpp would merge to %q: for such a vocabulary it knows scores of tokens, not merges",
					ErrUnsupported, left, right, token)
			}
		}
	}
	return nil
}
