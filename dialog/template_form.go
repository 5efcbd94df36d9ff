package dialog

import (
	"encoding/json"

	"github.com/fulgurite/fulgurite/dialog/schema"
	"github.com/fulgurite/fulgurite/dialog/toolcall"
	"github.com/fulgurite/fulgurite/model"
)

// Constrain implements Codec. A model that thinks may think before it writes the reply
// that the form describes. A stop text ends a reply in its content, not in a thought or
// in a call.
func (c *template) Constrain(form model.Form) (model.Constraint, error) {
	grammar := func(b *schema.Builder) (schema.Expression, error) {
		said, err := replies(b, form, func() (schema.Expression, error) { return c.callGrammar(b, form.Tools) })
		if err == nil {
			said, err = c.afterThought(b, said)
		}
		return b.Sequence(said, b.Special(c.stop[0])), err
	}
	content := c.contentBytes(len(form.Tools) > 0)
	if form.Bare {
		content = func(token int32) string { return string(c.Bytes(token)) }
	}
	return constrain(form, grammar, c.held, content)
}

func (c *template) callGrammar(b *schema.Builder, offered []model.FormTool) (schema.Expression, error) {
	if c.format == nil {
		return schema.Expression{}, errNoFormat
	}
	tools := make([]toolcall.Tool, len(offered))
	for i, t := range offered {
		tools[i] = toolcall.Tool(t)
	}
	return c.format.Grammar(b, tools, func(text string) schema.Expression { return c.mark(b, text) })
}

// mark returns the expression of a text that may be one token of the vocabulary.
func (c *template) mark(b *schema.Builder, text string) schema.Expression {
	if id, ok := c.vocabulary.ID(text); ok && c.samples(id) {
		return b.Special(id)
	}
	return b.Literal(text)
}

// afterThought allows reasoning before the form's reply, if the template knows reasoning.
// The reasoning may not contain "</", so that it can't end early.
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

// constrained returns the vocabulary as constraints see it. Added tokens have no bytes in
// it, so they are allowed only where a grammar names them.
func (c *template) constrained() *schema.Vocabulary {
	texts := make([][]byte, c.size)
	for id := range texts {
		if !c.vocabulary.Added(int32(id)) {
			texts[id] = []byte(c.vocabulary.Bytes(int32(id)))
		}
	}
	return schema.NewVocabulary(texts)
}

// contentBytes returns a function that takes the tokens of a reply in order and returns,
// for each token, its bytes that are content.
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
		// Once a call may have begun, it is no longer certain that the next letter is
		// content.
		if calling = tools && c.format != nil && c.format.Certain(rest+"x") < len(rest); calling {
			return ""
		}
		return piece[max(0, len(piece)-len(rest)):]
	}
}
