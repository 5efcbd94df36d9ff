package dialog

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/fulgurite/fulgurite/dialog/schema"
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

// ErrForm is wrapped by errors about forms that a codec does not support.
var ErrForm = errors.New("unsupported form")

// constrain makes the constraint that holds a reply to a form. If the form masks, grammar
// is built over the tokens of v. The form's stop texts end a reply in its content.
// content returns, for each token of the reply, its bytes that are content.
func constrain(form model.Form, grammar func(*schema.Builder) (schema.Expression, error), v func() *schema.Vocabulary,
	content func(token int32) string) (model.Constraint, error) {
	var within model.Constraint
	if form.Masks() {
		b := schema.NewBuilder()
		e, err := grammar(b)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrForm, err)
		}
		within = schema.NewConstraint(b.Grammar(e), v())
		if len(form.Stop) == 0 {
			return within, nil
		}
	}
	return newEndings(form.Stop, within, content), nil
}

// replies returns the grammar of a form that masks: texts by the schema, calls, or either
// of them if the form has a schema and tools.
func replies(b *schema.Builder, form model.Form, calls func() (schema.Expression, error)) (schema.Expression, error) {
	var all []schema.Expression
	if !form.Call {
		text, err := b.Reply(form.Schema)
		if err != nil {
			return schema.Expression{}, fmt.Errorf("schema: %w", err)
		}
		all = append(all, text)
	}
	if form.Call || len(form.Tools) > 0 {
		call, err := calls()
		if err != nil {
			return schema.Expression{}, err
		}
		all = append(all, call)
	}
	return b.Choice(all...), nil
}

// endings ends a reply at the token with which one of the texts is complete.
type endings struct {
	texts []string
	bytes func(token int32) string
	// within is a further restriction of the reply; it may be nil.
	within model.Constraint
	// tail is the end of the reply, long enough for any of the texts to begin in it.
	tail string
	keep int
}

func newEndings(texts []string, within model.Constraint, bytes func(token int32) string) *endings {
	e := &endings{bytes: bytes, within: within}
	for _, t := range texts {
		if t != "" {
			e.texts, e.keep = append(e.texts, t), max(e.keep, len(t)-1)
		}
	}
	return e
}

// Allowed implements model.Constraint.
func (e *endings) Allowed(set model.TokenSet) bool { return e.within != nil && e.within.Allowed(set) }

// Accept implements model.Constraint.
func (e *endings) Accept(token int32) (done bool) {
	done = e.within != nil && e.within.Accept(token)
	e.tail += e.bytes(token)
	for _, t := range e.texts {
		done = done || strings.Contains(e.tail, t)
	}
	e.tail = e.tail[max(0, len(e.tail)-e.keep):]
	return done
}

// PromptEncoder is a Codec whose texts have special tokens, by the names that the model
// was published with. Text that people, tools and templates' variables bring into a dialog
// never becomes one; a prompt that a program renders itself is meant to.
type PromptEncoder interface {
	Codec
	// EncodePrompt returns the tokens of a whole prompt, as the model's own tokenizer
	// makes them: with special tokens where the text names them, and those that it puts
	// around every text; if the text begins with those, it gets them once. The error
	// wraps ErrPrompt.
	EncodePrompt(text string) ([]int32, error)
}

// ErrPrompt is wrapped when the tokens of a text are not known.
var ErrPrompt = errors.New("the tokens of this text are not known")
