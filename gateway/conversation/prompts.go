package conversation

import (
	"errors"
	"fmt"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/prompts"
	"github.com/fulgurite/fulgurite/prompts/rewrite"
	"github.com/fulgurite/fulgurite/wire"
)

// Prompts returns the prompts with a digest. That of none is empty.
func (m *Maker) Prompts(digest string) (prompts.Set, error) {
	switch {
	case digest == "":
		return prompts.Set{}, nil
	case m.config.Prompts == nil:
		return prompts.Set{}, errors.New("this gateway has no prompts")
	}
	set, err := m.config.Prompts(digest)
	if err != nil {
		return set, err
	}
	if got := set.Digest(); got != digest {
		return set, fmt.Errorf("read prompts %s: their digest is %s", digest, got)
	}
	return set, nil
}

// Prompt returns the text of a prompt of the attempt; see Begun. The error is a
// *prompts.NotFoundError.
func (c *Conversation) Prompt(name string) (string, error) { return c.served.Prompts().Text(name) }

// reading is what the policy reads of a request: the dialog and the tools, with prompts in
// place of what they replace. It has as many turns as the request.
type reading struct {
	turns    []dialog.Message
	tools    []dialog.Tool
	replaced int // texts that prompts replaced
}

// reading returns what the policy reads in an attempt. It depends only on the request and
// the terms, so every gateway reads the same. Tokens on record are continued whatever it
// returns for the turns that they cover.
func (c *Conversation) reading(r *Request, form canonicalRequest) (reading, error) {
	return r.reading(c.served, form.turns)
}

// reading returns what the policy reads of a request whose dialog has the turns.
func (r *Request) reading(set prompts.Set, turns []dialog.Message) (reading, error) {
	if set.Empty() {
		return reading{turns: turns, tools: r.Tools}, nil
	}
	out := rewrite.Apply(set, rewrite.Request{Agent: r.Agent, Model: r.Model, Messages: turns, Tools: r.Tools})
	for _, p := range out.Problems {
		if p.Kind == rewrite.Unknown {
			_, err := set.Prompts().Text(p.Prompt)
			f := wire.Invalid(p.Place.String(), "%s: %s", p.Error(), err)
			f.Code = codeUnknownPrompt
			return reading{}, f
		}
	}
	return reading{out.Messages, out.Tools, len(out.Replacements)}, nil
}

// codeUnknownPrompt refuses a message that names a prompt which does not exist.
const codeUnknownPrompt = "prompt_not_found"
