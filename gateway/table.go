package gateway

import (
	"container/list"
	"sync"
	"time"

	"github.com/fulgurite/fulgurite/trace"
)

// table holds the attempts in memory, the least recently used of which it drops
// when there are too many or when they have been idle for long. An attempt with
// a request inside is never dropped, since two copies of it would count apart.
type table struct {
	limit int
	idle  time.Duration

	mu     sync.Mutex
	places map[trace.Address]*list.Element
	recent *list.List // of *place, most recently used in front
}

type place struct {
	attempt *attempt
	users   int
	used    time.Time
}

func newTable(limit int, idle time.Duration) *table {
	return &table{limit: limit, idle: idle, places: map[trace.Address]*list.Element{}, recent: list.New()}
}

// enter returns the attempt, which stays until leave is called as often.
func (t *table) enter(address trace.Address, now time.Time) *attempt {
	t.mu.Lock()
	defer t.mu.Unlock()
	e, ok := t.places[address]
	if !ok {
		e = t.recent.PushFront(&place{attempt: &attempt{address: address}})
		t.places[address] = e
	}
	p := e.Value.(*place)
	p.users++
	p.used = now
	t.recent.MoveToFront(e)
	t.sweep(now)
	return p.attempt
}

// leave ends what enter began; forget drops the attempt once nobody is inside.
func (t *table) leave(address trace.Address, now time.Time, forget bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.places[address]
	p := e.Value.(*place)
	p.users--
	p.used = now
	if forget && p.users == 0 {
		t.drop(e)
	}
	t.sweep(now)
}

func (t *table) sweep(now time.Time) {
	for e := t.recent.Back(); e != nil; {
		p, before := e.Value.(*place), e.Prev()
		if len(t.places) <= t.limit && now.Sub(p.used) <= t.idle {
			return
		}
		if p.users == 0 {
			t.drop(e)
		}
		e = before
	}
}

func (t *table) drop(e *list.Element) {
	delete(t.places, e.Value.(*place).attempt.address)
	t.recent.Remove(e)
}
