package dialog

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/fulgurite/fulgurite/dialog/schema"
	"github.com/fulgurite/fulgurite/dialog/toolcall"
	"github.com/fulgurite/fulgurite/model"
)

// Constrain implements Codec. A model that thinks may think before it says what
// the form asks for. A stop text ends a reply in its content, not in a thought or
// in a call.
func (c *template) Constrain(form model.Form) (model.Constraint, error) {
	var within model.Constraint
	if form.Masks() {
		g, err := c.grammar(form)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrForm, err)
		}
		within = schema.NewConstraint(g, c.held())
	}
	if within != nil && len(form.Stop) == 0 {
		return within, nil
	}
	return newEndings(form.Stop, within, c.contentBytes(len(form.Tools) > 0)), nil
}

// grammar is the replies of a form that masks: text by the schema or a call of a
// tool, or, where there is a schema and calls may be made, either; then the token
// that ends a turn.
func (c *template) grammar(form model.Form) (*schema.Grammar, error) {
	b := schema.NewBuilder()
	var replies []schema.Expression
	if !form.Call {
		text, err := b.Reply(form.Schema)
		if err != nil {
			return nil, fmt.Errorf("schema: %w", err)
		}
		replies = append(replies, text)
	}
	if form.Call || len(form.Tools) > 0 {
		call, err := c.callGrammar(b, form.Tools)
		if err != nil {
			return nil, err
		}
		replies = append(replies, call)
	}
	said, err := c.afterThought(b, b.Choice(replies...))
	if err != nil {
		return nil, err
	}
	return b.Grammar(b.Sequence(said, b.Special(c.stop[0]))), nil
}

func (c *template) callGrammar(b *schema.Builder, offered []model.FormTool) (schema.Expression, error) {
	if c.format == nil {
		return schema.Expression{}, errors.New("the chat template shows no known format of tool calls: set model.tool_parser")
	}
	tools := make([]toolcall.Tool, len(offered))
	for i, t := range offered {
		tools[i] = toolcall.Tool{Name: t.Name, Parameters: t.Parameters}
	}
	return c.format.Grammar(b, tools, func(text string) schema.Expression { return c.mark(b, text) })
}

// mark is a text that may be a token of its own.
func (c *template) mark(b *schema.Builder, text string) schema.Expression {
	if id, ok := c.vocabulary.ID(text); ok {
		return b.Special(id)
	}
	return b.Literal(text)
}

// afterThought lets a thought come before what is said, if the template knows
// thoughts. No thought has "</" in it, so that none ends before its end.
func (c *template) afterThought(b *schema.Builder, said schema.Expression) (schema.Expression, error) {
	if !c.thinks {
		return said, nil
	}
	thought, err := b.Property(json.RawMessage(
		`{"type":"object","properties":{"thought":{"type":"string","pattern":"^(?:[^<]|<+[^/<])*<*$"}},"required":["thought"]}`), "thought")
	if err != nil {
		return schema.Expression{}, err
	}
	thinking := b.Sequence(thought, c.mark(b, closeThought), b.Literal("\n\n"), said)
	if c.opened {
		return thinking, nil
	}
	return b.Choice(said, b.Sequence(c.mark(b, openThought), thinking)), nil
}

// constrained is the vocabulary as constraints see it. Added tokens have no bytes
// in it: only where a grammar names them may they come.
func (c *template) constrained() *schema.Vocabulary {
	texts := make([][]byte, c.size)
	for id := range texts {
		if !c.vocabulary.Added(int32(id)) {
			texts[id] = []byte(c.vocabulary.Bytes(int32(id)))
		}
	}
	return schema.NewVocabulary(texts)
}

// contentBytes follows a reply and gives of each token the bytes that are content.
func (c *template) contentBytes(tools bool) func(token int32) string {
	text, calling := "", false
	return func(token int32) string {
		piece := c.vocabulary.Bytes(token)
		if c.vocabulary.Special(token) {
			text += c.vocabulary.Name(token)
		}
		text += piece
		if calling || c.undecided(text) {
			return ""
		}
		_, rest, sound := c.thought(text)
		if !sound {
			return ""
		}
		// Where a call has begun, no letter more is certain to be content.
		if calling = tools && c.format != nil && c.format.Certain(rest+"x") < len(rest); calling {
			return ""
		}
		return piece[max(0, len(piece)-len(rest)):]
	}
}
