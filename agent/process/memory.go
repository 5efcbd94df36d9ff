package process

import (
	"os"
	"time"
)

// memoryEvery is how often a shim looks at what its agent has taken. In between an
// agent can take a tenth of a second's worth of fresh pages more than it may, some
// hundred MiB at the most.
const memoryEvery = 100 * time.Millisecond

// overMemory watches this process's descendants until none is left, and sends once
// how much resident memory they have when it is more than the limit. A limit of 0
// is none.
//
// A limit of the kernel's on each process (RLIMIT_DATA, RLIMIT_AS) would be exact
// and wrong: it counts what is reserved, and the runtimes that agents are written
// in reserve a multiple of what they use.
func overMemory(limit int64, empty <-chan struct{}) <-chan int64 {
	over := make(chan int64, 1)
	if limit <= 0 {
		return over
	}
	go func() {
		tick := time.NewTicker(memoryEvery)
		defer tick.Stop()
		for {
			select {
			case <-empty:
				return
			case <-tick.C:
			}
			// What processes share counts for each in the quick figure; only when
			// that is too much is the slow and just one asked for.
			if resident(os.Getpid(), residentSet) <= limit {
				continue
			}
			if taken := resident(os.Getpid(), proportionalSet); taken > limit {
				over <- taken
				return
			}
		}
	}()
	return over
}
