package dialog

import (
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
	// Prompt renders messages up to the point where the assistant speaks.
	Prompt(messages []Message, tools []Tool) ([]int32, error)
	// Bridge renders what follows a sampled completion that ended with a stop
	// token: later messages, then the point where the assistant speaks again.
	// prompt + completion + bridge is the exact continued prompt.
	Bridge(later []Message, tools []Tool) ([]int32, error)
	// Demonstration renders a whole dialog; trained marks the tokens that the
	// assistant should learn to say, its stop tokens included.
	Demonstration(d Dialog) (tokens []int32, trained []bool, err error)
	// Stop lists the tokens that end a completion.
	Stop() []int32
	// Parse reads a completion. callID(k) gives the id of the k-th tool call. If
	// what looks like a tool call is not one, the reply is the raw text as content and
	// problem says why.
	Parse(completion []int32, tools []Tool, callID func(k int) string) (reply Message, problem string)
	// Partial returns the part of the reply's content that no later token changes, while
	// the completion is still being sampled: the content of Parse begins with it. A
	// longer completion never has less.
	Partial(completion []int32, tools []Tool) string
	// Constrain makes the constraint that holds a completion to a form; an error
	// that wraps ErrForm says what of the form is not supported.
	Constrain(form model.Form) (model.Constraint, error)
	// Encode gives the tokens of bare text, without turns.
	Encode(text string) []int32
	// Text shows tokens to a person, special tokens by name.
	Text(tokens []int32) string
}

// Cutter is a Codec whose replies may hold several tool calls where the request asks for
// one.
type Cutter interface {
	Codec
	// WholeCalls returns a completion that was cut off in one of its tool calls as it
	// would be if it had ended before that call. It is nil if no call comes before that
	// one.
	WholeCalls(completion []int32) []int32
}

// Speller is a Codec that knows the bytes of each token. Several tokens may form one
// character.
type Speller interface {
	Codec
	// Bytes returns the bytes of a token. The bytes of a special token are its name.
	Bytes(token int32) []byte
}

// ErrCodec is wrapped by the error of Named.
var ErrCodec = errors.New("unknown codec")

// Constrain makes the constraint of a form in the codec that it names.
func Constrain(form model.Form) (model.Constraint, error) {
	codec, err := Named(form.Codec)
	if err != nil {
		return nil, err
	}
	return codec.Constrain(form)
}

// Named returns a codec by its name in a spec: Compact or Messages. A codec of a
// published model needs its bundle, too.
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
