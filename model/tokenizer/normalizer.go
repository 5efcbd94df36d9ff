package tokenizer

import (
	"fmt"
	"strings"
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
