package activities

import (
	"context"
	"fmt"
	"sync"

	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/tasks"
	"github.com/fulgurite/fulgurite/trace"
)

// readSpec reads a run and its resolved spec from the store.
func readSpec(ctx context.Context, runs Runs, name string) (record.Run, spec.Spec, error) {
	run, err := runs.Run(ctx, name)
	if err != nil {
		return run, spec.Spec{}, fmt.Errorf("read run %s: %w", name, err)
	}
	s, err := decodeSpec(run)
	return run, s, err
}

// decodeSpec reads the resolved spec out of a run's row.
func decodeSpec(run record.Run) (spec.Spec, error) {
	s, err := spec.Stored(run.Spec)
	if err != nil {
		return s, invalid(fmt.Errorf("decode the spec of run %s: %w", run.Name, err))
	}
	return s, nil
}

// runCache remembers the immutable parts of runs, which every rollout reads: their
// spec and their tasks. The zero value is ready.
type runCache struct {
	mu    sync.Mutex // held only to look up an entry
	runs  map[string]*cacheEntry
	order []string
}

// cacheEntry is one run in the cache. It exists while the run is being read, too.
type cacheEntry struct {
	lock lock
	run  *cachedRun // nil until it was read
}

// cachedRun is a run with its decoded spec and tasks.
type cachedRun struct {
	run   record.Run
	spec  spec.Spec
	tasks map[trace.Kind][]tasks.Task
}

// maxCachedRuns is how many runs a cache remembers.
const maxCachedRuns = 16

// get returns a run. The first call reads it from the store. A caller that waits while
// another one reads the run may give up, and no caller waits for another run.
func (c *runCache) get(ctx context.Context, name string, runs Runs, blobs Blobs) (*cachedRun, error) {
	e := c.entry(name)
	if err := e.lock.acquire(ctx); err != nil {
		return nil, fmt.Errorf("wait to read run %s: %w", name, err)
	}
	defer e.lock.release()
	if e.run == nil {
		r, err := readRun(ctx, name, runs, blobs)
		if err != nil {
			return nil, err
		}
		e.run = r
	}
	return e.run, nil
}

// entry returns the entry of a run. A new one may replace the oldest.
func (c *runCache) entry(name string) *cacheEntry {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.runs[name]; ok {
		return e
	}
	if c.runs == nil {
		c.runs = map[string]*cacheEntry{}
	}
	c.runs[name] = &cacheEntry{}
	c.order = append(c.order, name)
	if len(c.order) > maxCachedRuns {
		delete(c.runs, c.order[0])
		c.order = c.order[1:]
	}
	return c.runs[name]
}

// readRun reads a run from the store.
func readRun(ctx context.Context, name string, runs Runs, blobs Blobs) (*cachedRun, error) {
	run, s, err := readSpec(ctx, runs, name)
	if err != nil {
		return nil, err
	}
	r := &cachedRun{run: run, spec: s, tasks: map[trace.Kind][]tasks.Task{}}
	for kind, split := range run.Splits {
		data, err := blobs.Get(ctx, split.Digest)
		if err != nil {
			return nil, fmt.Errorf("read the %s tasks of run %s: %w", kind, name, err)
		}
		if r.tasks[kind], err = tasks.Decode(data); err != nil {
			return nil, fmt.Errorf("decode the %s tasks of run %s: %w", kind, name, err)
		}
	}
	return r, nil
}

// task returns the task at index of the split that kind reads.
func (r *cachedRun) task(kind trace.Kind, index int) (tasks.Task, error) {
	if kind == trace.Try || kind == trace.Reserve {
		kind = trace.Train
	}
	list := r.tasks[kind]
	if index < 0 || index >= len(list) {
		return tasks.Task{}, invalid(fmt.Errorf("task %d of the %s split of run %s: there are %d", index, kind, r.run.Name, len(list)))
	}
	return list[index], nil
}
