// Package tokenizer turns text into the token ids of a policy's vocabulary and
// back.
//
// It knows nothing of roles, turns or templates: package dialog lays those out
// and writes the special tokens itself. [Bytes] is the vocabulary of the
// built-in model, small enough for a transformer that learns on a laptop; [BPE] is
// the byte-level vocabulary of a published model, read from its tokenizer.json.
// Both stand behind one interface, [Tokenizer]. Vocabularies of other kinds
// (SentencePiece, WordPiece, Unigram) are refused.
//
// One may rely on four things. Any text can be encoded. Decoding gives the same
// bytes back, but for what a published tokenizer itself changes: its normalizer,
// and the space that some put before a text. No text ever becomes a special token,
// so that what a user or a tool writes can't end a turn or speak in another role;
// only [BPE.EncodeSpecial] and [BPE.EncodeGuarded] make special tokens. And the ids
// of a BPE are those of the reference implementation, or there is an error that
// names the setting that is not known.
package tokenizer
