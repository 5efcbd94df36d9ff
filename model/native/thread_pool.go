package native

import (
	"sync"
	"sync/atomic"
)

// threadPool is a fixed number of threads that share the parts of a job. Which thread
// does which part is chance; no result may depend on it.
type threadPool struct {
	threads int
	jobs    chan struct{} // one token wakes one goroutine
	done    sync.WaitGroup
	gone    sync.WaitGroup
	once    sync.Once

	next atomic.Int64
	n    int
	do   func(worker, part int)
}

// newThreadPool starts threads-1 goroutines; the caller of run is the last thread.
func newThreadPool(threads int) *threadPool {
	c := &threadPool{threads: threads, jobs: make(chan struct{}, threads)}
	for worker := 1; worker < threads; worker++ {
		c.gone.Go(func() {
			for range c.jobs {
				c.work(worker)
				c.done.Done()
			}
		})
	}
	return c
}

// run calls do for each part below n and returns when all calls have. worker is
// below threads and no two calls at once have the same. It does not allocate.
func (c *threadPool) run(n int, do func(worker, part int)) {
	c.next.Store(0)
	c.n, c.do = n, do
	wake := min(c.threads, n) - 1
	if wake > 0 {
		c.done.Add(wake)
		for range wake {
			c.jobs <- struct{}{}
		}
	}
	c.work(0)
	c.done.Wait()
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
