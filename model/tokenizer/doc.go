// Package tokenizer turns text into the token ids of a policy's vocabulary and
// back.
//
// It knows nothing of roles, turns or templates: package dialog lays those out
// and writes the special tokens itself. [Bytes] is the vocabulary of the
// built-in model, small enough for a transformer that learns on a laptop; other
// vocabularies stand behind the same interface, [Tokenizer].
//
// One may rely on three things. Any text can be encoded, decoding gives the same
// bytes back, and no text ever becomes a special token, so that what a user or a
// tool writes can't end a turn or speak in another role.
package tokenizer
