package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// ErrFormat is wrapped when a text is not a valid tokenizer.json.
var ErrFormat = errors.New("bad tokenizer.json")

// ErrUnsupported is wrapped, with the name of the setting, when a tokenizer.json needs
// something that BPE does not support.
var ErrUnsupported = errors.New("unsupported tokenizer")

// maxTokens bounds the ids, so that a file can't ask for memory at will.
const maxTokens = 1 << 22

// file is a tokenizer.json.
type file struct {
	Added        []addedToken    `json:"added_tokens"`
	Normalizer   *normalizer     `json:"normalizer"`
	PreTokenizer json.RawMessage `json:"pre_tokenizer"`
	PostProc     *postProcessor  `json:"post_processor"`
	Decoder      *decoder        `json:"decoder"`
	Model        struct {
		Type         string           `json:"type"`
		Dropout      *float64         `json:"dropout"`
		Prefix       *string          `json:"continuing_subword_prefix"`
		Suffix       *string          `json:"end_of_word_suffix"`
		Unknown      *string          `json:"unk_token"`
		ByteFallback bool             `json:"byte_fallback"`
		IgnoreMerges bool             `json:"ignore_merges"`
		Vocab        map[string]int32 `json:"vocab"`
		Merges       merges           `json:"merges"`
	} `json:"model"`
}

// merges holds pairs of tokens. A file has each as a string with a space between the
// tokens, or as a list.
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

// FromJSON reads the tokenizer.json of a BPE. The symbols are bytes, as for GPT-2, Llama
// 3, Qwen and most models since, or characters with byte fallback, as for Llama 2 and
// Mistral. Another kind, or an unknown setting, is an error that wraps ErrUnsupported. So
// a BPE either gives the ids of the original tokenizer or does not exist.
func FromJSON(text []byte) (*BPE, error) {
	var f file
	if err := json.Unmarshal(text, &f); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFormat, err)
	}
	splitters, byteLevel, err := readSplitters(f.PreTokenizer)
	if err != nil {
		return nil, err
	}
	if err := f.supported(byteLevel); err != nil {
		return nil, err
	}
	b := &BPE{ids: map[string]int32{}, splitters: splitters, around: surroundingsOf(f.PostProc)}
	if b.changes, err = f.Normalizer.changes(); err != nil {
		return nil, err
	}
	if !byteLevel {
		b.characters = map[rune]int32{}
	}
	for _, fill := range []func(*file) error{b.fill, b.complete, b.add, b.readMerges} {
		if err := fill(&f); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// supported returns an error if the settings would give other ids.
func (f *file) supported(byteLevel bool) error {
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
	case !byteLevel && !m.ByteFallback:
		return refuse("pre_tokenizer is not a ByteLevel and model.byte_fallback is false: there are texts without tokens")
	}
	return f.Decoder.supported(byteLevel)
}

// fill sets the tokens of the vocabulary.
func (b *BPE) fill(f *file) error {
	alphabet := spelled()
	for i := range b.bytes {
		b.bytes[i] = -1
	}
	if f.Model.IgnoreMerges {
		b.whole = make(map[string]int32, len(f.Model.Vocab))
	}
	most := f.most()
	for token, id := range f.Model.Vocab {
		var raw string
		piece := token
		if b.characters == nil {
			raw = unspell(token, alphabet)
			piece = raw
			if len(raw) == 1 {
				b.bytes[raw[0]] = id
			}
		} else {
			raw = spellPlain(token)
			if value, ok := fallbackByte(token); ok && token == fmt.Sprintf("<0x%02X>", value) {
				b.bytes[value] = id
			}
			if r, n := utf8.DecodeRuneInString(token); n == len(token) && n > 0 {
				b.characters[r] = id
			}
		}
		if err := b.put(id, most, raw, merged); err != nil {
			return err
		}
		if b.whole != nil {
			b.whole[piece] = id
		}
	}
	return nil
}

// complete returns an error if the vocabulary could encode text as its unknown token,
// which is often the token that ends texts. In a vocabulary without an unknown token, a
// byte that has no token is left out, as other tokenizers do.
func (b *BPE) complete(f *file) error {
	missing := 0
	for i, id := range b.bytes {
		if id >= 0 {
			continue
		}
		if unknown := f.Model.Unknown; unknown != nil || b.characters == nil && f.Model.ByteFallback {
			return fmt.Errorf("%w: model.vocab has no token for the byte 0x%02x, which would become model.unk_token: set that to null", ErrUnsupported, i)
		}
		missing++
	}
	if missing == len(b.bytes) {
		return fmt.Errorf("%w: model.vocab has no token for any byte", ErrUnsupported)
	}
	return nil
}

// add sets the added tokens.
func (b *BPE) add(f *file) error {
	var early, late []addedToken
	most := f.most()
	next := int32(len(f.Model.Vocab)) // the id that other readers give the next new token, whatever the file says
	for _, t := range f.Added {
		if t.Content == "" || t.Normalized && b.normalize(t.Content) == "" {
			return fmt.Errorf("%w: added_tokens: token %d is empty", ErrFormat, t.ID)
		}
		if id, ok := f.Model.Vocab[t.Content]; ok && id != t.ID || !ok && b.kind(t.ID) != absent {
			return fmt.Errorf("%w: added_tokens: the id %d of %q is that of another token", ErrFormat, t.ID, t.Content)
		}
		name := t.Content
		_, twice := b.ids[name]
		_, inVocab := f.Model.Vocab[name]
		b.ids[t.Content] = t.ID
		form, k := t.Content, added
		if t.Normalized {
			form = b.normalize(form)
		}
		if t.Special {
			k = special
			delete(b.whole, t.Content) // text never becomes a special token
			if !strings.HasSuffix(form, t.Content) {
				return fmt.Errorf("%w: added_tokens: the normalizer changes the special token %q into %q", ErrUnsupported, t.Content, form)
			}
		} else if t.Content = form; b.characters != nil {
			t.Content = spellPlain(form)
		}
		if err := b.put(t.ID, most, t.Content, k); err != nil {
			return err
		}
		if !inVocab && !twice && t.ID != next {
			return fmt.Errorf("%w: added_tokens: %q has the id %d, but the next free one is %d, and Hugging Face's tokenizers takes that: number the added tokens without gaps and in order, or list them in model.vocab",
				ErrFormat, name, t.ID, next)
		}
		next = max(next, t.ID+1)
		if t.Content = form; t.Normalized {
			late = append(late, t)
		} else {
			early = append(early, t)
		}
	}
	b.early, b.late = newAddedTokens(early), newAddedTokens(late)
	return nil
}

// most returns the limit of ids. It is somewhat above the number of tokens, so that a
// small file can't request much memory.
func (f *file) most() int {
	return min(maxTokens, 1<<16+4*(len(f.Model.Vocab)+len(f.Added)))
}

func (b *BPE) put(id int32, most int, text string, k kind) error {
	if id < 0 || int(id) >= most {
		return fmt.Errorf("%w: id %d of token %q, want 0 to %d", ErrFormat, id, text, most-1)
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

// readMerges sets the merges, ranked by their order in the file.
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
		if b.kinds[of[2]] == special {
			return fmt.Errorf("%w: model.merges, line %d: texts would become the special token %q", ErrUnsupported, rank, m[0]+m[1])
		}
		b.pairs[pair(of[0], of[1])] = merge{int32(rank), of[2]}
	}
	return nil
}
