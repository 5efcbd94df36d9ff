// Package toolcall reads the formats in which published models call tools.
//
// A model was taught one format and knows no other. A [Format] separates the calls in a
// reply from the text before them, and makes the grammar that holds a reply to a call. It
// works on texts, not on tokens, and knows nothing of turns, templates or reasoning:
// package dialog does that.
//
// Guarantees: a call that a format returns names an offered tool, and its arguments are a
// JSON object. A reply that looks like a call but is not one has no calls at all: its
// content is the whole text, and the problem says what was wrong. The bytes that
// [Format.Certain] has counted stay the beginning of the content, however the reply
// continues. No text makes a format panic, or take more time than in proportion to the
// text's length.
package toolcall
