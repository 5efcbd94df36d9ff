package dialog

import (
	"slices"
	"unicode/utf8"

	"github.com/fulgurite/fulgurite/model/tokenizer"
)

// Partial implements Codec. It waits with what may be half a character, and, from
// the first token on that is no text, for the end: only then is it known whether
// what looks like a call is one, or content after all.
func (c compact) Partial(completion []int32, tools []Tool) string {
	if slices.Contains(completion, tokenizer.End) {
		reply, _ := c.Parse(completion, tools, func(int) string { return "" })
		return reply.Content
	}
	for i := range completion {
		if c.misplaced(completion[i:i+1]) != "" {
			return c.plain(completion[:i])
		}
	}
	return c.plain(completion[:len(completion)-c.half(completion)])
}

// half is how many tokens at the end of ids may still become a character.
func (c compact) half(ids []int32) int {
	end := c.vocabulary.Decode(ids[max(0, len(ids)-utf8.UTFMax):])
	for n := 1; n <= len(end); n++ {
		if b := end[len(end)-n:]; utf8.RuneStart(b[0]) {
			if utf8.FullRuneInString(b) {
				return 0
			}
			return n
		}
	}
	return 0
}
