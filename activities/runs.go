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

// decodeSpec reads the resolved spec out of a run's row.
func decodeSpec(run record.Run) (spec.Spec, error) {
	s, err := spec.Stored(run.Spec)
	if err != nil {
		return s, invalid(fmt.Errorf("decode the spec of run %s: %w", run.Name, err))
	}
	return s, nil
}

// library remembers the immutable parts of runs, which every rollout reads:
// their spec and their tasks. The zero value is ready.
type library struct {
	mu    sync.Mutex // held for no longer than it takes to look
	runs  map[string]*entry
	order []string
}

// entry is one run in the library, or its place while somebody reads it.
type entry struct {
	reading turn
	volume  *volume // nil until it was read
}

// volume is one run in the library.
type volume struct {
	run   record.Run
	spec  spec.Spec
	tasks map[trace.Kind][]tasks.Task
}

// shelf is how many runs a library remembers.
const shelf = 16

// open returns the run's volume, reading it from the store the first time. Who waits
// for another's reading may give up, and waits for no other run's.
func (l *library) open(ctx context.Context, name string, runs Runs, blobs Blobs) (*volume, error) {
	e := l.entry(name)
	if err := e.reading.take(ctx); err != nil {
		return nil, fmt.Errorf("wait to read run %s: %w", name, err)
	}
	defer e.reading.give()
	if e.volume == nil {
		v, err := read(ctx, name, runs, blobs)
		if err != nil {
			return nil, err
		}
		e.volume = v
	}
	return e.volume, nil
}

// entry is that of a run; the oldest makes room for it.
func (l *library) entry(name string) *entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e, ok := l.runs[name]; ok {
		return e
	}
	if l.runs == nil {
		l.runs = map[string]*entry{}
	}
	l.runs[name] = &entry{}
	l.order = append(l.order, name)
	if len(l.order) > shelf {
		delete(l.runs, l.order[0])
		l.order = l.order[1:]
	}
	return l.runs[name]
}

// read reads a run from the store.
func read(ctx context.Context, name string, runs Runs, blobs Blobs) (*volume, error) {
	run, err := runs.Run(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("read run %s: %w", name, err)
	}
	v := &volume{run: run, tasks: map[trace.Kind][]tasks.Task{}}
	if v.spec, err = decodeSpec(run); err != nil {
		return nil, err
	}
	for kind, split := range run.Splits {
		data, err := blobs.Get(ctx, split.Digest)
		if err != nil {
			return nil, fmt.Errorf("read the %s tasks of run %s: %w", kind, name, err)
		}
		if v.tasks[kind], err = tasks.Decode(data); err != nil {
			return nil, fmt.Errorf("decode the %s tasks of run %s: %w", kind, name, err)
		}
	}
	return v, nil
}

// task is the task at index of the split that kind reads.
func (v *volume) task(kind trace.Kind, index int) (tasks.Task, error) {
	if kind == trace.Try || kind == trace.Reserve {
		kind = trace.Train
	}
	list := v.tasks[kind]
	if index < 0 || index >= len(list) {
		return tasks.Task{}, invalid(fmt.Errorf("task %d of the %s split of run %s: there are %d", index, kind, v.run.Name, len(list)))
	}
	return list[index], nil
}
