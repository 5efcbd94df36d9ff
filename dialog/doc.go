// Package dialog turns dialogs into tokens and sampled tokens back into
// messages.
//
// A dialog has the shape of an OpenAI chat: system, user, assistant and tool
// turns, and tools on offer. A [Codec] lays it out in the tokens of one
// vocabulary, which decides where turns begin and end, how a tool call is
// spelled, and which sampled tokens are one. Codecs do not sample, keep no
// history and know no transport. [Compact] is the codec of the built-in model; a
// [Bundle], read from the directory of a published model, makes a codec of that
// model's own tokenizer and chat template.
//
// Guarantees: a dialog never has to be encoded twice. Prompt, the sampled completion and
// Bridge are the next prompt token by token, whatever was sampled, and where the
// completion is one that the codec would have written itself, that equals Prompt of the
// whole dialog, unless a chat template lays earlier turns out anew. Parse never yields a
// tool call whose arguments are not a JSON object; what is not a call stays text. What
// Partial has handed out is never taken back. No text of a user, a tool or a tool's
// schema becomes a special token.
package dialog
