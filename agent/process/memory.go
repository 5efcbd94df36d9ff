package process

import (
	"os"
	"time"
)

// memoryEvery is how often a shim measures what its agent has taken. Between two looks an
// agent can exceed its limit by the pages that it fills in a tenth of a second, some
// hundred MiB at the most.
const memoryEvery = 100 * time.Millisecond

// overMemory watches this process's descendants until none is left. When their resident
// memory exceeds the limit, it sends the number of bytes once. A limit of 0 is no limit.
//
// A kernel limit on each process (RLIMIT_DATA, RLIMIT_AS) would be exact and wrong: it
// counts reserved memory, and the runtimes in which agents are written reserve a multiple
// of what they use.
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
			// The quick figure counts shared memory once for each process. Only if it is
			// too high does the slow and exact figure decide.
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
