package dialog

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/fulgurite/fulgurite/dialog/schema"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/tokenizer"
)

// mostCalls is how many tool calls a reply makes that is held to a form.
const mostCalls = 16

// Constrain implements Codec. Where a form masks, a character is allowed in one
// spelling, the one that Encode writes. A stop text ends a reply in its content,
// not in the arguments of a call.
func (c compact) Constrain(form model.Form) (model.Constraint, error) {
	var within model.Constraint
	if form.Masks() {
		g, err := c.grammar(form)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrForm, err)
		}
		within = schema.NewConstraint(g, c.canonical())
	}
	if within != nil && len(form.Stop) == 0 {
		return within, nil
	}
	calling := false
	return newEndings(form.Stop, within, func(token int32) string {
		if calling = calling || token == tokenizer.ToolCall; calling {
			return ""
		}
		return c.vocabulary.Decode([]int32{token})
	}), nil
}

// grammar is the replies of a form that masks: text, calls, or, where there is a
// schema for the text and calls may be made, either.
func (c compact) grammar(form model.Form) (*schema.Grammar, error) {
	b := schema.NewBuilder()
	var replies []schema.Expression
	if !form.Call {
		text, err := b.Reply(form.Schema)
		if err != nil {
			return nil, fmt.Errorf("schema: %w", err)
		}
		replies = append(replies, text)
	}
	if form.Call && len(form.Tools) == 0 {
		return nil, errors.New("a tool call without tools")
	}
	if len(form.Tools) > 0 {
		calls, err := c.calls(b, form)
		if err != nil {
			return nil, err
		}
		replies = append(replies, calls)
	}
	return b.Grammar(b.Sequence(b.Choice(replies...), b.Special(tokenizer.End))), nil
}

// calls is calls of the form's tools. Where no call is asked for, nobody was
// promised valid arguments: then a tool whose schema can't be held takes any.
func (c compact) calls(b *schema.Builder, form model.Form) (schema.Expression, error) {
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
	return b.Repeat(b.Choice(options...), 1, mostCalls), nil
}

// argument is what Parse reads as arguments that are valid by the tool's schema.
func (c compact) argument(b *schema.Builder, t model.FormTool) (schema.Expression, error) {
	if len(t.Parameters) == 0 || string(t.Parameters) == "null" {
		return b.Literal("{}"), nil
	}
	if p, ok := soleText(Tool{Name: t.Name, Parameters: t.Parameters}); ok {
		return b.Property(t.Parameters, p)
	}
	return b.Object(t.Parameters)
}

// canonical is the vocabulary in which each byte has one token.
func (c compact) canonical() *schema.Vocabulary {
	texts := make([][]byte, c.VocabSize())
	for b := range 256 {
		text := []byte{byte(b)}
		texts[c.vocabulary.Encode(string(text))[0]] = text
	}
	return schema.NewVocabulary(texts)
}
