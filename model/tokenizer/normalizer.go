package tokenizer

import (
	"fmt"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"
)

// normalizer is the field "normalizer" of a tokenizer.json.
type normalizer struct {
	Type     string       `json:"type"`
	Sequence []normalizer `json:"normalizers"`
	Prefix   string       `json:"prepend"` // Prepend
	Pattern  textPattern  `json:"pattern"` // Replace
	Content  string       `json:"content"`
}

// textPattern matches a regular expression or a text.
type textPattern struct {
	Regex  *string `json:"Regex"`
	String *string `json:"String"`
}

// change is one step of normalizing a text that is not empty.
type change func(string) string

// changes returns the steps of n, and none if n is nil.
func (n *normalizer) changes() ([]change, error) {
	if n == nil {
		return nil, nil
	}
	switch n.Type {
	case "NFC":
		return []change{nfc}, nil
	case "Prepend":
		return []change{func(text string) string { return n.Prefix + text }}, nil
	case "Replace":
		old := n.Pattern.String
		if old == nil || *old == "" {
			return nil, fmt.Errorf("%w: normalizer Replace of something else than a String", ErrUnsupported)
		}
		return []change{func(text string) string { return strings.ReplaceAll(text, *old, n.Content) }}, nil
	case "Sequence":
		var all []change
		for i := range n.Sequence {
			more, err := n.Sequence[i].changes()
			if err != nil {
				return nil, err
			}
			all = append(all, more...)
		}
		return all, nil
	}
	return nil, fmt.Errorf("%w: normalizer of type %q is not one of NFC, Prepend, Replace, Sequence", ErrUnsupported, n.Type)
}

// normalize applies the normalizer to a part of a text.
func (b *BPE) normalize(text string) string {
	for _, c := range b.changes {
		if text == "" {
			break
		}
		text = c(text)
	}
	return text
}

// nfc normalizes text to form C as the reference tokenizers do. Their tables are those of
// Unicode 10: a character that was added later is not a mark and does not compose.
func nfc(text string) string {
	if norm.NFC.IsNormalString(text) {
		return text
	}
	var b strings.Builder
	done := 0
	for i, r := range text {
		if !unicode.Is(inert, r) {
			continue
		}
		b.WriteString(norm.NFC.String(text[done:i]))
		b.WriteRune(r)
		done = i + len(string(r))
	}
	b.WriteString(norm.NFC.String(text[done:]))
	return b.String()
}

// inert holds the characters added since Unicode 10 that form C would move or compose.
var inert = &unicode.RangeTable{
	R16: []unicode.Range16{
		{0x07fd, 0x07fd, 1}, {0x0897, 0x089f, 1}, {0x08ca, 0x08d3, 1}, {0x09fe, 0x09fe, 1}, {0x0c3c, 0x0c3c, 1},
		{0x0d3b, 0x0d3c, 1}, {0x0eba, 0x0eba, 1}, {0x1715, 0x1715, 1}, {0x1abf, 0x1add, 1}, {0x1ae0, 0x1aeb, 1},
		{0x1df6, 0x1dfa, 1}, {0xa82c, 0xa82c, 1},
	},
	R32: []unicode.Range32{
		{0x105c9, 0x105c9, 1}, {0x105e4, 0x105e4, 1}, {0x10d24, 0x10d27, 1}, {0x10d69, 0x10d6d, 1}, {0x10eab, 0x10eac, 1},
		{0x10efa, 0x10efb, 1}, {0x10efd, 0x10eff, 1}, {0x10f46, 0x10f50, 1}, {0x10f82, 0x10f85, 1}, {0x11070, 0x11070, 1},
		{0x1133b, 0x1133b, 1}, {0x11383, 0x11383, 1}, {0x11385, 0x11385, 1}, {0x1138e, 0x1138e, 1}, {0x11391, 0x11391, 1},
		{0x113c5, 0x113c5, 1}, {0x113c7, 0x113c8, 1}, {0x113ce, 0x113d0, 1}, {0x1145e, 0x1145e, 1}, {0x11839, 0x1183a, 1},
		{0x11938, 0x11938, 1}, {0x1193d, 0x1193e, 1}, {0x11943, 0x11943, 1}, {0x119e0, 0x119e0, 1}, {0x11a34, 0x11a34, 1},
		{0x11a47, 0x11a47, 1}, {0x11a99, 0x11a99, 1}, {0x11d42, 0x11d42, 1}, {0x11d44, 0x11d45, 1}, {0x11d97, 0x11d97, 1},
		{0x11f41, 0x11f42, 1}, {0x16121, 0x16128, 1}, {0x1612f, 0x1612f, 1}, {0x16d68, 0x16d6a, 1}, {0x16ff0, 0x16ff1, 1},
		{0x1e08f, 0x1e08f, 1}, {0x1e130, 0x1e136, 1}, {0x1e2ae, 0x1e2ae, 1}, {0x1e2ec, 0x1e2ef, 1}, {0x1e4ec, 0x1e4ef, 1},
		{0x1e5ee, 0x1e5ef, 1}, {0x1e6e3, 0x1e6e3, 1}, {0x1e6e6, 0x1e6e6, 1}, {0x1e6ee, 0x1e6ef, 1}, {0x1e6f5, 0x1e6f5, 1},
	},
}
