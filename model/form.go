package model

import (
	"encoding/json"
	"errors"
	"math/bits"
)

// ErrForm is wrapped when a reply can't be held to a form: no constraint can be made from
// the form, or no token of the vocabulary may come next.
var ErrForm = errors.New("form can't be kept")

// Form describes the required shape of a reply as data, so that a sampler in another
// process can hold the reply to it and a trainer can rebuild the sampling distribution.
// Its zero value restricts nothing. Codec names the encoding of the reply's tokens.
type Form struct {
	Codec string `json:"codec"`
	// Schema is a JSON Schema that the reply's text satisfies; `{}` is any object.
	Schema json.RawMessage `json:"schema,omitempty"`
	// Tools are the callable tools. With Call the reply is a call of one of them, its
	// arguments valid by the tool's schema; without Call the reply is not restricted.
	Tools []FormTool `json:"tools,omitempty"`
	Call  bool       `json:"call,omitempty"`
	// Stop holds texts that end the reply, at the first token that completes one of them.
	Stop []string `json:"stop,omitempty"`
	// Bare says that all of the reply is text, in which there are neither thoughts nor
	// calls: a stop text ends it anywhere.
	Bare bool `json:"bare,omitempty"`
	// NoCall and Strict are for servers that take messages, render tools and parse calls
	// by themselves. NoCall: no tool may be called. Strict: the schema was requested as
	// strict.
	NoCall bool `json:"no_call,omitempty"`
	Strict bool `json:"strict,omitempty"`
}

// FormTool is a tool as a Form needs it.
type FormTool struct {
	Name       string          `json:"name"`
	Parameters json.RawMessage `json:"parameters,omitempty"` // JSON Schema
}

// Masks reports whether the form excludes tokens, rather than only ending the
// reply.
func (f *Form) Masks() bool { return f != nil && (len(f.Schema) > 0 || f.Call) }

// Constraint follows one reply token by token. It serves only that reply and is not safe
// for concurrent use.
type Constraint interface {
	// Allowed puts the tokens that may come next into set, which arrives empty, and
	// reports true; if any token may come, it reports false and leaves set alone.
	Allowed(set TokenSet) bool
	// Accept takes the next token of the reply. It reports true if the reply ends
	// with it.
	Accept(token int32) (done bool)
}

// Constrain makes the constraint of a form: dialog.Constrain, or nothing where
// forms are not supported.
type Constrain func(Form) (Constraint, error)

// TokenSet is a set of token ids, 64 to a word.
type TokenSet []uint64

// NewTokenSet returns an empty set for a vocabulary.
func NewTokenSet(vocab int) TokenSet { return make(TokenSet, (vocab+63)/64) }

// Add puts a token into the set.
func (s TokenSet) Add(token int32) { s[token>>6] |= 1 << (token & 63) }

// Has reports whether the token is in the set. It reports false for tokens beyond the
// vocabulary for which the set was made.
func (s TokenSet) Has(token int32) bool {
	word := int(token >> 6)
	return word < len(s) && s[word]&(1<<(token&63)) != 0
}

// AppendTokens appends to tokens the elements of the set below vocab, ascending.
func (s TokenSet) AppendTokens(tokens []int32, vocab int) []int32 {
	for i, word := range s {
		for ; word != 0; word &= word - 1 {
			token := 64*i + bits.TrailingZeros64(word)
			if token >= vocab {
				return tokens
			}
			tokens = append(tokens, int32(token))
		}
	}
	return tokens
}
