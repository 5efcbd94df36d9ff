package native

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// spinRounds is how often a waiting thread checks before it sleeps. The parts of one
// layer follow each other within microseconds; to sleep and wake between them would take
// longer than some of the parts.
const spinRounds = 200

// threadPool is a fixed number of threads that share the parts of a job. Which thread
// computes which part is random; no result may depend on it.
type threadPool struct {
	threads int
	spins   int           // rounds of waiting before sleep; 0 where jobs are rare
	jobs    chan struct{} // one token wakes one goroutine
	done    sync.WaitGroup
	gone    sync.WaitGroup
	once    sync.Once

	tickets  atomic.Int64 // goroutines that the present job has room for
	asleep   atomic.Int64 // goroutines that wait for jobs, or are about to
	finished atomic.Int64 // goroutines that have left the present job

	next atomic.Int64
	n    int
	do   func(worker, part int)
}

// newThreadPool starts threads-1 goroutines; the caller of run is the last thread.
// Threads that spin wait a moment for the next job before they sleep.
func newThreadPool(threads int, spin bool) *threadPool {
	c := &threadPool{threads: threads, jobs: make(chan struct{}, threads)}
	if spin {
		c.spins = spinRounds
	}
	for worker := 1; worker < threads; worker++ {
		c.gone.Go(func() {
			for c.wait() {
				c.work(worker)
				c.finished.Add(1)
				c.done.Done()
			}
		})
	}
	return c
}

// run calls do for each part below n and returns when all calls have returned. worker is
// below threads, and no two calls at the same time have the same worker. run does not
// allocate. do must not call run.
func (c *threadPool) run(n int, do func(worker, part int)) {
	wake := int64(min(c.threads, n) - 1)
	if wake <= 0 {
		for part := range n {
			do(0, part)
		}
		return
	}
	c.next.Store(0)
	c.finished.Store(0)
	c.n, c.do = n, do
	c.done.Add(int(wake))
	c.tickets.Store(wake)
	for range wake {
		if !takeOne(&c.asleep) {
			break
		}
		c.jobs <- struct{}{}
	}
	c.work(0)
	// run does not wait for a thread that has not joined by now.
	late := c.tickets.Swap(0)
	c.done.Add(int(-late))
	c.spin(func() bool { return c.finished.Load() == wake-late })
	c.done.Wait()
}

// wait returns true when the goroutine has a place in a job, false when the pool is
// closed.
func (c *threadPool) wait() bool {
	for {
		if c.spin(func() bool { return takeOne(&c.tickets) }) {
			return true
		}
		c.asleep.Add(1)
		if takeOne(&c.tickets) { // a job began meanwhile
			if !takeOne(&c.asleep) {
				<-c.jobs // its token is on the way
			}
			return true
		}
		if _, open := <-c.jobs; !open {
			return false
		}
		if takeOne(&c.tickets) {
			return true
		}
	}
}

// spin calls ready until it returns true, for at most spins rounds, and reports whether
// it did.
func (c *threadPool) spin(ready func() bool) bool {
	for range c.spins {
		for range 32 {
			if ready() {
				return true
			}
		}
		runtime.Gosched() // other goroutines may need the processor more
	}
	return false
}

// takeOne decrements n and returns true, or returns false if n is 0.
func takeOne(n *atomic.Int64) bool {
	for {
		old := n.Load()
		if old <= 0 {
			return false
		}
		if n.CompareAndSwap(old, old-1) {
			return true
		}
	}
}

func (c *threadPool) work(worker int) {
	for {
		part := int(c.next.Add(1)) - 1
		if part >= c.n {
			return
		}
		c.do(worker, part)
	}
}

// close ends the goroutines and waits for them; a second call does nothing.
func (c *threadPool) close() {
	c.once.Do(func() { close(c.jobs) })
	c.gone.Wait()
}
