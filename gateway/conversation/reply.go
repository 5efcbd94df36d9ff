package conversation

import (
	"fmt"
	"time"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/wire"
)

// Reply returns the reply whose choices are the calls.
func (r *Request) Reply(calls ...*Call) wire.Reply {
	reply := r.Head(calls[0].Stem, calls[0].Created, calls[0].Prompt)
	for _, c := range calls {
		choice := wire.Choice{Message: c.Message, Finish: wire.Stop, Cut: c.Cut, Stopped: c.Stopped, Tokens: sampledTokens(r.Codec, c.Completion)}
		switch {
		case len(c.Message.ToolCalls) > 0 && !c.Cut:
			choice.Finish = wire.ToolCalls
		case c.Finish == "length":
			choice.Finish = wire.Length
		}
		if r.Logprobs {
			choice.Logprobs = r.TokensOf(c.Completion[:r.Length(c.Completion)], c.Logprobs)
		}
		reply.Choices = append(reply.Choices, choice)
	}
	if r.Relayed() {
		reply.PromptTokens = r.relayedPrompt(calls[0].Completion)
	}
	return reply
}

// Head returns a reply without its choices.
func (r *Request) Head(stem string, created time.Time, prompt []int32) wire.Reply {
	head := wire.Reply{ID: stem, Created: created, Model: r.Model, PromptTokens: len(prompt)}
	if r.Relayed() {
		head.PromptTokens = 0 // the server counts them, and reports the number at the end
	}
	return head
}

// Response returns the body of the reply of one call.
func (r *Request) Response(c *Call) ([]byte, error) {
	one := *r.Request
	one.N = 1 // other choices are calls of their own
	body, err := one.Encode(r.Reply(c))
	if err != nil {
		return nil, &Fault{fmt.Errorf("encode reply %s: %w", c.ID, err)}
	}
	return body, nil
}

// TokensOf returns tokens with their log-probabilities, in the form that clients read.
func (r *Request) TokensOf(tokens []int32, logprobs []float32) []wire.Token {
	out := []wire.Token{}
	if relay, ok := r.Codec.(dialog.Relay); ok {
		for _, p := range relay.Pieces(tokens, logprobs) {
			out = append(out, wire.Token{Text: p.Text, Logprob: p.Logprob, Bytes: []byte(p.Text)})
		}
		return out
	}
	speller, spells := r.Codec.(dialog.Speller)
	for i, t := range tokens {
		token := wire.Token{Text: r.Codec.Text([]int32{t}), Logprob: logprobs[i]}
		if spells {
			token.Bytes = speller.Bytes(t)
		}
		out = append(out, token)
	}
	return out
}
