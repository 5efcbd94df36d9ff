// Package cache keeps the last few values that were expensive to make.
//
// It has nothing to do with HTTP caching. A [Cache] holds values in memory. It makes each
// value once, even if several callers ask for it at the same time, and does not keep
// errors. A [Background] makes values in the background.
package cache

import (
	"context"
	"sync"
	"time"
)

// Cache keeps the last few values that were expensive to make. It makes a value once,
// while all callers wait for it. It does not keep errors.
type Cache[V any] struct {
	Most int // values that are kept

	mu    sync.Mutex
	order []string // the latest last
	made  map[string]*made[V]
}

// made is a value, once done is closed.
type made[V any] struct {
	done  chan struct{}
	value V
	err   error
}

// Of returns the value of a key. A caller that waits for another caller's value gives up
// when its ctx ends.
func (c *Cache[V]) Of(ctx context.Context, key string, create func(context.Context) (V, error)) (V, error) {
	c.mu.Lock()
	m, found := c.made[key]
	if !found {
		m = &made[V]{done: make(chan struct{})}
		if c.made == nil {
			c.made = map[string]*made[V]{}
		}
		c.made[key] = m
		c.order = append(c.order, key)
		if len(c.order) > c.Most {
			delete(c.made, c.order[0])
			c.order = c.order[1:]
		}
	}
	c.mu.Unlock()
	if !found {
		m.value, m.err = create(context.WithoutCancel(ctx)) // others may wait for it
		if m.err != nil {
			c.forget(key, m)
		}
		close(m.done)
		return m.value, m.err
	}
	select {
	case <-m.done:
		return m.value, m.err
	case <-ctx.Done():
		var none V
		return none, ctx.Err()
	}
}

func (c *Cache[V]) forget(key string, m *made[V]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.made[key] != m {
		return
	}
	delete(c.made, key)
	for i, k := range c.order {
		if k == key {
			c.order = append(c.order[:i:i], c.order[i+1:]...)
			return
		}
	}
}

// share limits the time that is spent on the value of a subject that still changes to
// 1/share of all time: after a value that took one second to make, the next one begins
// 100 seconds later.
const share = 100

// Background caches values that take long to make. They are made in the background, one at a
// time and once for each state of their subject; until then callers get the previous value.
type Background[V any] struct {
	Most int // values that are kept
	// Begin is asked before a value is made, and says no while everything ends. Done is
	// called afterwards.
	Begin func() bool
	Done  func()

	turn    sync.Mutex // held while a value is made
	mu      sync.Mutex // protects the fields below
	entries map[string]*entry[V]
	order   []string
}

// entry is the last value of a key.
type entry[V any] struct {
	state  string // for which it was begun
	making chan struct{}
	value  V
	known  bool
	err    error
	took   time.Duration
	made   time.Time
}

// Answer is the value that is known so far.
type Answer[V any] struct {
	Value V
	Known bool // false until one was made
	// Making says that a newer one is on its way.
	Making bool
	Err    error // why the last one could not be made
}

// Of returns the value of a key. It was made for this state or an earlier one. Of waits
// at most maxWait for a value that is being made. goesOn is true if the subject still
// changes; its value is then made less often than its state changes.
func (b *Background[V]) Of(ctx context.Context, key, state string, goesOn bool, maxWait time.Duration, create func() (V, error)) Answer[V] {
	b.mu.Lock()
	e := b.entry(key)
	due := e.state != state && (e.made.IsZero() || !goesOn || time.Since(e.made) > share*e.took)
	if due && e.making == nil && b.Begin() {
		e.making, e.state = make(chan struct{}), state
		go b.create(key, e, create)
	}
	making := e.making
	b.mu.Unlock()
	if making != nil {
		timer := time.NewTimer(maxWait)
		defer timer.Stop()
		select {
		case <-making:
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return Answer[V]{e.value, e.known, e.making != nil || !e.known && e.err == nil, e.err}
}

func (b *Background[V]) entry(key string) *entry[V] {
	e, ok := b.entries[key]
	if ok {
		return e
	}
	if b.entries == nil {
		b.entries = map[string]*entry[V]{}
	}
	e = &entry[V]{}
	b.entries[key] = e
	if b.order = append(b.order, key); len(b.order) > b.Most {
		delete(b.entries, b.order[0])
		b.order = b.order[1:]
	}
	return e
}

// create makes the value of a key, unless the key was dropped before its turn came.
func (b *Background[V]) create(key string, e *entry[V], create func() (V, error)) {
	defer b.Done()
	b.turn.Lock()
	defer b.turn.Unlock()
	began := time.Now()
	kept := b.kept(key, e)
	var value V
	var err error
	if kept {
		value, err = create()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	close(e.making)
	e.making, e.made, e.took, e.err = nil, time.Now(), time.Since(began), err
	if !kept || err != nil {
		e.state = "" // it is tried again
		return
	}
	e.value, e.known = value, true
}

// kept reports whether a key still has this entry.
func (b *Background[V]) kept(key string, e *entry[V]) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.entries[key] == e
}
