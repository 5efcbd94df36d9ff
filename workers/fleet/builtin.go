package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/engine/gomlx"
	"github.com/fulgurite/fulgurite/model/engine/native"
	"github.com/fulgurite/fulgurite/model/engine/torch"
	"github.com/fulgurite/fulgurite/model/sampler/remote"
	"github.com/fulgurite/fulgurite/model/sampler/serve"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
)

// Builtin is the built-in sampler: it samples each run with the engine that its spec
// names (sampling.engine). An engine with its own process is started when a run first
// needs it. The trainer of this process uses the same one.
type Builtin struct {
	records  Records
	resident int
	native   *serve.Sampler

	opening sync.Mutex // held while an engine is started
	mu      sync.Mutex
	closed  bool
	others  map[string]*serve.Sampler // by engine
	engines map[string]string         // by run
}

var _ remote.Sampler = (*Builtin)(nil)

// Sample implements model.Sampler.
func (b *Builtin) Sample(ctx context.Context, v model.VersionID, r model.DecodeRequest) (model.Completion, string, error) {
	s, err := b.samplerOf(ctx, v.Run)
	if err != nil {
		return model.Completion{}, "", fmt.Errorf("sample %s: %w", v, err)
	}
	return s.Sample(ctx, v, r)
}

// Publish loads a version, so that the first request for it does not wait.
func (b *Builtin) Publish(ctx context.Context, v model.VersionID) error {
	s, err := b.samplerOf(ctx, v.Run)
	if err != nil {
		return fmt.Errorf("publish %s: %w", v, err)
	}
	return s.Publish(ctx, v)
}

// Preload loads the newest version of each run that is under way and is sampled here, at
// most as many as stay in memory. A process that starts calls it, so that weights are
// read while the agents of the first calls still start.
func (b *Builtin) Preload(ctx context.Context) error {
	runs, err := b.records.Store.Runs(ctx)
	if err != nil {
		return err
	}
	var all []error
	left := b.resident
	for _, run := range runs {
		if run.Status != record.Running || left == 0 || ctx.Err() != nil {
			continue
		}
		v, ok, err := b.newest(ctx, run)
		if err == nil && ok {
			left--
			err = b.Publish(ctx, v)
		}
		all = append(all, err)
	}
	return errors.Join(all...)
}

// newest returns the newest version of a run, unless an external server samples it or it
// has no version with weights yet.
func (b *Builtin) newest(ctx context.Context, run record.Run) (v model.VersionID, ok bool, err error) {
	sp, err := spec.Stored(run.Spec)
	if err != nil || sp.Sampling.Server != nil {
		return v, false, err
	}
	last, err := b.records.Store.LastVersion(ctx, run.Name, model.DefaultPolicy)
	if errors.Is(err, record.ErrNotFound) {
		return v, false, nil
	}
	return last.VersionID, last.Collected.IsZero(), err
}

// Loaded returns the versions that are in memory, engine by engine, the last used first.
func (b *Builtin) Loaded() []model.VersionID {
	b.mu.Lock()
	all := []*serve.Sampler{b.native}
	for _, name := range slices.Sorted(maps.Keys(b.others)) {
		all = append(all, b.others[name])
	}
	b.mu.Unlock()
	var out []model.VersionID
	for _, s := range all {
		out = append(out, s.Loaded()...)
	}
	return out
}

// Close ends all decoders; requests under way fail. Engines go on.
func (b *Builtin) Close() {
	b.mu.Lock()
	b.closed = true
	all := []*serve.Sampler{b.native}
	for _, s := range b.others {
		all = append(all, s)
	}
	b.mu.Unlock()
	for _, s := range all {
		s.Close()
	}
}

// samplerOf returns the sampler of a run. A run's spec never changes, so it is read once.
func (b *Builtin) samplerOf(ctx context.Context, run string) (*serve.Sampler, error) {
	engine, err := b.engineOf(ctx, run)
	if err != nil {
		return nil, err
	}
	if engine == spec.EngineNative {
		return b.native, nil
	}
	b.opening.Lock()
	defer b.opening.Unlock()
	b.mu.Lock()
	s, ok := b.others[engine]
	b.mu.Unlock()
	if ok {
		return s, nil
	}
	e, err := b.records.engines.open(engine, Engines)
	if err != nil {
		return nil, fmt.Errorf("sampling.engine of run %s: %w", run, err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, serve.ErrClosed
	}
	s = b.records.sampler(e, b.resident)
	b.others[engine] = s
	return s, nil
}

// engineOf returns the name of the engine that samples a run.
func (b *Builtin) engineOf(ctx context.Context, run string) (string, error) {
	b.mu.Lock()
	engine, ok := b.engines[run]
	b.mu.Unlock()
	if ok {
		return engine, nil
	}
	on, err := b.records.Store.Run(ctx, run)
	if err != nil {
		return "", fmt.Errorf("read run %s: %w", run, err)
	}
	sp, err := spec.Stored(on.Spec)
	if err != nil {
		return "", fmt.Errorf("spec of run %s: %w", run, err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.engines[run] = cmp.Or(sp.Sampling.Engine, spec.EngineNative)
	return b.engines[run], nil
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
