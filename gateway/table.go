package gateway

import (
	"container/list"
	"sync"
	"time"

	"github.com/fulgurite/fulgurite/gateway/conversation"
	"github.com/fulgurite/fulgurite/trace"
)

// table holds the conversations in memory. It drops the least recently used ones when they
// are too many, take too much memory, or have been idle for long. It never drops one with
// a request in flight, because a second copy of it would count calls separately.
type table struct {
	limit  int
	memory int64 // the most bytes that conversations may take
	idle   time.Duration
	open   func(trace.Address) *conversation.Conversation

	mu      sync.Mutex
	entries map[trace.Address]*list.Element
	recent  *list.List // of *entry, most recently used in front
	weight  int64      // of all entries
}

type entry struct {
	conversation *conversation.Conversation
	users        int
	used         time.Time
	weight       int64 // as it was when a request last began or ended
}

func newTable(limit int, memory int64, idle time.Duration, open func(trace.Address) *conversation.Conversation) *table {
	return &table{limit: limit, memory: memory, idle: idle, open: open, entries: map[trace.Address]*list.Element{}, recent: list.New()}
}

// enter returns the conversation, which stays in memory until leave has been called as often
// as enter.
func (t *table) enter(address trace.Address, now time.Time) *conversation.Conversation {
	t.mu.Lock()
	defer t.mu.Unlock()
	e, ok := t.entries[address]
	if !ok {
		e = t.recent.PushFront(&entry{conversation: t.open(address)})
		t.entries[address] = e
	}
	p := e.Value.(*entry)
	p.users++
	p.used = now
	t.recent.MoveToFront(e)
	t.sweep(now)
	return p.conversation
}

// weigh makes room for a conversation that was read from the journal.
func (t *table) weigh(address trace.Address, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.update(t.entries[address].Value.(*entry))
	t.sweep(now)
}

func (t *table) update(p *entry) {
	t.weight -= p.weight
	p.weight = p.conversation.Weight()
	t.weight += p.weight
}

// leave ends what enter began. With forget, it drops the conversation if no request is in
// flight any more.
func (t *table) leave(address trace.Address, now time.Time, forget bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.entries[address]
	p := e.Value.(*entry)
	p.users--
	p.used = now
	t.update(p)
	if forget && p.users == 0 {
		t.drop(e)
	}
	t.sweep(now)
}

func (t *table) sweep(now time.Time) {
	for e := t.recent.Back(); e != nil; {
		p, before := e.Value.(*entry), e.Prev()
		if len(t.entries) <= t.limit && t.weight <= t.memory && now.Sub(p.used) <= t.idle {
			return
		}
		if p.users == 0 {
			t.drop(e)
		}
		e = before
	}
}

func (t *table) drop(e *list.Element) {
	p := e.Value.(*entry)
	t.weight -= p.weight
	delete(t.entries, p.conversation.Address())
	t.recent.Remove(e)
}
