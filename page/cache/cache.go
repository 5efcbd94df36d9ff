package cache

import (
	"context"
	"sync"
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
