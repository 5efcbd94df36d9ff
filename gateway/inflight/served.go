package inflight

import (
	"context"
	"fmt"

	"github.com/fulgurite/fulgurite/gateway/conversation"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/trace"
)

// servedCalls are the calls for a request outside attempts. They are not recorded.
type servedCalls struct {
	*Maker
	request *conversation.Request
	version model.VersionID
	decode  model.DecodeRequest
	cancel  context.CancelFunc
}

// Served returns the calls of a version for a request. They are sampled as decode says
// and not recorded.
func (m *Maker) Served(r *conversation.Request, version model.VersionID, decode model.DecodeRequest) Calls {
	decode.Stop, decode.Form = r.Codec.Stop(), r.Form
	return &servedCalls{Maker: m, request: r, version: version, decode: decode}
}

func (h *servedCalls) Admit(ctx context.Context) ([]Slot, error) {
	ctx, h.cancel = context.WithCancel(ctx)
	slots := make([]Slot, h.request.N)
	for i := range slots {
		decode := h.decode
		decode.Seed += uint64(i)
		p := &pendingCall{
			history: conversation.History{Prompt: decode.Prompt}, stem: conversation.Stem(conversation.RandomNumber()),
			created: h.config.Now(), done: make(chan struct{}),
		}
		decode.Emit = p.feed.emitFor(h.request)
		slots[i] = Slot{pending: p, answersRequest: true, wait: GoSafely(func() {
			defer close(p.done)
			p.err = &conversation.Fault{Cause: fmt.Errorf("sampling %s was interrupted", h.version)} // remains if it panics
			p.call, p.err = h.sample(ctx, p, decode)
		})}
	}
	return slots, nil
}

func (h *servedCalls) sample(ctx context.Context, p *pendingCall, decode model.DecodeRequest) (*conversation.Call, error) {
	sampled, _, err := h.config.Sampler.Sample(ctx, h.version, decode)
	if err == nil {
		err = p.feed.check(sampled)
	}
	if err != nil {
		return nil, samplingError(err, h.version)
	}
	c := conversation.NewCall(&trace.Exchange{Call: trace.Call{
		ID: h.request.API.ReplyID(p.stem), API: conversation.RecordedAPI(h.request.API), Prompt: decode.Prompt, Completion: sampled.Tokens,
		Logprobs: sampled.Logprobs, Finish: sampled.Finish,
	}}, p.stem, h.request, p.created)
	c.Response, err = h.request.Response(c)
	return c, err
}

func (h *servedCalls) Release(slots []Slot, _ Delivery) {
	h.cancel()
	for _, s := range slots {
		s.wait()
	}
}
