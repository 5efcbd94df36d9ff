package wire

import (
	"encoding/json"
	"fmt"
	"math"
	"unicode/utf8"

	"github.com/fulgurite/fulgurite/dialog"
)

// Encode returns the body of a whole reply. It refuses a reply that clients could not
// read, such as one with tool calls that have no id or name, or with arguments that are
// no JSON object.
func (r *Request) Encode(reply Reply) ([]byte, error) {
	if err := r.check(reply); err != nil {
		return nil, fmt.Errorf("encode reply %s: %w", r.API.ReplyID(reply.ID), err)
	}
	reply = r.onlyAsked(reply)
	switch r.API {
	case Completions:
		return marshal(r.completionsReply(reply)), nil
	case Responses:
		return marshal(r.response(reply, items(reply, false))), nil
	case Messages:
		return marshal(messagesReplyOf(reply)), nil
	}
	return marshal(r.chatReply(reply)), nil
}

// check returns an error if a reply is not what every API expects.
func (r *Request) check(reply Reply) error {
	if len(reply.Choices) != r.choices() {
		return fmt.Errorf("%d choices, want %d", len(reply.Choices), r.choices())
	}
	for _, c := range reply.Choices {
		if r.API == Completions && len(c.Message.ToolCalls) > 0 {
			return fmt.Errorf("a completion calls no tools")
		}
		for _, call := range c.Message.ToolCalls {
			switch {
			case call.ID == "" || call.Function.Name == "":
				return fmt.Errorf("tool call %q of %q: want an id and a name", call.ID, call.Function.Name)
			case !isObject([]byte(call.Function.Arguments)):
				return fmt.Errorf("tool call %s: the arguments are not a JSON object", call.ID)
			}
		}
	}
	return nil
}

// choices returns the number of replies to the request.
func (r *Request) choices() int { return max(r.N, 1) }

// onlyAsked returns the reply without the parts that the request did not ask for.
func (r *Request) onlyAsked(reply Reply) Reply {
	if reply.Model == "" {
		reply.Model = r.Model
	}
	choices := make([]Choice, len(reply.Choices))
	for i, c := range reply.Choices {
		if !r.Logprobs || r.API == Responses && !c.hasText() {
			c.Logprobs = nil
		}
		choices[i] = c
	}
	reply.Choices = choices
	return reply
}

// finish returns why a choice ended, as clients act on it: a choice with tool calls ended
// by them, unless one after them was cut off.
func (c Choice) finish() Finish {
	switch {
	case len(c.Message.ToolCalls) > 0 && !c.Cut:
		return ToolCalls
	case c.Finish == Length:
		return Length
	}
	return Stop
}

// tokens counts the sampled tokens of all choices.
func (r Reply) tokens() int {
	n := 0
	for _, c := range r.Choices {
		n += c.Tokens
	}
	return n
}

// openUsage is the count of tokens of Chat and Completions.
type openUsage struct {
	PromptTokens     int `json:"prompt_tokens"`
	CompletionTokens int `json:"completion_tokens"`
	TotalTokens      int `json:"total_tokens"`
}

func (r Reply) usage() openUsage {
	return openUsage{r.PromptTokens, r.tokens(), r.PromptTokens + r.tokens()}
}

// arguments returns the arguments of a call, as JSON.
func arguments(call dialog.ToolCall) json.RawMessage {
	return json.RawMessage(call.Function.Arguments)
}

// ReplyID returns the id of a reply as clients see it, made from the id that all its
// parts share.
func (api API) ReplyID(id string) string {
	switch api {
	case Completions:
		return "cmpl-" + id
	case Responses:
		return "resp_" + id
	case Messages:
		return "msg_" + id
	}
	return "chatcmpl-" + id
}

// The ids of a response's items.
func messageID(id string) string     { return "msg_" + id }
func reasoningID(id string) string   { return "rs_" + id }
func callID(id string, k int) string { return fmt.Sprintf("fc_%s_%d", id, k) }

// leastLogprob replaces log-probabilities that JSON can't express.
const leastLogprob = -9999

// openLogprob is a token's log-probability in Chat and Responses.
type openLogprob struct {
	Token   string        `json:"token"`
	Logprob float32       `json:"logprob"`
	Bytes   []int         `json:"bytes"`
	Top     []openLogprob `json:"top_logprobs"`
}

func openLogprobs(tokens []Token) []openLogprob {
	all := make([]openLogprob, len(tokens))
	for i, t := range tokens {
		all[i] = openLogprob{Token: t.Text, Logprob: t.logprob(), Top: []openLogprob{}}
		for _, b := range t.Bytes {
			all[i].Bytes = append(all[i].Bytes, int(b))
		}
	}
	return all
}

// logprob returns the token's log-probability, or leastLogprob if JSON can't express it.
func (t Token) logprob() float32 {
	if math.IsNaN(float64(t.Logprob)) || math.IsInf(float64(t.Logprob), 0) {
		return leastLogprob
	}
	return t.Logprob
}

// equal reports whether two tokens look the same to a client.
func (t Token) equal(u Token) bool {
	return t.Text == u.Text && t.logprob() == u.logprob() && string(t.Bytes) == string(u.Bytes)
}

// characters counts the characters that begin in the token.
func (t Token) characters() int {
	if t.Bytes == nil {
		return utf8.RuneCountInString(t.Text)
	}
	n := 0
	for _, b := range t.Bytes {
		if utf8.RuneStart(b) {
			n++
		}
	}
	return n
}

// textLogprobs are the log-probabilities of Completions. The only known
// alternative to a token is itself.
type textLogprobs struct {
	Tokens        []string             `json:"tokens"`
	TokenLogprobs []float32            `json:"token_logprobs"`
	TopLogprobs   []map[string]float32 `json:"top_logprobs"`
	TextOffset    []int                `json:"text_offset"`
}

// textLogprobsOf returns the log-probabilities of tokens whose text begins at character
// offset. It also returns the offset at which the next tokens begin.
func textLogprobsOf(tokens []Token, offset int) (*textLogprobs, int) {
	all := &textLogprobs{Tokens: []string{}, TokenLogprobs: []float32{}, TopLogprobs: []map[string]float32{}, TextOffset: []int{}}
	for _, t := range tokens {
		all.Tokens = append(all.Tokens, t.Text)
		all.TokenLogprobs = append(all.TokenLogprobs, t.logprob())
		all.TopLogprobs = append(all.TopLogprobs, map[string]float32{t.Text: t.logprob()})
		all.TextOffset = append(all.TextOffset, offset)
		offset += t.characters()
	}
	return all, offset
}
