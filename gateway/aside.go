package gateway

import (
	"fmt"
	"runtime/debug"
)

// aside runs f in a goroutine of its own. Whoever calls wait has to, at the latest
// before the request ends: it returns when f has, and panics if f did, where the
// server can deal with it.
func aside(f func()) (wait func()) {
	done := make(chan struct{})
	var panicked any
	go func() {
		defer close(done)
		defer func() {
			if p := recover(); p != nil {
				panicked = fmt.Sprintf("%v\n%s", p, debug.Stack())
			}
		}()
		f()
	}()
	return func() {
		if <-done; panicked != nil {
			panic(panicked)
		}
	}
}
