package tokenizer

import (
	"cmp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

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
