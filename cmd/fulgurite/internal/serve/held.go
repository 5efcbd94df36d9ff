package serve

import (
	"context"
	"errors"
	"time"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/state"
	"github.com/fulgurite/fulgurite/internal/devserver"
	"github.com/fulgurite/fulgurite/workers/stack"
)

// checkEvery is how often the directory of a running stack is checked. A new stack on the
// same path takes longer than that to start.
const checkEvery = time.Second

// directory can be checked by WhileHeld. It is a stack or a Temporal server alone.
type directory interface{ CheckDirectory() error }

// WhileHeld returns a context that ends when ctx ends, or when the directory of d is
// removed or replaced. Lost then returns what happened. A process that went on would
// write into the files of its successor, and delete files that only the successor needs.
func WhileHeld(ctx context.Context, d directory) (_ context.Context, release func()) {
	held, cancel := context.WithCancelCause(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(checkEvery)
		defer tick.Stop()
		for {
			select {
			case <-held.Done():
				return
			case <-tick.C:
				if err := d.CheckDirectory(); errors.Is(err, devserver.ErrLost) {
					cancel(err)
				}
			}
		}
	}()
	return held, func() { cancel(nil); <-ended }
}

// Lost returns the error that wraps devserver.ErrLost and names the directory, if held
// has ended for that reason, and else nil.
func Lost(held context.Context) error {
	if err := context.Cause(held); errors.Is(err, devserver.ErrLost) {
		return err
	}
	return nil
}

// Close stops the stack of the directory and removes its addresses, unless the
// directory is another stack's by now.
func Close(s *state.Flags, st *stack.Stack) error {
	if st.CheckDirectory() == nil {
		s.RemoveAddresses()
	}
	return st.Close()
}
