package fleet

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/engine/gomlx"
	"github.com/fulgurite/fulgurite/model/engine/native"
	"github.com/fulgurite/fulgurite/model/engine/torch"
	"github.com/fulgurite/fulgurite/model/sampler/serve"
	"github.com/fulgurite/fulgurite/spec"
)

// local samples in this process: one sampler for each engine. An engine with its own
// process is started when it is first asked for, and the trainer of this process uses the
// same one.
type local struct {
	records  Records
	resident int

	opening  sync.Mutex // held while an engine is started
	mu       sync.Mutex
	closed   bool
	samplers map[string]*serve.Sampler // by engine
}

func newLocal(r Records, resident int) *local {
	l := &local{records: r, resident: resident, samplers: map[string]*serve.Sampler{}}
	l.samplers[spec.EngineNative] = l.over(r.engine)
	return l
}

// over returns a sampler over an engine.
func (l *local) over(e model.Engine) *serve.Sampler {
	s := serve.New(e, l.records.Catalog, l.resident)
	s.Constrain = l.records.Codecs.Constrain
	return s
}

// sampler returns the sampler of an engine.
func (l *local) sampler(engine string) (*serve.Sampler, error) {
	if s, ok := l.opened(engine); ok {
		return s, nil
	}
	l.opening.Lock()
	defer l.opening.Unlock()
	if s, ok := l.opened(engine); ok {
		return s, nil
	}
	e, err := l.records.engines.open(engine, Engines)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, serve.ErrClosed
	}
	l.samplers[engine] = l.over(e)
	return l.samplers[engine], nil
}

func (l *local) opened(engine string) (*serve.Sampler, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s, ok := l.samplers[engine]
	return s, ok
}

// loaded returns the versions that are in memory, engine by engine, the last used first.
func (l *local) loaded() []model.VersionID {
	var out []model.VersionID
	for _, s := range l.all() {
		out = append(out, s.Loaded()...)
	}
	return out
}

// close ends all decoders; requests under way fail. Engines go on.
func (l *local) close() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	for _, s := range l.all() {
		s.Close()
	}
}

// all returns the samplers, in the order of their engines' names.
func (l *local) all() []*serve.Sampler {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []*serve.Sampler
	for _, name := range slices.Sorted(maps.Keys(l.samplers)) {
		out = append(out, l.samplers[name])
	}
	return out
}

// EngineNames returns the names of the engines that are compiled in.
func EngineNames() []string { return []string{"native", "gomlx", "torch"} }

// Engines opens an engine by its name in a spec. An engine with a method Close runs in
// its own process, which ends with this process at the latest.
func Engines(name string) (model.Engine, error) {
	switch name {
	case "native":
		return native.New(native.Options{}), nil
	case "gomlx":
		return gomlx.New(gomlx.Options{})
	case "torch":
		return openTorch()
	}
	return nil, fmt.Errorf("engine %q: there are %s", name, strings.Join(EngineNames(), ", "))
}

// openTorch keeps a nil pointer from becoming an engine.
func openTorch() (model.Engine, error) {
	e, err := torch.New(torch.Options{})
	if err != nil {
		return nil, err
	}
	return e, nil
}

// opened keeps the engines that have their own process, so that there is one of each.
type opened struct {
	mu      sync.Mutex
	engines map[string]model.Engine
}

// open returns the engine that was kept, or one that find opens.
func (o *opened) open(name string, find func(name string) (model.Engine, error)) (model.Engine, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if e, ok := o.engines[name]; ok {
		return e, nil
	}
	e, err := find(name)
	if _, ok := e.(interface{ Close() }); ok && err == nil {
		o.engines[name] = e
	}
	return e, err
}

// close ends the processes of all kept engines.
func (o *opened) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for name, e := range o.engines {
		e.(interface{ Close() }).Close() // or it would not have been kept
		delete(o.engines, name)
	}
}

// OnlyEngines returns a function like Engines, for a process that has only some of them.
func OnlyEngines(names []string) func(name string) (model.Engine, error) {
	return func(name string) (model.Engine, error) {
		if !slices.Contains(names, name) {
			return nil, fmt.Errorf("engine %q: this worker has %s", name, strings.Join(names, ", "))
		}
		return Engines(name)
	}
}
