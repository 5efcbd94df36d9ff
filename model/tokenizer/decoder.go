package tokenizer

import (
	"fmt"
	"strconv"
	"strings"
)

// space is the character that vocabularies of SentencePiece use for a space.
const space = "\u2581"

// decoder is the field "decoder" of a tokenizer.json.
type decoder struct {
	Type        string      `json:"type"`
	Sequence    []decoder   `json:"decoders"`
	Pattern     textPattern `json:"pattern"` // Replace
	Content     string      `json:"content"` // Replace, Strip
	Replacement string      `json:"replacement"`
	Start       int         `json:"start"` // Strip
	Stop        int         `json:"stop"`
}

// supported returns an error if the decoder changes the bytes of tokens. A step that
// removes the first space of a text is accepted but not executed, because a reply is
// decoded in parts.
func (d *decoder) supported(byteLevel bool) error {
	want := "Replace, ByteFallback, Fuse, Strip or Metaspace"
	if byteLevel {
		want = "ByteLevel"
	}
	if d == nil {
		return fmt.Errorf("%w: decoder is absent, want %s", ErrUnsupported, want)
	}
	steps := d.Sequence
	if d.Type != "Sequence" {
		steps = []decoder{*d}
	}
	found := ""
	for _, s := range steps {
		known := false
		switch s.Type {
		case "ByteLevel":
			known = byteLevel && len(steps) == 1
		case "Replace":
			known = !byteLevel && s.Pattern.String != nil && *s.Pattern.String == space && s.Content == " "
		case "Metaspace":
			known = !byteLevel && s.Replacement == space
		case "Strip":
			known = !byteLevel && s.Content == " " && s.Start <= 1 && s.Stop == 0
		case "ByteFallback", "Fuse":
			known = !byteLevel
		}
		if !known {
			return fmt.Errorf("%w: decoder is of type %q, want %s", ErrUnsupported, s.Type, want)
		}
		found += s.Type + " "
	}
	switch {
	case byteLevel && found == "":
		return fmt.Errorf("%w: decoder is of type %q, want %s", ErrUnsupported, d.Type, want)
	case !byteLevel && (!strings.Contains(found, "ByteFallback") || !strings.Contains(found, "Replace") && !strings.Contains(found, "Metaspace")):
		return fmt.Errorf("%w: decoder lacks ByteFallback, or a step that makes spaces of %s", ErrUnsupported, space)
	}
	return nil
}

// fallbackByte returns the byte that a token such as <0x0A> represents.
func fallbackByte(token string) (byte, bool) {
	if len(token) != 6 || !strings.HasPrefix(token, "<0x") || token[5] != '>' {
		return 0, false
	}
	n, err := strconv.ParseUint(token[3:5], 16, 8)
	return byte(n), err == nil
}

// spellPlain returns the text that a token of a vocabulary with byte fallback represents.
func spellPlain(token string) string {
	if b, ok := fallbackByte(token); ok {
		return string([]byte{b})
	}
	return strings.ReplaceAll(token, space, " ")
}
