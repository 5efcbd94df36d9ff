package conversation

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/wire"
)

// Reply returns the reply whose choices are the calls.
func (r *Request) Reply(calls ...*Call) wire.Reply {
	reply := r.head(calls[0].stem, calls[0].created, calls[0].Prompt)
	for _, c := range calls {
		choice := wire.Choice{Message: c.message, Finish: wire.Stop, Cut: c.cut, Stopped: c.stopped, Tokens: sampledTokens(r.Codec, c.Completion)}
		switch {
		case len(c.message.ToolCalls) > 0 && !c.cut:
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

// head returns a reply without its choices.
func (r *Request) head(stem string, created time.Time, prompt []int32) wire.Reply {
	head := wire.Reply{ID: stem, Created: created, Model: r.Model, PromptTokens: len(prompt)}
	if r.Relayed() {
		head.PromptTokens = 0 // the server counts them, and reports the number at the end
	}
	return head
}

// response returns the body of the reply of one call.
func (r *Request) response(c *Call) ([]byte, error) {
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
	speller, ok := r.Codec.(dialog.Speller)
	for i, t := range tokens {
		token := wire.Token{Text: r.Codec.Text([]int32{t}), Logprob: logprobs[i]}
		if ok {
			token.Bytes = speller.Bytes(t)
		}
		out = append(out, token)
	}
	return out
}

// content is a decoded completion.
type content struct {
	message dialog.Message
	stopped string // the stop text that ended it, which is not part of the message
	problem string // why text that looks like a tool call is not one
	cut     bool   // the tool calls are whole, but one after them was cut off
}

// parse decodes a completion; the ids of its tool calls share the stem. If the request
// wants at most one call, parse drops the calls after the first. They stay in the tokens:
// the policy sampled them, and continues from there.
func (r *Request) parse(completion []int32, stem string) content {
	var p content
	if r.bareText() {
		p.message = dialog.Message{Role: dialog.Assistant, Content: r.Codec.Text(completion[:r.Length(completion)])}
	} else {
		p.message, p.problem = r.Codec.Parse(completion, r.callable, toolCallIDs(stem))
		if p.problem != "" && r.Form != nil && r.Form.Call {
			p = r.withWholeCalls(p, completion, stem)
		}
	}
	if r.Serial && len(p.message.ToolCalls) > 1 {
		p.message.ToolCalls = p.message.ToolCalls[:1]
	}
	if at, stop := firstOf(p.message.Content, r.stops()); at >= 0 {
		p.message.Content, p.message.ToolCalls, p.stopped = p.message.Content[:at], nil, stop
	}
	return p
}

// withWholeCalls returns the result for a reply that had to call a tool and was cut off
// in one of several calls. The calls before that one are whole, and the agent need not
// lose them.
func (r *Request) withWholeCalls(p content, completion []int32, stem string) content {
	cutter, ok := r.Codec.(dialog.Cutter)
	if !ok {
		return p
	}
	whole := cutter.WholeCalls(completion)
	if whole == nil {
		return p
	}
	message, problem := r.Codec.Parse(whole, r.callable, toolCallIDs(stem))
	if problem != "" {
		return p
	}
	return content{message: message, problem: fmt.Sprintf("tool call %d cut off before its end", len(message.ToolCalls)), cut: !r.Serial}
}

// bareText reports whether all tokens of a reply are text, without structure.
func (r *Request) bareText() bool { return r.API == wire.Completions && !r.Relayed() }

// Length returns the number of tokens before the one that ended the completion.
func (r *Request) Length(completion []int32) int {
	stop := r.Codec.Stop()
	if n := slices.IndexFunc(completion, func(t int32) bool { return slices.Contains(stop, t) }); n >= 0 {
		return n
	}
	return len(completion)
}

// partial returns the text of an incomplete completion, as far as it is certain.
func (r *Request) partial(completion []int32) string { return r.Codec.Partial(completion, r.callable) }

// reasoning returns the reasoning in a completion before its text.
func (r *Request) reasoning(completion []int32) string {
	if r.API == wire.Completions {
		return ""
	}
	m, _ := r.Codec.Parse(completion, r.callable, toolCallIDs(""))
	return m.Reasoning
}

// firstOf returns the first stop text in text and where it begins. If several begin
// there, it returns the longest. If there is none, at is -1.
func firstOf(text string, stops []string) (at int, stop string) {
	at = -1
	for _, s := range stops {
		n := strings.Index(text, s)
		if n >= 0 && (at < 0 || n < at || n == at && len(s) > len(stop)) {
			at, stop = n, s
		}
	}
	return at, stop
}
