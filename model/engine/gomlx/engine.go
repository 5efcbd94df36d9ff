package gomlx

import (
	"cmp"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"

	"github.com/gomlx/compute"
	_ "github.com/gomlx/compute/gobackend" // registers the backend "go"

	"github.com/fulgurite/fulgurite/model"
)

const (
	backendName     = "go"
	defaultTokens   = 16384
	defaultCapacity = 64
)

// Options limits how much an engine computes at once. The zero value works everywhere.
type Options struct {
	// Tokens is the largest number of tokens, padding included, that one graph scores or
	// trains (16384). Memory grows with Tokens times the vocabulary; lower it if memory
	// is short. A longer row gets its own graph.
	Tokens int
	// Capacity is the largest number of completions that a decoder samples at once (64).
	Capacity int
}

// Engine implements model.Engine. It is safe for concurrent use and lives as
// long as its process; one per device is enough.
type Engine struct {
	backend compute.Backend
	options Options

	mu     sync.Mutex
	graphs map[model.Architecture]*graphs
}

var _ model.Engine = (*Engine)(nil)

// New opens the backend.
func New(o Options) (*Engine, error) {
	o.Tokens = cmp.Or(o.Tokens, defaultTokens)
	o.Capacity = cmp.Or(o.Capacity, defaultCapacity)
	if o.Tokens < 1 || o.Capacity < 1 {
		return nil, fmt.Errorf("open gomlx: tokens %d and capacity %d must be positive", o.Tokens, o.Capacity)
	}
	backend, err := open()
	if err != nil {
		return nil, fmt.Errorf("open gomlx backend %q: %w", backendName, err)
	}
	return &Engine{backend: backend, options: o, graphs: map[model.Architecture]*graphs{}}, nil
}

func open() (backend compute.Backend, err error) {
	defer caught(&err)
	return compute.NewWithConfig(backendName)
}

// caught turns a panic into an error. GoMLX reports errors of graph building by panics.
func caught(err *error) {
	switch p := recover().(type) {
	case nil:
	case runtime.Error:
		panic(p) // our own mistake, such as an index or a nil pointer
	case error:
		*err = p
	default:
		*err = fmt.Errorf("gomlx: %v", p)
	}
}

// Name implements model.Engine.
func (e *Engine) Name() string { return "gomlx" }

// Deterministic implements model.Engine.
func (e *Engine) Deterministic() bool { return false }

// Fingerprint implements model.Engine. It names what computed; equal fingerprints promise
// nothing.
func (e *Engine) Fingerprint() string {
	parts := []string{"gomlx", e.backend.Name(), runtime.GOOS + "/" + runtime.GOARCH, runtime.Version()}
	if build, ok := debug.ReadBuildInfo(); ok {
		for _, m := range build.Deps {
			if strings.HasPrefix(m.Path, "github.com/gomlx/") {
				parts = append(parts, strings.TrimPrefix(m.Path, "github.com/gomlx/")+"@"+m.Version)
			}
		}
	}
	return strings.Join(parts, " ")
}

// NewTrainer implements model.Engine.
func (e *Engine) NewTrainer(c model.Checkpoint) (model.Trainer, error) {
	if err := errors.Join(c.Architecture.CheckPolicy(), whole(c)); err != nil {
		return nil, fmt.Errorf("new trainer: %w", err)
	}
	t, err := e.newTrainer(c)
	if err != nil {
		return nil, fmt.Errorf("new trainer: %w", err)
	}
	return t, nil
}

// NewCritic implements model.Engine.
func (e *Engine) NewCritic(c model.Checkpoint) (model.Critic, error) {
	if err := errors.Join(c.Architecture.CheckCritic(), whole(c)); err != nil {
		return nil, fmt.Errorf("new critic: %w", err)
	}
	t, err := e.newTrainer(c)
	if err != nil {
		return nil, fmt.Errorf("new critic: %w", err)
	}
	return critic{t}, nil
}

func (e *Engine) newTrainer(c model.Checkpoint) (*trainer, error) {
	a := c.Architecture
	g, err := e.compiled(a, c.Weights)
	if err != nil {
		return nil, err
	}
	for _, m := range []struct {
		name    string
		moments *model.Weights
	}{{"mean", &c.Mean}, {"variance", &c.Variance}} {
		if *m.moments == nil && c.Updates == 0 {
			*m.moments = a.Zeros()
		}
		if err := a.Match(*m.moments); err != nil {
			return nil, fmt.Errorf("%s: %w", m.name, err)
		}
	}
	if c.Updates < 0 {
		return nil, fmt.Errorf("%d updates", c.Updates)
	}
	return newTrainer(g, c, e.options.Tokens)
}

// NewDecoder implements model.Engine.
func (e *Engine) NewDecoder(c model.Checkpoint) (model.Decoder, error) {
	if err := errors.Join(c.Architecture.CheckPolicy(), whole(c)); err != nil {
		return nil, fmt.Errorf("new decoder: %w", err)
	}
	g, err := e.compiled(c.Architecture, c.Weights)
	if err != nil {
		return nil, fmt.Errorf("new decoder: %w", err)
	}
	return newDecoder(g, c.Weights, e.options.Capacity)
}

// whole refuses adapters.
func whole(c model.Checkpoint) error {
	if c.Adapter != nil {
		return fmt.Errorf("%w: engine gomlx trains whole models only; for LoRA take engine native", model.ErrAdapter)
	}
	return nil
}

// compiled returns the graphs of a, shared by all its versions: weights are
// inputs, so a new version compiles nothing.
func (e *Engine) compiled(a model.Architecture, w model.Weights) (*graphs, error) {
	if err := errors.Join(a.Check(), a.Match(w)); err != nil {
		return nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if g, ok := e.graphs[a]; ok {
		return g, nil
	}
	g, err := newGraphs(e.backend, a)
	if err != nil {
		return nil, err
	}
	e.graphs[a] = g
	return g, nil
}
