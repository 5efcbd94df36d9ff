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
