package native

import (
	"slices"

	"github.com/fulgurite/fulgurite/model/engine/native/kvcache"
)

// Rows of a step are cut into units that threads take. All rows that a request has in one
// step lie in one unit, so a unit has room for the largest piece of a prompt that one
// step computes.
const (
	unitRows     = 32
	unitRowsWide = 128 // for a wide model, because each unit reads all its weights
	unitRowsLess = 8   // a unit is filled to at least so many
)

func (l *layout) unitRows() int {
	if l.wide() {
		return unitRowsWide
	}
	return unitRows
}

// unit is a part of a step: some requests, with rows in all.
type unit struct {
	requests []*request
	rows     int
}

// batch holds the requests that run and the memory they share.
type batch struct {
	*pass
	threadPool *threadPool
	capacity   int
	running    []*request
	pages      *kvcache.Pages
	kept       *kvcache.Kept
	alone      bool      // requests share nothing
	computed   int       // positions computed so far
	workers    []*worker // one for each thread
	units      []unit
	decode     func(worker, i int) // a method value, made once because that allocates
}

func newBatch(p *pass, threads, capacity int) *batch {
	b := &batch{pass: p, threadPool: newThreadPool(threads, p.wide()), capacity: capacity, pages: &kvcache.Pages{Shape: p.pageShape()}}
	b.kept = newKept(b.pages)
	if p.wide() {
		p.split = b.threadPool
	}
	b.workers = newWorkers(p, threads)
	b.decode = func(worker, i int) { b.workers[worker].run(&b.units[i]) }
	return b
}

// step advances each running request by one token, or by a piece of its prompt.
func (b *batch) step() {
	b.plan()
	if b.split == nil {
		b.threadPool.run(len(b.units), b.decode)
	} else {
		for i := range b.units {
			b.decode(0, i)
		}
	}
	b.remove()
}

// plan cuts the step into units and reserves what they need. No result depends on how it
// cuts.
func (b *batch) plan() {
	rows, longest := 0, 0
	for i, q := range b.running {
		if q.feed = 0; b.share(q, b.running[:i]) {
			continue
		}
		q.feed = min(q.remaining(), b.unitRows())
		q.pages = b.pages.Reserve(q.pages, q.cached+q.feed)
		rows += q.feed
		longest = max(longest, q.cached+q.feed)
	}
	b.computed += rows
	b.angles.reserve(longest)
	for _, worker := range b.workers {
		worker.reserve(longest)
	}
	share := (rows + b.threadPool.threads - 1) / b.threadPool.threads
	fill := min(max(unitRowsLess, (share+7)/8*8), unitRows)
	if b.split != nil {
		fill = b.unitRows()
	}
	b.units = b.units[:0]
	for _, q := range b.running {
		if q.feed == 0 {
			continue
		}
		if n := len(b.units); n > 0 && b.units[n-1].rows+q.feed <= fill {
			b.units[n-1].add(q)
			continue
		}
		if len(b.units) < cap(b.units) { // reuse the memory of an earlier unit
			b.units = b.units[:len(b.units)+1]
		} else {
			b.units = append(b.units, unit{requests: make([]*request, 0, b.unitRows())})
		}
		last := &b.units[len(b.units)-1]
		last.requests, last.rows = last.requests[:0], 0
		last.add(q)
	}
}

func (u *unit) add(q *request) {
	u.requests = append(u.requests, q)
	u.rows += q.feed
}

// free gives memory back when no request runs any more.
func (b *batch) free() {
	b.pass.free()
	b.kept.Clear()
	b.pages.Trim(0)
	for _, w := range b.workers {
		w.memory.free()
	}
}

// finish reports whether q has finished. If so, it gives up q's pages and answers q.
func (b *batch) finish(q *request) bool {
	if !q.Finished() {
		return false
	}
	b.keep(q)
	q.pages, q.leader = nil, nil
	q.End()
	return true
}

func (b *batch) dropAbandoned() {
	for _, q := range b.running {
		if q.IsAbandoned() {
			q.Err = errAbandoned
		}
	}
	b.remove()
}

// fail answers all running requests with err.
func (b *batch) fail(err error) {
	for _, q := range b.running {
		q.Err = err
	}
	b.running = slices.DeleteFunc(b.running, b.finish)
}
