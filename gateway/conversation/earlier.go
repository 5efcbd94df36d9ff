package conversation

import (
	"context"
	"fmt"
	"slices"

	"github.com/fulgurite/fulgurite/trace"
)

// earlier holds the calls that previous attempts sampled and this one has not asked for
// yet. A nil earlier is empty.
type earlier struct {
	calls map[string][]*trace.Exchange // by key, attempt after attempt; without their requests
	left  int
	bytes int // memory that the calls take
}

// readEarlier reads the calls of earlier attempts. Those attempts are fenced, so reading
// once is enough. The caller holds the lock.
func (a *Attempt) readEarlier(ctx context.Context) error {
	if a.address.Attempt == 1 || a.config.NoReplay || a.earlier != nil {
		return nil
	}
	records, err := a.config.Journal.EarlierExchanges(ctx, a.address)
	if err != nil {
		return fmt.Errorf("read calls before %s: %w", a.address, err)
	}
	e := &earlier{calls: map[string][]*trace.Exchange{}}
	longest := map[*int32]int{} // the tokens counted for each array that prompts share
	for _, r := range records {
		if !a.alike(&r) {
			continue
		}
		r.Request = nil
		e.calls[r.Key] = append(e.calls[r.Key], &r)
		e.left++
		e.bytes += bytesOf(&r)
		if n := len(r.Prompt); n > 0 {
			e.bytes += 4 * max(0, n-longest[&r.Prompt[0]])
			longest[&r.Prompt[0]] = max(n, longest[&r.Prompt[0]])
		}
	}
	a.earlier = e
	a.weigh()
	return nil
}

// bytesOf returns the memory that an earlier call takes, without its prompt.
func bytesOf(r *trace.Exchange) int {
	return callWeight + 4*len(r.Completion) + 4*cap(r.Logprobs) + cap(r.Untrained) + cap(r.Form) + cap(r.Response)
}

// alike reports whether the call was sampled under terms equal to this attempt's. The
// limit on the reply's length is not compared, because it is part of the key.
func (a *Attempt) alike(r *trace.Exchange) bool {
	terms := a.begun.Terms
	return r.Policy == terms.Policy && r.Version == terms.Version && r.Temperature == terms.Temperature &&
		r.Seed == SeedOf(terms.RunSeed, a.address.RolloutID, r.Key, r.Occurrence)
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

// remove removes a call that this attempt has asked for.
func (e *earlier) remove(key string, occurrence int) {
	if e == nil {
		return
	}
	rest := slices.DeleteFunc(e.calls[key], func(r *trace.Exchange) bool {
		if r.Occurrence != occurrence {
			return false
		}
		e.bytes -= bytesOf(r)
		return true
	})
	e.left -= len(e.calls[key]) - len(rest)
	if e.calls[key] = rest; len(rest) == 0 {
		delete(e.calls, key)
	}
	if e.left == 0 {
		e.bytes = 0 // prompts share memory, which is counted until the last call is gone
	}
}

// Earlier returns the call that an earlier attempt sampled for the same request, or nil.
// The caller holds the lock.
func (a *Attempt) Earlier(key string, occurrence int) *trace.Exchange {
	return a.earlier.find(key, occurrence)
}
