package schema

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"slices"
)

// likeness is equal for expressions, also of different grammars, that short tokens
// can't tell apart: a repeat that goes on for longer than a short token may as well
// go on for ever.
type likeness [sha256.Size]byte

func (n *node) likeness() *likeness {
	if n.alike == nil {
		l := likeness(sha256.Sum256(n.describe()))
		n.alike = &l
	}
	return n.alike
}

func (n *node) describe() []byte {
	text := []byte{byte(n.kind)}
	switch n.kind {
	case bytesIn:
		for _, word := range n.set {
			text = binary.LittleEndian.AppendUint64(text, word)
		}
	case literal, except:
		text = append(text, n.text...)
	case special:
		text = binary.AppendVarint(text, int64(n.min))
	case value:
		panic("a value is no part of a string") // its rule has a meaning in one grammar only
	case repeat:
		most := min(uint(n.max), longToken) // unbounded is the largest of all
		text = append(text, byte(min(n.min, longToken)), byte(most))
	}
	var parts [][]byte
	for _, option := range n.options {
		parts = append(parts, option.likeness()[:])
	}
	slices.SortFunc(parts, bytes.Compare)
	for _, part := range []*node{n.a, n.b} {
		if part != nil {
			parts = append(parts, part.likeness()[:])
		}
	}
	return append(text, bytes.Join(parts, nil)...)
}
