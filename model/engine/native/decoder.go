package native

import (
	"time"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/engine/decode"
)

const (
	// idlePages is how many numbers the free pages of an idle decoder may hold: 64 MiB.
	idlePages = 16 << 20
	// keptIdle is for how long a decoder without requests keeps what it computed: the
	// next turns of its dialogs may be on the way.
	keptIdle = 10 * time.Second
)

var _ model.Scorer = (*decoder)(nil)

// decoder implements model.Decoder with continuous batching: one goroutine owns
// the batch and runs it step by step; requests join and leave between steps.
type decoder struct {
	*batch
	*decode.Front[*request]
}

func (e *Engine) newDecoder(c model.Checkpoint) (*decoder, error) {
	d, err := e.prepareDecoder(c)
	if err != nil {
		return nil, err
	}
	d.Own(d.own)
	return d, nil
}

// prepareDecoder returns a decoder whose goroutine has not started.
func (e *Engine) prepareDecoder(c model.Checkpoint) (*decoder, error) {
	p, err := e.newPass(c)
	if err != nil {
		return nil, err
	}
	return &decoder{newBatch(p, e.threads, e.maxBatch), decode.NewFront(p.Architecture, newRequest)}, nil
}

// own runs the batch until Close.
func (d *decoder) own() {
	defer d.free()
	defer d.threadPool.close()
	for {
		if len(d.running) == 0 {
			d.rest()
		}
		var closed bool
		n := len(d.running)
		if d.running, closed = d.Take(d.running, d.capacity-n); closed {
			d.fail(decode.ErrClosed)
			return
		}
		for _, q := range d.running[n:] {
			q.Join()
		}
		d.dropAbandoned()
		if len(d.running) > 0 {
			d.step()
		}
	}
}

// rest waits for requests. If none arrives within keptIdle, it drops what is kept of
// earlier ones.
func (d *decoder) rest() {
	d.kept.Shrink()
	d.pages.Trim(idlePages)
	if !d.kept.IsEmpty() {
		timer := time.NewTimer(keptIdle)
		defer timer.Stop()
		select {
		case <-d.Changed():
			return
		case <-timer.C:
		}
		d.kept.Clear()
		d.pages.Trim(idlePages)
	}
	<-d.Changed()
}
