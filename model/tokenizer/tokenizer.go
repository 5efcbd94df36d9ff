package tokenizer

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
