package tokenizer

import "slices"

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
