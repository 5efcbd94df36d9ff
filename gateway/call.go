package gateway

import (
	"encoding/json"
	"time"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/trace"
	"github.com/fulgurite/fulgurite/wire"
)

// call is a sampled call: a recorded one of an attempt, or one that was served
// outside.
type call struct {
	id         string // whole, as in the reply
	stem       string // what its ids share
	api        wire.API
	seq        int
	key        string
	occurrence int
	exchange   string // the request that it answered first, or last if it was lost
	prompt     []int32
	completion []int32
	logprobs   []float32
	finish     string
	reading    // what it says, and stands for in dialogs
	created    time.Time
	response   []byte
	before     *call // the recorded call that its dialog goes on from

	// Requests of Responses name what they continue: what was asked, and the dialog
	// with the reply but without instructions.
	asked  *wire.Request
	said   []dialog.Message
	forgot bool // it can't be named any more

	writers   int  // requests that are being answered with it
	delivered bool // its response was written whole once, as far as known
}

// recollect makes a call of its record, and the question that it answered. With an
// error, the call is still good for all but to be continued.
func (a *attempt) recollect(r *trace.Exchange) (*call, *question, error) {
	c := &call{
		id: r.ID, stem: idOf(r.Seed), api: apiOf(r.API), seq: r.Seq, key: r.Key, occurrence: r.Occurrence, exchange: r.Exchange,
		prompt: r.Prompt, completion: r.Completion, logprobs: r.Logprobs, finish: r.Finish,
		created: createdOf(r.Response, r.Started), response: r.Response, delivered: true,
	}
	request, err := wire.Decode(c.api, r.Request)
	if err != nil {
		return c, nil, err
	}
	o, err := recordedOrder(a.codec, request, r.Form)
	if err != nil {
		return c, nil, err
	}
	q := &question{order: o, agent: r.Agent}
	if err := a.resume(q); err != nil {
		return c, nil, err
	}
	c.interpret(q)
	return c, q, nil
}

// interpret reads what the call says.
func (c *call) interpret(q *question) {
	c.reading = q.order.read(c.completion, c.stem)
	if c.api == wire.Responses {
		c.asked, c.said = q.order.request, append(q.uninstructed(), c.message)
		c.forgot = q.order.request.Forget
	}
}

// apiOf is the API of a recorded call; before there were others, it was Chat.
func apiOf(recorded string) wire.API {
	if recorded == "" {
		return wire.Chat
	}
	return wire.API(recorded)
}

// recordedAPI is apiOf the other way round.
func recordedAPI(api wire.API) string {
	if api == wire.Chat {
		return ""
	}
	return string(api)
}

// createdOf is when a reply says that it was made, or else if it does not say.
func createdOf(response []byte, otherwise time.Time) time.Time {
	var says struct {
		Created   float64 `json:"created"`
		CreatedAt float64 `json:"created_at"`
	}
	// A response is ours; one that can't be read says nothing.
	if err := json.Unmarshal(response, &says); err != nil || says.Created+says.CreatedAt == 0 {
		return otherwise
	}
	return time.Unix(int64(says.Created+says.CreatedAt), 0)
}

// reply is the reply of which the calls are the choices.
func (o *order) reply(calls ...*call) wire.Reply {
	head := o.head(calls[0].stem, calls[0].created, calls[0].prompt)
	for _, c := range calls {
		choice := wire.Choice{Message: c.message, Finish: wire.Stop, Cut: c.cut, Stopped: c.stopped, Tokens: o.spent(c.completion)}
		switch {
		case len(c.message.ToolCalls) > 0 && !c.cut:
			choice.Finish = wire.ToolCalls
		case c.finish == "length":
			choice.Finish = wire.Length
		}
		if o.request.Logprobs {
			choice.Logprobs = o.probable(c.completion[:o.length(c.completion)], c.logprobs)
		}
		head.Choices = append(head.Choices, choice)
	}
	if o.relayed() {
		head.PromptTokens = o.heard(calls[0].completion)
	}
	return head
}

// head is a reply without its choices.
func (o *order) head(stem string, created time.Time, prompt []int32) wire.Reply {
	r := wire.Reply{ID: stem, Created: created, Model: o.request.Model, PromptTokens: len(prompt)}
	if o.relayed() {
		r.PromptTokens = 0 // the server counts them, and says so at the end
	}
	return r
}

// probable are tokens with their log-probabilities, as clients see them.
func (o *order) probable(tokens []int32, logprobs []float32) []wire.Token {
	out := []wire.Token{}
	if relay, ok := o.codec.(dialog.Relay); ok {
		for _, p := range relay.Pieces(tokens, logprobs) {
			out = append(out, wire.Token{Text: p.Text, Logprob: p.Logprob, Bytes: []byte(p.Text)})
		}
		return out
	}
	for i, t := range tokens {
		out = append(out, o.token(t, logprobs[i]))
	}
	return out
}

func (o *order) token(t int32, logprob float32) wire.Token {
	token := wire.Token{Text: o.codec.Text([]int32{t}), Logprob: logprob}
	if speller, ok := o.codec.(dialog.Speller); ok {
		token.Bytes = speller.Bytes(t)
	}
	return token
}
