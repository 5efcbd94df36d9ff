package dialog

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/fulgurite/fulgurite/model"
)

// Codec turns dialogs into tokens of one vocabulary and sampled tokens back into
// a message. It has no state; sampled tokens are never encoded again from text.
type Codec interface {
	// Name is the codec's name in a spec, for example "compact".
	Name() string
	VocabSize() int
	// Prompt renders messages up to the point where the assistant's reply begins.
	Prompt(messages []Message, tools []Tool) ([]int32, error)
	// Bridge renders what follows a sampled completion that ended with a stop token:
	// later messages, then the beginning of the assistant's next turn. prompt +
	// completion + bridge is the exact continued prompt.
	Bridge(later []Message, tools []Tool) ([]int32, error)
	// Demonstration renders a whole dialog. trained marks the tokens that the assistant
	// should learn to write, including its stop tokens.
	Demonstration(d Dialog) (tokens []int32, trained []bool, err error)
	// Stop lists the tokens that end a completion.
	Stop() []int32
	// Parse reads a completion. callID(k) returns the id of the k-th tool call. If
	// something looks like a tool call but is not one, the reply is the raw text as
	// content, and problem says why.
	Parse(completion []int32, tools []Tool, callID func(k int) string) (reply Message, problem string)
	// Partial returns the beginning of the reply's content that later tokens can't
	// change, while the completion is still being sampled: the content that Parse returns
	// at the end begins with it. A longer completion never gives a shorter part.
	Partial(completion []int32, tools []Tool) string
	// Constrain makes the constraint that holds a completion to a form. If the form is
	// not supported, the error wraps ErrForm and says which part of it is not.
	Constrain(form model.Form) (model.Constraint, error)
	// Encode returns the tokens of bare text, without turns.
	Encode(text string) []int32
	// Text returns tokens as readable text, with special tokens by name.
	Text(tokens []int32) string
}

// Cutter is a Codec that can cut a reply after its last complete tool call. It serves
// requests that ask for one tool call, where a reply may hold several.
type Cutter interface {
	Codec
	// WholeCalls takes a completion that was cut off inside a tool call, and returns it
	// as it would be if it had ended before that call. It returns nil if there is no call
	// before that one.
	WholeCalls(completion []int32) []int32
}

// Speller is a Codec that knows the bytes of each token. Several tokens may form one
// character.
type Speller interface {
	Codec
	// Bytes returns the bytes of a token. The bytes of a special token are its name.
	Bytes(token int32) []byte
}

// Sparse is a Codec of a published model, whose embedding may have rows without a token.
type Sparse interface {
	Codec
	// Unused returns the ids below vocab that have no token. A model must never sample
	// them: they have no text.
	Unused(vocab int) model.TokenRanges
	// Rowless returns the number of tokens that have no row in the model's embedding.
	Rowless() int
	// CallTokens returns the tokens that calls of the codec's tool format are marked with.
	CallTokens() []int32
	// TokenID returns the id of the token with a text, or of the token whose id the text
	// is in decimal, and whether the model can write such a token.
	TokenID(text string) (id int32, ok bool)
	// ToolFormat returns the name of that format, and "" if the codec reads no calls.
	ToolFormat() string
}

// Variables is a Codec with a template that reads variables.
type Variables interface {
	Codec
	// Variable returns the value of a variable as JSON, nil if it has none, and whether
	// the template reads it.
	Variable(name string) (value json.RawMessage, used bool)
}

// ErrCodec is wrapped by the error of Named.
var ErrCodec = errors.New("unknown codec")

// Constrain makes the constraint of a form with the codec that the form names.
func Constrain(form model.Form) (model.Constraint, error) {
	codec, err := Named(form.Codec)
	if err != nil {
		return nil, err
	}
	return codec.Constrain(form)
}

// Named returns the codec that a spec names: Compact or Messages. The codec of a
// published model can't be made from its name alone; it needs its bundle.
func Named(name string) (Codec, error) {
	switch {
	case name == CompactName:
		return Compact(), nil
	case name == MessagesName:
		return Messages(), nil
	case strings.HasPrefix(name, TemplatePrefix):
		return nil, fmt.Errorf("%w %q: it is made of the bundle that was stored under this digest", ErrCodec, name)
	}
	return nil, fmt.Errorf("%w %q: want %q or %q", ErrCodec, name, CompactName, MessagesName)
}
