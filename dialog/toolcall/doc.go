// Package toolcall reads the spellings in which published models call tools.
//
// A model was taught one spelling and knows no other; a [Format] is one of them.
// It tells the calls in a reply from the text before them, and it makes the grammar
// that holds a reply to a call. It knows texts, not tokens, and nothing of turns,
// templates or reasoning: package dialog does that.
//
// Guarantees: a call that comes out names a tool on offer, and its arguments are a JSON
// object. A reply that looks like a call and is none has no calls at all; its content is
// the whole text, and the problem says what was wrong. What [Format.Certain] has let
// through stays the beginning of the content, however the reply goes on. No text makes a
// format panic or take more than time in proportion to its length.
package toolcall
