// Package tokenizer turns text into the token ids of a policy's vocabulary and
// back.
//
// It knows nothing of roles, turns or templates: package dialog lays those out
// and writes the special tokens itself. [Bytes] is the vocabulary of the
// built-in model, small enough for a transformer that learns on a laptop; [BPE] is
// the vocabulary of a published model, read from its tokenizer.json: of bytes, or of
// characters with byte fallback. Both stand behind one interface, [Tokenizer].
// Vocabularies of other kinds (WordPiece, Unigram) are refused.
//
// Guarantees: any text can be encoded. Decoding gives the same bytes back, but for what a
// published tokenizer itself changes: its normalizer, the space that some put before a
// text, the character U+2581 that some write spaces with, and bytes for which the
// vocabulary has no token, which are left out. No text ever becomes a special token, so
// that what a user or a tool writes can't end a turn or speak in another role; only
// [BPE.EncodeSpecial] and [BPE.EncodeGuarded] make special tokens. And the ids of a BPE
// are those of the reference implementation, or there is an error that names the setting
// that is not known.
package tokenizer
