package native

import (
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/fulgurite/fulgurite/model/engine/native/kernel"
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

// wideNumbers is the size above which a model is wide. In a wide model, the threads of a
// trainer or decoder share each product of one shard or unit; in a smaller one, each
// thread takes its own shards and units. A wide model's gradient and activations then
// exist once, and its weights are read once for all threads. The limit depends on the
// architecture alone, because the order in which gradients are added up does.
const wideNumbers = 1 << 25 / 3

func (l *layout) wide() bool { return l.size > wideNumbers }

// partsPerThread is how many parts a product is cut into for each thread, so that
// none waits long for another.
const partsPerThread = 4

// eachColumns cuts n columns into ranges of whole panels and runs do for each.
func (p *pass) eachColumns(n int, do func(worker, first, last int)) {
	step := p.panelsOfPart(n) * kernel.PanelWidth
	p.split.run((n+step-1)/step, func(worker, i int) { do(worker, i*step, min((i+1)*step, n)) })
}

func (p *pass) panelsOfPart(n int) int {
	panels := (n + kernel.PanelWidth - 1) / kernel.PanelWidth
	return max(1, panels/(partsPerThread*p.split.threads))
}

// eachRows cuts rows into ranges and runs do for each.
func (p *pass) eachRows(rows int, do func(worker, first, last int)) {
	step := max(1, (rows+2*p.split.threads-1)/(2*p.split.threads))
	p.split.run((rows+step-1)/step, func(worker, i int) { do(worker, i*step, min((i+1)*step, rows)) })
}

// linear sets out, rows × m.out, to the product of in, rows × m.in, with the weights of
// m. If add is true, it adds the product to out.
func (p *pass) linear(m matrix, out, in []float32, rows int, add bool) {
	if p.split == nil {
		p.MatMulPanels(out, m.out, in, m.in, p.panels.From(m.offset), rows, m.out, m.in, add)
		return
	}
	p.eachColumns(m.out, func(_, first, last int) {
		p.MatMulPanels(out[first:], m.out, in, m.in, p.panels.From(m.offset+first*m.in), rows, last-first, m.in, add)
	})
}

// norm computes Norm for rows of the stream, with the weights at offset.
func (p *pass) norm(offset int, h, x, inverse []float32, rows int) {
	w := p.vectorAt(offset, p.d)
	if p.split == nil {
		p.Norm(h, x, w, inverse, rows, p.HiddenSize, p.epsilon)
		return
	}
	p.eachRows(rows, func(_, first, last int) {
		p.Norm(h[first*p.d:], x[first*p.d:], w, inverse[first:], last-first, p.HiddenSize, p.epsilon)
	})
}

// activate computes SwiGLU for rows.
func (p *pass) activate(gateUp, act []float32, rows int) {
	if p.split == nil {
		p.SwiGLU(gateUp, act, rows, p.f)
		return
	}
	p.eachRows(rows, func(_, first, last int) {
		p.SwiGLU(gateUp[2*first*p.f:], act[first*p.f:], last-first, p.f)
	})
}

// activateBackward computes SwiGLUBackward for rows.
func (p *pass) activateBackward(gateUp, dact []float32, rows int) {
	if p.split == nil {
		p.SwiGLUBackward(gateUp, dact, rows, p.f)
		return
	}
	p.eachRows(rows, func(_, first, last int) {
		p.SwiGLUBackward(gateUp[2*first*p.f:], dact[first*p.f:], last-first, p.f)
	})
}
