// Package tokenizer converts text to the token ids of a policy's vocabulary and back.
//
// It knows nothing about roles, turns or templates: package dialog lays those out and
// writes the special tokens itself. [Bytes] is the vocabulary of the built-in model,
// small enough for a transformer that learns on a laptop. [BPE] is the vocabulary of a
// published model, read from its tokenizer.json; its symbols are bytes, or characters
// with byte fallback. Both implement [Tokenizer]. Vocabularies of other kinds (WordPiece,
// Unigram) are refused.
//
// Guarantees:
//
// Any text can be encoded. Decoding returns the same bytes, except for what a published
// tokenizer itself changes: its normalizer, the space that some put before a text, the
// character U+2581 that some use for spaces, and bytes without a token, which are left
// out.
//
// Encode never makes special tokens from text, so that what a user or a tool writes can't
// end a turn or speak in another role. Only [BPE.EncodeSpecial] and [BPE.EncodeGuarded]
// make special tokens.
//
// The ids of a BPE are those of the reference implementation; otherwise there is an error
// that names the unknown setting.
package tokenizer

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Tokenizer is a vocabulary. Its methods have no side effects and are safe for
// concurrent use.
type Tokenizer interface {
	// Encode gives the ids of text, none of them a special token. The empty text
	// has none.
	Encode(text string) []int32
	// Decode gives the text of ids, byte for byte: sampled ids may decode to
	// invalid UTF-8. Special tokens and ids outside the vocabulary have no text.
	Decode(ids []int32) string
	// VocabSize is the number of tokens; ids run from 0 to one less.
	VocabSize() int
}

// addedToken is a token that is found in text before the text is cut into pieces.
type addedToken struct {
	ID         int32  `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"`
	LStrip     bool   `json:"lstrip"`
	RStrip     bool   `json:"rstrip"`
	Normalized bool   `json:"normalized"`
	Special    bool   `json:"special"`
}

// addedTokens finds tokens in text. Where several begin at one place it takes the
// longest.
type addedTokens struct {
	byFirst [256][]addedToken // by first byte, longest first
	any     bool
}

func newAddedTokens(tokens []addedToken) *addedTokens {
	a := &addedTokens{any: len(tokens) > 0}
	for _, t := range tokens {
		a.byFirst[t.Content[0]] = append(a.byFirst[t.Content[0]], t)
	}
	for _, list := range a.byFirst {
		slices.SortStableFunc(list, func(x, y addedToken) int { return cmp.Compare(len(y.Content), len(x.Content)) })
	}
	return a
}

// split passes the parts of text on, in order: ordinary text with its place to plain, and
// tokens to token. It finds special tokens only if special is true, and a token only where
// it is allowed.
func (a *addedTokens) split(text string, special bool, allowed func(id int32, begin, end int) bool, plain func(part string, at int), token func(int32)) {
	done := 0
	for from := 0; a.any && from < len(text); {
		t, ok := a.at(text, from, allowed)
		if !ok {
			from++
			continue
		}
		begin, end := from, from+len(t.Content)
		from = end
		if t.Special && !special || t.SingleWord && insideWord(text, begin, end) {
			continue
		}
		if t.LStrip {
			begin = max(done, len(strings.TrimRightFunc(text[:begin], unicode.IsSpace)))
		}
		if t.RStrip {
			end = len(text) - len(strings.TrimLeftFunc(text[end:], unicode.IsSpace))
		}
		if done < begin {
			plain(text[done:begin], done)
		}
		token(t.ID)
		done = end
	}
	if done < len(text) {
		plain(text[done:], done)
	}
}

func (a *addedTokens) at(text string, from int, allowed func(id int32, begin, end int) bool) (addedToken, bool) {
	for _, t := range a.byFirst[text[from]] {
		if strings.HasPrefix(text[from:], t.Content) && allowed(t.ID, from, from+len(t.Content)) {
			return t, true
		}
	}
	return addedToken{}, false
}

// insideWord reports whether a word's character is directly before or after
// text[begin:end].
func insideWord(text string, begin, end int) bool {
	before, n := utf8.DecodeLastRuneInString(text[:begin])
	after, m := utf8.DecodeRuneInString(text[end:])
	return n > 0 && ofWord(before) || m > 0 && ofWord(after)
}

// ofWord reports whether r belongs to \w as defined in Annex C of Unicode's UTS #18.
func ofWord(r rune) bool {
	return unicode.In(r, unicode.L, unicode.M, unicode.Nd, unicode.Nl, unicode.Pc, unicode.Other_Alphabetic) || r == '\u200c' || r == '\u200d'
}

// EncodePrompt returns the ids of a text that is a whole prompt: special tokens are found
// in it, and the tokens that the tokenizer's post-processor puts around a text, such as
// the one that begins it, are added. A text that already begins with them does not get
// them twice. It returns an error if the post-processor can't be read, see Around.
func (b *BPE) EncodePrompt(text string) ([]int32, error) {
	if b.around.err != nil {
		return nil, b.around.err
	}
	ids := b.EncodeSpecial(text)
	if n := len(b.around.before); n > len(ids) || !slices.Equal(b.around.before, ids[:n]) {
		ids = slices.Concat(b.around.before, ids)
	}
	return append(ids, b.around.after...), nil
}

// surroundings are the tokens that a post-processor puts around a text, or why that is
// not known.
type surroundings struct {
	before, after []int32
	err           error
}

func surroundingsOf(p *postProcessor) (s surroundings) {
	if p != nil {
		s.before, s.after, s.err = p.around()
	}
	return s
}

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

// FirstMark is the first of the noncharacters that stand for characters in a text. There
// are 32 of them. Noncharacters have no meaning in any text.
const FirstMark, maxMarks = '\uFDD0', 32

// Guard keeps text that a template was given from becoming tokens. Such text has marks in
// place of the characters of an alphabet. Each guarded token has one of these characters.
type Guard struct {
	Alphabet []rune
	tokens   map[int32]bool
}

// NewGuard returns a guard of the added tokens of b for which guarded returns true.
func (b *BPE) NewGuard(guarded func(text string, special bool) bool) *Guard {
	g := &Guard{tokens: map[int32]bool{}}
	var texts []string
	for text, id := range b.ids {
		if guarded(text, b.kinds[id] == special) {
			g.tokens[id] = true
			texts = append(texts, text)
		}
	}
	slices.Sort(texts)
	add := func(c rune) {
		if !slices.Contains(g.Alphabet, c) && len(g.Alphabet) < maxMarks {
			g.Alphabet = append(g.Alphabet, c)
		}
	}
	// First the punctuation, which most tokens share.
	for _, text := range texts {
		if !strings.ContainsFunc(text, func(c rune) bool { return slices.Contains(g.Alphabet, c) }) {
			if i := strings.IndexFunc(text, func(c rune) bool { return unicode.In(c, unicode.P, unicode.S) }); i >= 0 {
				c, _ := utf8.DecodeRuneInString(text[i:])
				add(c)
			}
		}
	}
	for _, text := range texts {
		if !strings.ContainsFunc(text, func(c rune) bool { return slices.Contains(g.Alphabet, c) }) {
			if i := strings.IndexFunc(text, func(c rune) bool { return !unicode.IsSpace(c) }); i >= 0 {
				c, _ := utf8.DecodeRuneInString(text[i:])
				add(unicode.ToLower(c)) // a template may change the case
				add(unicode.ToUpper(c))
			}
		}
	}
	return g
}

// Mark returns text with marks in place of the alphabet's characters. The texts of open
// stay as they are. Noncharacters that are marks become U+FFFD.
func (g *Guard) Mark(text string, open []string) string {
	var out strings.Builder
	for i := 0; i < len(text); {
		if at := slices.IndexFunc(open, func(o string) bool { return strings.HasPrefix(text[i:], o) }); at >= 0 {
			out.WriteString(open[at])
			i += len(open[at])
			continue
		}
		c, n := utf8.DecodeRuneInString(text[i:])
		switch at := slices.Index(g.Alphabet, c); {
		case at >= 0:
			out.WriteRune(FirstMark + rune(at))
		case c >= FirstMark && c < FirstMark+maxMarks:
			out.WriteRune(utf8.RuneError)
		default:
			out.WriteString(text[i : i+n])
		}
		i += n
	}
	return out.String()
}

// Unmark returns text with characters in place of marks.
func (g *Guard) Unmark(text string) string {
	bare, _ := g.bare(text)
	return bare
}

// bare returns text with characters in place of marks, and their places.
func (g *Guard) bare(text string) (string, []int) {
	if !strings.Contains(text, "\xef\xb7") {
		return text, nil
	}
	var out strings.Builder
	var marks []int
	for i := 0; i < len(text); {
		c, n := utf8.DecodeRuneInString(text[i:])
		if at := int(c - FirstMark); at >= 0 && at < len(g.Alphabet) {
			marks = append(marks, out.Len())
			out.WriteRune(g.Alphabet[at])
		} else {
			out.WriteString(text[i : i+n])
		}
		i += n
	}
	return out.String(), marks
}

// marked inverts bare for a part that begins at the byte at.
func (g *Guard) marked(part string, marks []int, at int) string {
	var out strings.Builder
	done := 0
	for _, m := range marks {
		c, n := utf8.DecodeRuneInString(part[m-at:])
		out.WriteString(part[done : m-at])
		out.WriteRune(FirstMark + rune(slices.Index(g.Alphabet, c)))
		done = m - at + n
	}
	out.WriteString(part[done:])
	return out.String()
}

// allows returns a function that reports whether a token may be found at a place of a part
// that begins at the byte at.
func (g *Guard) allows(marks []int, at int) func(id int32, begin, end int) bool {
	return func(id int32, begin, end int) bool {
		return g == nil || !g.tokens[id] || len(within(marks, begin+at, end+at)) == 0
	}
}

// within returns the marks from begin to end.
func within(marks []int, begin, end int) []int {
	from, _ := slices.BinarySearch(marks, begin)
	to, _ := slices.BinarySearch(marks, end)
	return marks[from:to]
}
