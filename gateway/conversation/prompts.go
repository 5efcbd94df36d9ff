package conversation

import (
	"errors"
	"fmt"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/prompts"
	"github.com/fulgurite/fulgurite/prompts/rewrite"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/wire"
)

// promptsOf returns the prompts that the terms of an attempt name.
func (m *Maker) promptsOf(terms record.Terms) (prompts.Set, error) {
	switch {
	case terms.Prompts == "":
		return prompts.Set{}, nil
	case m.config.Prompts == nil:
		return prompts.Set{}, errors.New("this gateway has no prompts")
	}
	set, err := m.config.Prompts(terms.Prompts)
	if err != nil {
		return set, err
	}
	if digest := set.Digest(); digest != terms.Prompts {
		return set, fmt.Errorf("read prompts %s: their digest is %s", terms.Prompts, digest)
	}
	return set, nil
}

// Prompt returns the text of a prompt of the attempt; see Begun. The error is a
// *prompts.NotFoundError.
func (c *Conversation) Prompt(name string) (string, error) { return c.served.Prompts().Text(name) }

// reading is what the policy reads of a request: the dialog and the tools, with the
// attempt's prompts in place of what they replace. It has as many turns as the request.
type reading struct {
	turns []dialog.Message
	tools []dialog.Tool
}

// reading returns what the policy reads. It depends only on the request and the terms, so
// every gateway reads the same. Tokens on record are continued whatever it returns for the
// turns that they cover.
func (c *Conversation) reading(r *Request, form canonicalRequest) (reading, error) {
	if c.served.Empty() {
		return reading{form.turns, r.Tools}, nil
	}
	out := rewrite.Apply(c.served, rewrite.Request{Agent: r.Agent, Model: r.Model, Messages: form.turns, Tools: r.Tools})
	for _, p := range out.Problems {
		if p.Kind == rewrite.Unknown {
			_, err := c.Prompt(p.Prompt)
			f := wire.Invalid(p.Place.String(), "%s: %s", p.Error(), err)
			f.Code = codeUnknownPrompt
			return reading{}, f
		}
	}
	return reading{out.Messages, out.Tools}, nil
}

// codeUnknownPrompt refuses a message that names a prompt which the attempt does not have.
const codeUnknownPrompt = "prompt_not_found"
