// Package dialog turns dialogs into tokens and sampled tokens back into messages.
//
// A dialog has the shape of an OpenAI chat: system, user, assistant and tool turns, and
// the tools that are offered. A [Codec] writes it in the tokens of one vocabulary. It
// decides where turns begin and end, how a tool call is written, and which sampled tokens
// are a tool call. A codec does not sample, keeps no history and knows no transport.
// [Compact] is the codec of the built-in model. A [Bundle], read from the directory of a
// published model, makes a codec of that model's own tokenizer and chat template.
//
// Guarantees: a dialog never has to be encoded twice. The tokens of Prompt, the sampled
// completion and Bridge, one after the other, are the next prompt, whatever was sampled.
// If the codec would have written the same completion itself, they also equal Prompt of
// the whole dialog, unless the chat template writes earlier turns differently later.
// Parse never returns a tool call whose arguments are not a JSON object; what is not a
// call stays text. Text that Partial has returned is never taken back. No text of a user,
// of a tool or of a tool's schema becomes a special token, or another token that the chat
// template writes.
package dialog
