package inflight

import (
	"fmt"
	"runtime/debug"
)

// GoSafely runs f in a new goroutine. The caller has to call wait before its request
// ends. wait returns when f has returned. If f panicked, wait panics in the goroutine of
// the caller, where the server can handle it.
func GoSafely(f func()) (wait func()) {
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
