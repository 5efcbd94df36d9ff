package gomlx

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/engine/decode"
	"github.com/gomlx/compute"
	_ "github.com/gomlx/compute/gobackend" // registers the backend "go"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
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

// request is one completion in progress.
type request struct {
	*decode.Request
	pending []int32 // tokens not yet fed
	fed     int     // tokens in the cache
}

func newRequest(q *decode.Request) *request { return &request{Request: q, pending: q.Prompt} }

// restricted reports whether the request may have to choose among only some tokens, for
// which it needs its logits.
func (r *request) restricted() bool { return r.Constraint != nil || r.HasNucleus() }

// feeds records that up to c tokens were fed. It reports whether no token is left to
// feed, so that the next one is sampled.
func (r *request) feeds(c int) bool {
	n := min(c, len(r.pending))
	r.fed += n
	r.pending = r.pending[n:]
	return len(r.pending) == 0
}

// choose samples among the tokens that constraint and nucleus allow. logits are not yet
// divided by the temperature. token and logprob are what was sampled without constraint and
// nucleus; they stay if all tokens are allowed. forced says that there was no alternative.
func (r *request) choose(logits []float32, token int32, logprob float32) (chosen int32, _ float32, forced bool, err error) {
	tokens, whole := make([]int32, 0, len(logits)), true
	if r.Constraint != nil {
		set := model.NewTokenSet(len(logits))
		if whole = !r.Constraint.Allowed(set); !whole {
			tokens = set.AppendTokens(tokens, len(logits))
		}
	}
	switch {
	case whole && !r.HasNucleus():
		return token, logprob, false, nil
	case whole:
		for token, logit := range logits {
			if logit != masked { // an id without a token
				tokens = append(tokens, int32(token))
			}
		}
	case len(tokens) == 0:
		return 0, 0, false, fmt.Errorf("%w: it allows no token of the vocabulary after %d tokens of the completion", model.ErrForm, len(r.Completion.Tokens))
	}
	scale := float32(1)
	if r.Temperature > 0 {
		scale = float32(1 / r.Temperature)
	}
	if r.HasNucleus() {
		chances := make([]float32, len(tokens))
		for i, l := range logSoftmax(logits, tokens, scale) {
			chances[i] = float32(math.Exp(l))
		}
		tokens = model.Nucleus(tokens, chances, r.TopP)
	}
	logprobs, some, at := logSoftmax(logits, tokens, scale), make([]float32, len(tokens)), 0
	for i, token := range tokens {
		if some[i] = logits[token]; some[i] > some[at] {
			at = i
		}
	}
	if r.Temperature > 0 {
		at = model.GumbelChooseAmong(tokens, some, scale, r.Seed, len(r.Completion.Tokens))
	}
	return tokens[at], float32(logprobs[at]), len(tokens) == 1, nil
}

// logSoftmax returns the log-probabilities of the soft-max over tokens alone.
func logSoftmax(logits []float32, tokens []int32, scale float32) []float64 {
	out, most, sum := make([]float64, len(tokens)), math.Inf(-1), 0.0
	for i, token := range tokens {
		out[i] = float64(scale) * float64(logits[token])
		most = max(most, out[i])
	}
	for _, x := range out {
		sum += math.Exp(x - most)
	}
	for i := range out {
		out[i] -= most + math.Log(sum)
	}
	return out
}

// graphs holds the computations of one architecture. Each is compiled when a shape first
// occurs.
type graphs struct {
	backend compute.Backend
	arch    model.Architecture
	n       int // number of weight tensors
	rotary  *rotary

	score    *graph.Exec
	gradient *graph.Exec
	norm     *graph.Exec
	adamw    *graph.Exec
	step     *graph.Exec
	// stepLogits does what step does, and also returns the logits.
	stepLogits *graph.Exec
	regroup    *graph.Exec
}

func newGraphs(backend compute.Backend, a model.Architecture) (*graphs, error) {
	g := &graphs{backend: backend, arch: a, n: len(a.Tensors()), rotary: newRotary(a)}
	t := transformer{a}
	for _, e := range []struct {
		exec  **graph.Exec
		name  string
		build func([]*graph.Node) []*graph.Node
	}{
		{&g.score, "score", t.score}, {&g.gradient, "gradient", t.gradient}, {&g.norm, "norm", squaredNorm},
		{&g.adamw, "adamw", t.adamw}, {&g.step, "step", t.step}, {&g.stepLogits, "step with logits", t.stepLogits}, {&g.regroup, "regroup", regroup},
	} {
		exec, err := graph.NewExec(backend, e.build)
		if err != nil {
			return nil, fmt.Errorf("graph %s: %w", e.name, err)
		}
		// Shapes are bucketed, so few occur; a limit would only cause a late failure.
		*e.exec = exec.WithName(e.name).SetMaxCache(-1)
	}
	return g, nil
}

// call runs a graph. Inputs made by donate are consumed.
func (g *graphs) call(e *graph.Exec, inputs ...any) (outputs []*tensors.Tensor, err error) {
	defer caught(&err)
	outputs, err = e.Call(inputs...)
	if err != nil {
		return nil, fmt.Errorf("run graph %s: %w", e.Name(), err)
	}
	return outputs, nil
}

// donate lets a graph reuse the memory of ts, which are unusable afterwards.
func (g *graphs) donate(ts []*tensors.Tensor) (inputs []any, err error) {
	defer caught(&err)
	inputs = make([]any, len(ts))
	for i, t := range ts {
		if inputs[i], err = graph.DonateTensorBuffer(t, g.backend, 0); err != nil {
			return nil, fmt.Errorf("donate tensor: %w", err)
		}
	}
	return inputs, nil
}

func lend(ts []*tensors.Tensor) []any {
	inputs := make([]any, len(ts))
	for i, t := range ts {
		inputs[i] = t
	}
	return inputs
}

// upload copies weights to tensors.
func upload(w model.Weights) (ts []*tensors.Tensor, err error) {
	defer caught(&err)
	ts = make([]*tensors.Tensor, len(w))
	for i, t := range w {
		ts[i] = tensors.FromFlatDataAndDimensions(t.Data, t.Shape...)
	}
	return ts, nil
}

// download copies tensors into weights of the names and shapes of a.
func download(a model.Architecture, ts []*tensors.Tensor) (model.Weights, error) {
	w := a.Tensors()
	for i, t := range ts {
		data, err := tensors.CopyFlatData[float32](t)
		if err != nil {
			return nil, fmt.Errorf("read tensor %s: %w", w[i].Name, err)
		}
		w[i].Data = data
	}
	return w, nil
}

// hostCopy copies t to the host and frees it.
func hostCopy[E float32 | float64 | int32](t *tensors.Tensor) (data []E, err error) {
	defer caught(&err)
	if data, err = tensors.CopyFlatData[E](t); err != nil {
		return nil, fmt.Errorf("read result: %w", err)
	}
	return data, t.FinalizeAll()
}

// free gives memory back at once; the collector would do it later, so an error
// here loses nothing.
func free(ts []*tensors.Tensor) {
	for _, t := range ts {
		_ = t.FinalizeAll()
	}
}
