package store

import (
	lru "container/list"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"

	"github.com/fulgurite/fulgurite/store/database"
	"github.com/fulgurite/fulgurite/trace"
)

// recentBytes bounds the bodies that a store keeps in memory.
const recentBytes = 64 << 20

// recent holds the most recently used bodies of calls, since the next call of an attempt
// is encoded against them. They are on record and never change.
type recent struct {
	mu    sync.Mutex
	bytes int
	order lru.List // of recentBodies, the latest in front
	at    map[callKey]*lru.Element
}

type callKey struct {
	address trace.Address
	seq     int
}

type recentBodies struct {
	callKey
	*bodies
}

func (r *recent) get(a trace.Address, seq int) *bodies {
	r.mu.Lock()
	defer r.mu.Unlock()
	e, ok := r.at[callKey{a, seq}]
	if !ok {
		return nil
	}
	r.order.MoveToFront(e)
	return e.Value.(recentBodies).bodies
}

func (r *recent) put(a trace.Address, b *bodies) {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := callKey{a, b.seq}
	if _, ok := r.at[key]; ok {
		return
	}
	if r.at == nil {
		r.at = map[callKey]*lru.Element{}
	}
	r.at[key] = r.order.PushFront(recentBodies{key, b})
	for r.bytes += b.size(); r.bytes > recentBytes; {
		last := r.order.Back()
		gone := r.order.Remove(last).(recentBodies)
		delete(r.at, gone.callKey)
		r.bytes -= gone.size()
	}
}

// size returns about how many bytes of memory bodies take.
func (b *bodies) size() int { return len(b.request) + len(b.response) + deltaCost }

// bases returns the recorded calls against which the bodies of c may be encoded: its
// parent, or, if it has none, the calls just before it.
func (r *recent) bases(ctx context.Context, from database.Querier, c trace.Call) ([]*bodies, error) {
	first, last := c.Parent, c.Parent
	if c.Parent < 0 {
		first, last = max(0, c.Seq-neighbours), c.Seq-1
	}
	var out []*bodies
	for seq := first; seq <= last; seq++ {
		b, err := r.bodiesOf(ctx, from, c.Address, seq)
		switch {
		case err == nil:
			out = append(out, b)
		case !errors.Is(err, sql.ErrNoRows):
			return nil, fmt.Errorf("read bodies of call %d: %w", seq, err)
		}
	}
	return out, nil
}

// bodiesOf reads the bodies of one recorded call, which are kept in memory for its
// children.
func (r *recent) bodiesOf(ctx context.Context, from database.Querier, a trace.Address, seq int) (*bodies, error) {
	if b := r.get(a, seq); b != nil {
		return b, nil
	}
	rows, err := database.List(ctx, from, exchanges.Read, basesOf+exchanges.From("below")+matchingBases, append(attemptKey(a), seq)...)
	if err != nil {
		return nil, err
	}
	if len(rows) == 0 {
		return nil, sql.ErrNoRows
	}
	all, err := unpack(rows)
	if err != nil {
		return nil, err
	}
	r.put(a, all[seq])
	return all[seq], nil
}
