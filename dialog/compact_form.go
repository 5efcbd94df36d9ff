package dialog

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/fulgurite/fulgurite/dialog/schema"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/tokenizer"
)

// maxCalls is the largest number of tool calls in a reply that is held to a form.
const maxCalls = 16

// Constrain implements Codec. A form that masks allows each character in one spelling
// only, the one that Encode writes. A stop text ends a reply in its content, not in the
// arguments of a call.
func (c compact) Constrain(form model.Form) (model.Constraint, error) {
	grammar := func(b *schema.Builder) (schema.Expression, error) {
		said, err := replies(b, form, func() (schema.Expression, error) { return c.calls(b, form) })
		return b.Sequence(said, b.Special(tokenizer.End)), err
	}
	calling := false
	return constrain(form, grammar, c.canonical, func(token int32) string {
		if calling = !form.Bare && (calling || token == tokenizer.ToolCall); calling {
			return ""
		}
		return c.vocabulary.Decode([]int32{token})
	})
}

// calls returns the grammar of calls of the form's tools. If a tool's schema is not
// supported and the form does not require a call, the tool takes any arguments: such a
// form does not promise valid ones.
func (c compact) calls(b *schema.Builder, form model.Form) (schema.Expression, error) {
	if len(form.Tools) == 0 {
		return schema.Expression{}, errors.New("a tool call without tools")
	}
	var options []schema.Expression
	for i, t := range form.Tools {
		argument, err := c.argument(b, t)
		if err != nil && !form.Call {
			t.Parameters = json.RawMessage(`{}`)
			argument, err = c.argument(b, t)
		}
		if err != nil {
			return schema.Expression{}, fmt.Errorf("parameters of tool %d, %q: %w", i, t.Name, err)
		}
		if len(form.Tools) > 1 {
			argument = b.Sequence(b.Literal(t.Name), b.Special(tokenizer.Argument), argument)
		}
		options = append(options, b.Sequence(b.Special(tokenizer.ToolCall), argument))
	}
	return b.Repeat(b.Choice(options...), 1, maxCalls), nil
}

// argument returns the grammar of the texts that Parse reads as arguments that are valid
// by the tool's schema.
func (c compact) argument(b *schema.Builder, t model.FormTool) (schema.Expression, error) {
	if len(t.Parameters) == 0 || string(t.Parameters) == "null" {
		return b.Literal("{}"), nil
	}
	if p, ok := soleText(Tool{Name: t.Name, Parameters: t.Parameters}); ok {
		return b.Property(t.Parameters, p)
	}
	return b.Object(t.Parameters)
}

// canonical returns the vocabulary in which each byte has one token.
func (c compact) canonical() *schema.Vocabulary {
	texts := make([][]byte, c.VocabSize())
	for b := range 256 {
		text := []byte{byte(b)}
		texts[c.vocabulary.Encode(string(text))[0]] = text
	}
	return schema.NewVocabulary(texts)
}
