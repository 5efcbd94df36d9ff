package fleet

import (
	"context"
	"errors"
)

// Closers stop what a process has started. The zero value is ready.
type Closers struct {
	list []func(context.Context) error // in the order to call
}

// OnClose registers f to run before everything registered earlier.
func (c *Closers) OnClose(f func(context.Context) error) {
	c.list = append([]func(context.Context) error{f}, c.list...)
}

// Background runs f until its turn to be closed, and then waits for it.
func (c *Closers) Background(f func(context.Context)) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		f(ctx)
	}()
	c.OnClose(func(context.Context) error {
		cancel()
		<-done
		return nil
	})
}

// Close runs everything registered, once.
func (c *Closers) Close(ctx context.Context) error {
	var all []error
	for _, f := range c.list {
		all = append(all, f(ctx))
	}
	c.list = nil
	return errors.Join(all...)
}
