package tokenizer

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// BPE is a vocabulary that was published as a tokenizer.json; FromJSON makes one. Text is
// cut into pieces by a pattern, and the symbols of each piece are merged pair by pair
// (Sennrich et al., 2016, arXiv:1508.07909) until none of the vocabulary's merges
// applies. The symbols are bytes, or characters with byte fallback: a character without a
// token becomes the tokens of its bytes.
type BPE struct {
	texts []string // the bytes of each token, by id
	kinds []kind
	bytes [256]int32 // the token of each byte, -1 for none
	// characters, if not nil, holds the tokens of single characters. If it is nil, bytes
	// are the symbols.
	characters map[rune]int32
	pairs      map[uint64]merge
	// whole, if not nil, are pieces that are a token without any merge.
	whole     map[string]int32
	splitters []splitter
	changes   []change
	// early tokens are searched in the original text, late ones in the normalized text.
	early, late *addedTokens
	ids         map[string]int32 // added tokens by their text
	around      surroundings
}

// kind is the kind of a token.
type kind byte

const (
	absent kind = iota // no token has the id
	merged
	added
	special
)

// VocabSize returns the largest id plus one. A model may have more rows; these are tokens
// without text.
func (b *BPE) VocabSize() int { return len(b.texts) }

// Encode returns the ids of text. It finds added tokens that are not special, such as a
// published "<think>"; it does not find special tokens.
func (b *BPE) Encode(text string) []int32 { return b.encode(text, nil, nil, false) }

// EncodeSpecial returns the ids of a text that a template produced: special tokens are
// found in it. It adds no tokens at the beginning or the end.
func (b *BPE) EncodeSpecial(text string) []int32 { return b.encode(text, nil, nil, true) }

// EncodeGuarded is like EncodeSpecial for text in which g's marks stand for characters, but
// finds none of the guarded tokens where one of its characters is marked.
func (b *BPE) EncodeGuarded(text string, g *Guard) []int32 {
	bare, marks := g.bare(text)
	return b.encode(bare, marks, g, true)
}

// Decode returns the bytes of ids. It leaves out special tokens and keeps all others. If
// the tokenizer has a normalizer, the result is the normalized text.
func (b *BPE) Decode(ids []int32) string {
	var text strings.Builder
	for _, id := range ids {
		text.WriteString(b.Bytes(id))
	}
	return text.String()
}

// Bytes returns the bytes of a token. A special token, and an id without a token, have no
// bytes.
func (b *BPE) Bytes(id int32) string {
	if k := b.kind(id); k != merged && k != added {
		return ""
	}
	return b.texts[id]
}

// Has reports whether there is a token with the id.
func (b *BPE) Has(id int32) bool { return b.kind(id) != absent }

// Special reports whether id is a special token.
func (b *BPE) Special(id int32) bool { return b.kind(id) == special }

// Added reports whether id is a token, special or not, that is found in a text directly
// and that no merge makes.
func (b *BPE) Added(id int32) bool { return b.kind(id) >= added }

// ID returns the id of an added token with the given text.
func (b *BPE) ID(text string) (int32, bool) {
	id, ok := b.ids[text]
	return id, ok
}

// Find returns the id of the token whose text is text: an added one, or else one that
// merges make.
func (b *BPE) Find(text string) (int32, bool) {
	if id, ok := b.ids[text]; ok {
		return id, true
	}
	for id, k := range b.kinds {
		if k == merged && b.texts[id] == text {
			return int32(id), true
		}
	}
	return 0, false
}

// SpecialTokens returns the texts of the special tokens by id.
func (b *BPE) SpecialTokens() map[int32]string {
	names := map[int32]string{}
	for text, id := range b.ids {
		if b.kinds[id] == special {
			names[id] = text
		}
	}
	return names
}

// Name returns a readable name of the token id: its text, or its bytes in hexadecimal if
// they are not valid text, or "<300?>" for an id without a token.
func (b *BPE) Name(id int32) string {
	switch {
	case b.kind(id) == absent:
		return fmt.Sprintf("<%d?>", id)
	case !utf8.ValidString(b.texts[id]):
		return fmt.Sprintf("0x%x", b.texts[id])
	}
	return b.texts[id]
}

func (b *BPE) kind(id int32) kind {
	if id < 0 || int(id) >= len(b.kinds) {
		return absent
	}
	return b.kinds[id]
}

// encode encodes text, at some bytes of which a mark stood for the character.
func (b *BPE) encode(text string, marks []int, g *Guard, special bool) []int32 {
	ids, first := make([]int32, 0, len(text)/3+1), true
	token := func(id int32) { ids, first = append(ids, id), false }
	m := merger{pairs: b.pairs}
	piece := func(p string) { ids = b.piece(&m, ids, p) }
	ordinary := func(part string, _ int) {
		splitAll(b.splitters, part, first, piece)
		first = false
	}
	b.early.split(text, special, g.allows(marks, 0), func(part string, at int) {
		normal, inside := b.normalize(part), within(marks, at, at+len(part))
		if normal != part && len(inside) > 0 && b.late.any {
			// The marks are found again in the normalized form of the marked text.
			normal, inside = g.bare(b.normalize(g.marked(part, inside, at)))
			at = 0
		}
		b.late.split(normal, special, g.allows(inside, at), ordinary, token)
	}, token)
	return ids
}

// piece appends the tokens of one piece to ids.
func (b *BPE) piece(m *merger, ids []int32, text string) []int32 {
	if id, ok := b.whole[text]; ok {
		return append(ids, id)
	}
	m.symbols = m.symbols[:0]
	if b.characters != nil {
		b.spell(m, text)
	} else {
		for i := range len(text) {
			m.add(b.bytes[text[i]])
		}
	}
	return m.run(ids)
}

// spell adds the tokens of the characters of text, or of the bytes of characters without
// a token. A character is left out if one of its bytes has no token.
func (b *BPE) spell(m *merger, text string) {
	for len(text) > 0 {
		r, n := utf8.DecodeRuneInString(text)
		id, ok := b.characters[r]
		if r == utf8.RuneError && n == 1 {
			ok = false
		}
		before := len(m.symbols)
		for i := 0; !ok && i < n; i++ {
			if b.bytes[text[i]] < 0 {
				m.symbols = m.symbols[:before]
				break
			}
			m.add(b.bytes[text[i]])
		}
		if ok {
			m.add(id)
		}
		text = text[n:]
	}
}

// merge is the token that two neighbouring tokens become. The merge of the lowest rank is
// made first.
type merge struct {
	rank, id int32
}

func pair(left, right int32) uint64 { return uint64(uint32(left))<<32 | uint64(uint32(right)) }

// merger merges the tokens of one piece. It is used again for the next piece, so
// that pieces cost no memory.
type merger struct {
	pairs   map[uint64]merge
	symbols []symbol
	queue   []candidate
}

// symbol is a token of the piece, linked to its neighbours; id -1 is one that was
// merged into the symbol before it.
type symbol struct {
	id             int32
	previous, next int32 // -1 if there is none
}

// candidate is a merge of the symbol at a place with the next one.
type candidate struct {
	merge
	at int32
}

func (c candidate) before(d candidate) bool {
	return c.rank < d.rank || c.rank == d.rank && c.at < d.at
}

// add appends a token to the piece. It ignores an id of -1, which a byte without a token
// has.
func (m *merger) add(id int32) {
	if id >= 0 {
		n := int32(len(m.symbols))
		m.symbols = append(m.symbols, symbol{id, n - 1, n + 1})
	}
}

// run merges the symbols until no merge applies, and appends the resulting tokens to ids.
func (m *merger) run(ids []int32) []int32 {
	if len(m.symbols) == 0 {
		return ids
	}
	m.symbols[len(m.symbols)-1].next = -1
	m.queue = m.queue[:0]
	for i := range len(m.symbols) - 1 {
		m.consider(int32(i))
	}
	for len(m.queue) > 0 {
		c := m.pop()
		left := &m.symbols[c.at]
		if left.id < 0 || left.next < 0 {
			continue
		}
		right := &m.symbols[left.next]
		if now, ok := m.pairs[pair(left.id, right.id)]; !ok || now.id != c.id {
			continue // one of the two was merged with another symbol meanwhile
		}
		left.id, left.next = c.id, right.next
		right.id = -1
		if left.next >= 0 {
			m.symbols[left.next].previous = c.at
			m.consider(c.at)
		}
		if left.previous >= 0 {
			m.consider(left.previous)
		}
	}
	for i := int32(0); i >= 0; i = m.symbols[i].next {
		ids = append(ids, m.symbols[i].id)
	}
	return ids
}

// consider puts the merge of a symbol and its next one into the queue.
func (m *merger) consider(at int32) {
	s := m.symbols[at]
	found, ok := m.pairs[pair(s.id, m.symbols[s.next].id)]
	if !ok {
		return
	}
	m.queue = append(m.queue, candidate{found, at})
	for i := len(m.queue) - 1; i > 0; {
		parent := (i - 1) / 2
		if !m.queue[i].before(m.queue[parent]) {
			return
		}
		m.queue[i], m.queue[parent] = m.queue[parent], m.queue[i]
		i = parent
	}
}

func (m *merger) pop() candidate {
	first, last := m.queue[0], len(m.queue)-1
	m.queue[0] = m.queue[last]
	m.queue = m.queue[:last]
	for i := 0; ; {
		child := 2*i + 1
		if child >= last {
			return first
		}
		if child+1 < last && m.queue[child+1].before(m.queue[child]) {
			child++
		}
		if !m.queue[child].before(m.queue[i]) {
			return first
		}
		m.queue[i], m.queue[child] = m.queue[child], m.queue[i]
		i = child
	}
}
