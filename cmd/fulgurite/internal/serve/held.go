package serve

import (
	"context"
	"errors"
	"time"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/state"
	"github.com/fulgurite/fulgurite/internal/devserver"
	"github.com/fulgurite/fulgurite/internal/stack"
)

// checkEvery is how often the directory of a running stack is looked at. A new stack on
// the same path takes longer than that to come up.
const checkEvery = time.Second

// directory is checked by WhileHeld: a stack, or a server alone.
type directory interface{ CheckDirectory() error }

// WhileHeld is ctx until somebody removes or replaces the directory of d. Lost says then
// what happened. A process that went on would write into the files of its successor,
// and collect those that only the successor needs.
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

// Lost is devserver.ErrLost, with the directory, where that is why a context of
// WhileHeld has ended.
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
