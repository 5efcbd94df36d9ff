package gateway

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/fulgurite/fulgurite/trace"
)

// earlier is what the attempts before this one sampled and this one has not
// asked for yet. A nil one is empty.
type earlier struct {
	calls map[string][]*trace.Exchange // by key, attempt after attempt; without their requests
	left  int
}

// recall reads what earlier attempts recorded. They are fenced, so once is
// enough. The caller holds mu.
func (a *attempt) recall(ctx context.Context, g *Gateway) error {
	if a.address.Attempt == 1 || g.config.NoReplay || a.earlier != nil {
		return nil
	}
	records, err := g.config.Journal.EarlierExchanges(ctx, a.address)
	if err != nil {
		return fmt.Errorf("read calls before %s: %w", a.address, err)
	}
	e := &earlier{calls: map[string][]*trace.Exchange{}}
	for i := range records {
		r := &records[i]
		if !a.alike(r) {
			continue
		}
		r.Request = nil
		e.calls[r.Key] = append(e.calls[r.Key], r)
		e.left++
	}
	a.earlier = e
	return nil
}

// alike reports whether the call was sampled under the attempt's own terms. The
// longest reply is in the key.
func (a *attempt) alike(r *trace.Exchange) bool {
	terms := a.begun.Terms
	return r.Policy == terms.Policy && r.Version == terms.Version && r.Temperature == terms.Temperature &&
		r.Seed == seedOf(terms.RunSeed, a.address.RolloutID, r.Key, r.Occurrence)
}

// find returns the call that an earlier attempt sampled, or nil.
func (e *earlier) find(key string, occurrence int) *trace.Exchange {
	if e == nil {
		return nil
	}
	for _, r := range e.calls[key] {
		if r.Occurrence == occurrence {
			return r
		}
	}
	return nil
}

// settle lets go of a call that this attempt has now.
func (e *earlier) settle(key string, occurrence int) {
	if e == nil {
		return
	}
	rest := slices.DeleteFunc(e.calls[key], func(r *trace.Exchange) bool { return r.Occurrence == occurrence })
	e.left -= len(e.calls[key]) - len(rest)
	if e.calls[key] = rest; len(rest) == 0 {
		delete(e.calls, key)
	}
}

// replay answers t with what an earlier attempt sampled: same id, same tokens,
// same bytes, now on record as a call of this attempt. The prompt is the recorded
// one, also where the request differs in what is ignored.
func (g *Gateway) replay(ctx context.Context, a *attempt, t *trip) {
	record := *t.source
	record.Address, record.ReplayedFrom, record.Request, record.Exchange = a.address, t.source.Attempt, t.body, t.exchange
	record.Started, record.Duration, record.Divergence = g.config.Now().UTC(), 0, nil
	var c *call
	err := error(fault(errors.New("replay of call " + record.ID + " was interrupted")))
	a.mu.Lock()
	defer func() {
		a.land(t.form.key, t.flight, c, err)
		a.mu.Unlock()
	}()
	if c, err = g.record(ctx, a, t, &record); t.committed {
		g.count.replayed.Add(1)
	}
}

// extended returns the Seq of the call that the prompt continues, the longest if
// it continues several, or -1.
func (a *attempt) extended(prompt []int32) int {
	longest, seq := 0, -1
	for _, c := range slices.Backward(a.calls) {
		if all := len(c.prompt) + len(c.completion); all > longest && c.begins(prompt) {
			longest, seq = all, c.seq
		}
	}
	return seq
}
