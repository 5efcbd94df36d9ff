package upstream

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"slices"

	"github.com/fulgurite/fulgurite/dialog"
)

// openAIReply is a reply that is being translated into tokens of dialog.Messages.
type openAIReply struct {
	stops   []string
	speaker dialog.Speaker
	facts   dialog.Facts
	calls   []dialog.Function
}

func (o *openAIReply) addWhole(response *http.Response) error {
	var all json.RawMessage
	if err := readJSON(response, &all); err != nil {
		return err
	}
	return o.add(all)
}

// add takes one event of a stream, or a complete reply.
func (o *openAIReply) add(data []byte) error {
	var e openAIEvent
	if err := decodeObject(data, &e); err != nil {
		return err
	}
	if len(e.Error) > 0 && string(e.Error) != "null" {
		return fmt.Errorf("%w: %.300s", &refusal{http.StatusInternalServerError, string(e.Error)}, e.Error)
	}
	if e.ID != "" {
		o.facts.ID, o.facts.Model = e.ID, e.Model
	}
	if e.Usage != nil {
		o.facts.Usage = e.Usage
	}
	if len(e.Choices) == 0 {
		return nil // usage
	}
	c := e.Choices[0]
	for _, words := range []openAIWords{c.Message, c.Delta} {
		o.speaker.Think(text(words.Reasoning, words.Thinking))
		o.addText(text(words.Content, words.Refusal), c.Logprobs)
		if err := o.call(words.Calls); err != nil {
			return err
		}
	}
	o.addText(c.Text, c.Logprobs)
	if c.Finish != "" {
		o.facts.Finish = c.Finish
	}
	if stopped, ok := c.Stopped.(string); ok && slices.Contains(o.stops, stopped) {
		o.speaker.Say([]byte(stopped)) // the gateway removes it again, and so learns which one it was
	}
	return nil
}

// text returns the first of texts that is neither nil nor empty, or "".
func text(texts ...*string) string {
	for _, t := range texts {
		if t != nil && *t != "" {
			return *t
		}
	}
	return ""
}

// addText adds text, split into the server's tokens if these spell the text.
func (o *openAIReply) addText(text string, logprobs json.RawMessage) {
	tokens := openAITokens(logprobs)
	var spelled []byte
	for _, t := range tokens {
		spelled = append(spelled, t.text()...)
	}
	if !bytes.Equal(spelled, []byte(text)) {
		o.speaker.Say([]byte(text))
		return
	}
	for _, t := range tokens {
		o.speaker.SayToken(t.text(), float32(t.Logprob))
	}
}

// openAITokens reads log-probabilities in the form of chats or of completions. It returns
// nil for any other form.
func openAITokens(logprobs json.RawMessage) []openAIToken {
	var parsed struct {
		Content []openAIToken `json:"content"`
		Tokens  []string      `json:"tokens"`
		Values  []*float64    `json:"token_logprobs"`
	}
	if json.Unmarshal(logprobs, &parsed) != nil {
		return nil
	}
	if parsed.Content == nil && len(parsed.Tokens) == len(parsed.Values) {
		for i, t := range parsed.Tokens {
			if parsed.Values[i] == nil {
				return nil
			}
			parsed.Content = append(parsed.Content, openAIToken{Token: t, Logprob: *parsed.Values[i]})
		}
	}
	for _, t := range parsed.Content {
		if t.Logprob > 1e-3 || math.IsNaN(t.Logprob) || slices.ContainsFunc(t.Bytes, func(b int) bool { return b < 0 || b > math.MaxUint8 }) {
			return nil
		}
	}
	return parsed.Content
}

// call adds tool calls, or the parts that events add to them.
func (o *openAIReply) call(calls []openAIToolCall) error {
	for i, c := range calls {
		at := i
		if c.Index != nil {
			at = *c.Index
		}
		if at < 0 || at > len(o.calls) {
			return fmt.Errorf("%w: tool call %d after %d", ErrReply, at, len(o.calls))
		}
		if at == len(o.calls) {
			o.calls = append(o.calls, dialog.Function{})
		}
		o.calls[at].Name += c.Function.Name
		o.calls[at].Arguments += c.Function.Arguments
	}
	return nil
}

// end returns the reply once it is complete.
func (o *openAIReply) end() (reply, error) {
	if o.facts.Finish == "" {
		return reply{}, fmt.Errorf("%w: it does not say why it ended", ErrReply)
	}
	for _, c := range o.calls {
		o.speaker.Call(c)
	}
	return reply{completion: o.speaker.End(o.facts), relayed: true}, nil
}
