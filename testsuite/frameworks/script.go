package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/tokenizer"
)

// scriptWeights takes the place of the digest of weights.
var scriptWeights = strings.Repeat("5c", 32)

// script is a sampler that says what is written down for a prompt. Equal prompts
// get equal replies, as of any sampler.
type script struct {
	replies []reply
	// abort ends the walk: the gateway would take an error for a fault that passes,
	// and ask again.
	abort func(error)
	// before, if not nil, runs before each reply.
	before func()
	tokens tokenizer.Bytes
}

// Sample implements model.Sampler.
func (s *script) Sample(_ context.Context, _ model.VersionID, r model.DecodeRequest) (model.Completion, string, error) {
	if s.before != nil {
		s.before()
	}
	prompt := s.show(r.Prompt)
	for _, reply := range s.replies {
		if reply.answers(prompt) {
			c, err := s.complete(reply.Say, r)
			if err != nil {
				s.abort(err)
			}
			return c, scriptWeights, err
		}
	}
	err := fmt.Errorf("no reply is written down for the prompt %s", prompt)
	s.abort(err)
	return model.Completion{}, "", err
}

func (r reply) answers(prompt string) bool {
	for _, text := range r.To {
		if !strings.Contains(prompt, text) {
			return false
		}
	}
	return true
}

// show writes a prompt with special tokens by name.
func (s *script) show(prompt []int32) string { return dialog.Compact().Text(prompt) }

// complete returns text as a completion within the limits and the form of the request.
func (s *script) complete(text string, r model.DecodeRequest) (model.Completion, error) {
	c := model.Completion{Tokens: append(s.read(text), tokenizer.End), Finish: "stop"}
	if len(c.Tokens) > r.MaxTokens {
		c.Tokens, c.Finish = c.Tokens[:r.MaxTokens], "length"
	}
	if r.Form != nil {
		var err error
		if c.Forced, err = s.fits(c.Tokens, *r.Form); err != nil {
			return c, fmt.Errorf("the reply %q: %w", text, err)
		}
	}
	for i, token := range c.Tokens {
		logprob := -float32(i%7+1) / 8
		c.Logprobs = append(c.Logprobs, logprob)
		if r.Emit != nil {
			r.Emit(token, logprob)
		}
	}
	return c, nil
}

// fits follows tokens through a form and marks those that had no alternative.
func (s *script) fits(tokens []int32, form model.Form) ([]bool, error) {
	c, err := dialog.Constrain(form)
	if err != nil {
		return nil, err
	}
	forced := make([]bool, len(tokens))
	for i, token := range tokens {
		set := model.NewTokenSet(s.tokens.VocabSize())
		if c.Allowed(set) {
			if !set.Has(token) {
				return nil, fmt.Errorf("token %d, %q, does not fit the form that the request asks for", i, s.tokens.Name(token))
			}
			forced[i] = s.only(set)
		}
		c.Accept(token)
	}
	return forced, nil
}

func (s *script) only(set model.TokenSet) bool {
	n := 0
	for id := range int32(s.tokens.VocabSize()) {
		if set.Has(id) {
			n++
		}
	}
	return n == 1
}

// read turns text with special tokens by name into tokens.
func (s *script) read(text string) []int32 {
	var out []int32
	for text != "" {
		next, id := len(text), int32(-1)
		for special := range int32(s.tokens.VocabSize()) {
			if !s.tokens.Special(special) {
				break
			}
			if at := strings.Index(text, s.tokens.Name(special)); at >= 0 && at < next {
				next, id = at, special
			}
		}
		out = append(out, s.tokens.Encode(text[:next])...)
		text = text[next:]
		if id >= 0 {
			out = append(out, id)
			text = strings.TrimPrefix(text, s.tokens.Name(id))
		}
	}
	return out
}
