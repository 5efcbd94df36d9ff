package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// ErrFormat is wrapped when a tokenizer.json is not one.
var ErrFormat = errors.New("bad tokenizer.json")

// ErrUnsupported is wrapped when a tokenizer.json asks for something that BPE
// does not do, naming the setting.
var ErrUnsupported = errors.New("unsupported tokenizer")

// mostTokens bounds the ids, so that a file can't ask for memory at will.
const mostTokens = 1 << 22

// file is a tokenizer.json.
type file struct {
	Added        []addedToken    `json:"added_tokens"`
	Normalizer   *normalizer     `json:"normalizer"`
	PreTokenizer json.RawMessage `json:"pre_tokenizer"`
	Decoder      *struct {
		Type     string `json:"type"`
		Decoders []struct {
			Type string `json:"type"`
		} `json:"decoders"`
	} `json:"decoder"`
	Model struct {
		Type         string           `json:"type"`
		Dropout      *float64         `json:"dropout"`
		Prefix       *string          `json:"continuing_subword_prefix"`
		Suffix       *string          `json:"end_of_word_suffix"`
		ByteFallback bool             `json:"byte_fallback"`
		IgnoreMerges bool             `json:"ignore_merges"`
		Vocab        map[string]int32 `json:"vocab"`
		Merges       merges           `json:"merges"`
	} `json:"model"`
}

// merges are pairs of tokens, each in one string with a space between or in a list.
type merges [][2]string

// UnmarshalJSON implements json.Unmarshaler.
func (m *merges) UnmarshalJSON(text []byte) error {
	var lists [][]string
	if json.Unmarshal(text, &lists) == nil {
		*m = make(merges, len(lists))
		for i, list := range lists {
			if len(list) != 2 {
				return fmt.Errorf("model.merges, line %d: want two tokens", i)
			}
			(*m)[i] = [2]string{list[0], list[1]}
		}
		return nil
	}
	var lines []string
	if err := json.Unmarshal(text, &lines); err != nil {
		return errors.New("model.merges: want strings or lists of two")
	}
	*m = make(merges, len(lines))
	for i, line := range lines {
		left, right, ok := strings.Cut(line, " ")
		if !ok || strings.Contains(right, " ") {
			return fmt.Errorf("model.merges, line %d: want two tokens with a space between", i)
		}
		(*m)[i] = [2]string{left, right}
	}
	return nil
}

type normalizer struct {
	Type     string       `json:"type"`
	Sequence []normalizer `json:"normalizers"`
}

// FromJSON reads the tokenizer.json of a byte-level BPE, the kind that GPT-2,
// Llama 3, Qwen and most models since have. Another kind, or a setting that it
// does not know, is an error that wraps ErrUnsupported: ids are those of the
// tokenizer's makers or there are none.
func FromJSON(text []byte) (*BPE, error) {
	var f file
	if err := json.Unmarshal(text, &f); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFormat, err)
	}
	if err := f.supported(); err != nil {
		return nil, err
	}
	b := &BPE{ids: map[string]int32{}}
	var err error
	if b.splitters, err = readSplitters(f.PreTokenizer); err != nil {
		return nil, err
	}
	if b.nfc, err = f.Normalizer.nfc(); err != nil {
		return nil, err
	}
	if err = b.fill(&f); err == nil {
		err = b.readMerges(&f)
	}
	if err != nil {
		return nil, err
	}
	return b, nil
}

// supported refuses what would give other ids.
func (f *file) supported() error {
	refuse := func(format string, args ...any) error {
		return fmt.Errorf("%w: %s", ErrUnsupported, fmt.Sprintf(format, args...))
	}
	m := &f.Model
	switch {
	case m.Type != "BPE":
		return refuse("model.type is %q, want BPE", m.Type)
	case m.Dropout != nil && *m.Dropout != 0:
		return refuse("model.dropout is %v", *m.Dropout)
	case m.Prefix != nil && *m.Prefix != "":
		return refuse("model.continuing_subword_prefix is %q", *m.Prefix)
	case m.Suffix != nil && *m.Suffix != "":
		return refuse("model.end_of_word_suffix is %q", *m.Suffix)
	case m.ByteFallback:
		return refuse("model.byte_fallback is true: a SentencePiece vocabulary, not a byte-level one")
	case len(f.PreTokenizer) == 0 || string(f.PreTokenizer) == "null":
		return refuse("pre_tokenizer is absent, want ByteLevel")
	case f.Decoder == nil:
		return refuse("decoder is absent, want ByteLevel")
	}
	decoders := f.Decoder.Decoders
	if f.Decoder.Type != "ByteLevel" && (f.Decoder.Type != "Sequence" || len(decoders) != 1 || decoders[0].Type != "ByteLevel") {
		return refuse("decoder is of type %q, want ByteLevel", f.Decoder.Type)
	}
	return nil
}

// nfc says whether text is normalized to form C, the only normalizer known.
func (n *normalizer) nfc() (bool, error) {
	switch {
	case n == nil:
		return false, nil
	case n.Type == "NFC":
		return true, nil
	case n.Type != "Sequence":
		return false, fmt.Errorf("%w: normalizer of type %q, want NFC or none", ErrUnsupported, n.Type)
	}
	for i := range n.Sequence {
		if one, err := n.Sequence[i].nfc(); one || err != nil {
			// Normalizing again changes nothing, but the rest has to be known too.
			rest := normalizer{Type: "Sequence", Sequence: n.Sequence[i+1:]}
			if err == nil {
				_, err = rest.nfc()
			}
			return true, err
		}
	}
	return false, nil
}

// fill puts the vocabulary and the added tokens in.
func (b *BPE) fill(f *file) error {
	alphabet := spelled()
	for i := range b.bytes {
		b.bytes[i] = -1
	}
	if f.Model.IgnoreMerges {
		b.whole = make(map[string]int32, len(f.Model.Vocab))
	}
	for token, id := range f.Model.Vocab {
		raw := unspell(token, alphabet)
		if err := b.put(id, raw, merged); err != nil {
			return err
		}
		if len(raw) == 1 {
			b.bytes[raw[0]] = id
		}
		if b.whole != nil {
			b.whole[raw] = id
		}
	}
	for i, id := range b.bytes {
		if id < 0 {
			return fmt.Errorf("%w: model.vocab has no token for the byte 0x%02x", ErrUnsupported, i)
		}
	}
	var early, late []addedToken
	for _, t := range f.Added {
		if t.Content == "" {
			return fmt.Errorf("%w: added_tokens: token %d is empty", ErrFormat, t.ID)
		}
		if id, ok := f.Model.Vocab[t.Content]; ok && id != t.ID || !ok && b.kind(t.ID) != absent {
			return fmt.Errorf("%w: added_tokens: the id %d of %q is that of another token", ErrFormat, t.ID, t.Content)
		}
		if t.Normalized && b.nfc {
			t.Content = nfc(t.Content)
		}
		k := added
		if t.Special {
			k = special
		}
		if err := b.put(t.ID, t.Content, k); err != nil {
			return err
		}
		b.ids[t.Content] = t.ID
		if t.Normalized {
			late = append(late, t)
		} else {
			early = append(early, t)
		}
	}
	b.early, b.late = newAddedTokens(early), newAddedTokens(late)
	return nil
}

func (b *BPE) put(id int32, text string, k kind) error {
	if id < 0 || id >= mostTokens {
		return fmt.Errorf("%w: id %d of token %q, want 0 to %d", ErrFormat, id, text, mostTokens-1)
	}
	for int(id) >= len(b.texts) {
		b.texts, b.kinds = append(b.texts, ""), append(b.kinds, absent)
	}
	if b.kinds[id] == merged && k == merged {
		return fmt.Errorf("%w: tokens %q and %q have one id, %d", ErrFormat, b.texts[id], text, id)
	}
	b.texts[id], b.kinds[id] = text, k
	return nil
}

// readMerges ranks the merges by their order.
func (b *BPE) readMerges(f *file) error {
	b.pairs = make(map[uint64]merge, len(f.Model.Merges))
	for rank, m := range f.Model.Merges {
		var of [3]int32
		for i, token := range []string{m[0], m[1], m[0] + m[1]} {
			id, ok := f.Model.Vocab[token]
			if !ok {
				return fmt.Errorf("%w: model.merges, line %d: model.vocab lacks %q", ErrFormat, rank, token)
			}
			of[i] = id
		}
		b.pairs[pair(of[0], of[1])] = merge{int32(rank), of[2]}
	}
	return nil
}
