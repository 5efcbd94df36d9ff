package upstream

import (
	"context"
	"fmt"

	"github.com/fulgurite/fulgurite/model"
)

// stopping follows a reply until a stop text ends it. A server looks for stop texts in
// everything that a model writes, and so cuts thoughts and calls in half. So the texts are
// not sent: the codec finds them in the content alone, as it does for the built-in sampler.
type stopping struct {
	constraint model.Constraint
	emit       func(token int32, logprob float32)
	leave      context.CancelFunc // ends the request
	so         model.Completion
	ended      bool
}

// sampleUntil samples at a server, up to a stop text of the request's form.
func (s *Sampler) sampleUntil(ctx context.Context, at *replica, name string, r model.DecodeRequest) (reply, error) {
	if r.Form == nil || len(r.Form.Stop) == 0 || s.options.Type == OpenAI {
		return s.protocol.sample(ctx, s, at, name, r)
	}
	if s.options.Constrain == nil {
		return reply{}, fmt.Errorf("%w: no stop texts are possible at this server", model.ErrForm)
	}
	constraint, err := s.options.Constrain(model.Form{Codec: r.Form.Codec, Tools: r.Form.Tools, Stop: r.Form.Stop, Bare: r.Form.Bare})
	if err != nil {
		return reply{}, fmt.Errorf("%w: codec %q: %w", model.ErrForm, r.Form.Codec, err)
	}
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	follow := &stopping{constraint: constraint, emit: r.Emit, leave: leave}
	form := *r.Form
	form.Stop = nil
	r.Form, r.Emit = &form, follow.take
	got, err := s.protocol.sample(ctx, s, at, name, r)
	if follow.ended {
		got.completion, err = follow.so, nil
		got.completion.Finish = "stop"
	}
	return got, err
}

// take takes the next token.
func (f *stopping) take(token int32, logprob float32) {
	if f.ended {
		return
	}
	f.so.Tokens, f.so.Logprobs = append(f.so.Tokens, token), append(f.so.Logprobs, logprob)
	if f.emit != nil {
		f.emit(token, logprob)
	}
	if f.constraint.Accept(token) {
		f.ended = true
		f.leave()
	}
}
