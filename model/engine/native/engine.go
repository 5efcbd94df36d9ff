package native

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/engine/native/kernel"
)

// version is raised whenever a change here changes bits.
const version = 1

// Options configures an Engine; the zero value is right for most uses.
type Options struct {
	// Threads is the number of threads that one trainer or decoder uses; 0 means
	// GOMAXPROCS. It changes no result.
	Threads int
	// MaxBatch is the largest number of requests that a decoder runs at once; more
	// requests wait in the order of their arrival. 0 means 128. It changes no result.
	MaxBatch int
	// Kernel forces a kernel set: "avx512" or "avx2" on amd64, "neon" on arm64, or "go".
	// If it is empty, the engine uses the fastest set that runs on the processor.
	Kernel string
}

// Engine implements model.Engine. It is safe for concurrent use.
type Engine struct {
	kernels  *kernel.Set
	threads  int
	maxBatch int
	bases    bases
	err      error // of Options, reported by NewTrainer and NewDecoder
}

var _ model.Engine = (*Engine)(nil)

// New returns an engine. A kernel set that this processor lacks is reported
// when a trainer or decoder is made.
func New(o Options) *Engine {
	e := &Engine{kernels: kernel.Best(), threads: o.Threads, maxBatch: o.MaxBatch}
	if o.Kernel != "" {
		set, err := kernel.Named(o.Kernel)
		if err != nil {
			e.err = fmt.Errorf("native engine: %w", err)
		} else {
			e.kernels = set
		}
	}
	if e.threads < 1 {
		e.threads = runtime.GOMAXPROCS(0)
	}
	if e.maxBatch < 1 {
		e.maxBatch = 128
	}
	return e
}

// Name returns "native".
func (e *Engine) Name() string { return "native" }

// Deterministic returns true.
func (e *Engine) Deterministic() bool { return true }

// Fingerprint names the arithmetic of the kernels and, for the few functions that are
// taken from package math (logarithms, the angles of rotary embedding), the compiler and
// its target. "avx512", "avx2" and "neon" share one arithmetic; "go" has another.
func (e *Engine) Fingerprint() string {
	target := runtime.GOARCH
	if build, ok := debug.ReadBuildInfo(); ok {
		for _, s := range build.Settings {
			// The level decides whether the compiler may fuse operations.
			if s.Key == "GOAMD64" || s.Key == "GOARM64" {
				target += "-" + s.Value
			}
		}
	}
	return fmt.Sprintf("native/%d %s %s %s", version, target, e.kernels.Arithmetic(), runtime.Version())
}

// Kernel returns the name of the kernel set in use. Unlike the fingerprint it
// distinguishes "avx512" from "avx2".
func (e *Engine) Kernel() string { return e.kernels.Name() }

// NewTrainer copies the checkpoint, except for the base of an adapter: all trainers,
// critics and decoders of the engine share one copy of it. It refuses weights and moments
// that do not match the architecture or are not finite.
func (e *Engine) NewTrainer(c model.Checkpoint) (model.Trainer, error) {
	if err := c.Architecture.CheckPolicy(); err != nil {
		return nil, fmt.Errorf("new native trainer: %w", err)
	}
	t, err := e.newTrainer(c)
	if err != nil {
		return nil, fmt.Errorf("new native trainer: %w", err)
	}
	return t, nil
}

// NewCritic copies the checkpoint as NewTrainer does.
func (e *Engine) NewCritic(c model.Checkpoint) (model.Critic, error) {
	if err := c.Architecture.CheckCritic(); err != nil {
		return nil, fmt.Errorf("new native critic: %w", err)
	}
	t, err := e.newTrainer(c)
	if err != nil {
		return nil, fmt.Errorf("new native critic: %w", err)
	}
	return critic{t}, nil
}

// NewDecoder copies the weights, except for the base of an adapter, and starts
// goroutines, which Close ends. It refuses weights that do not match the architecture or
// are not finite.
func (e *Engine) NewDecoder(c model.Checkpoint) (model.Decoder, error) {
	if err := c.Architecture.CheckPolicy(); err != nil {
		return nil, fmt.Errorf("new native decoder: %w", err)
	}
	d, err := e.newDecoder(c)
	if err != nil {
		return nil, fmt.Errorf("new native decoder: %w", err)
	}
	return d, nil
}

// checkTensors reports the first tensor that is not among those that c trains, or that is
// not finite.
func checkTensors(c model.Checkpoint, w model.Weights) error {
	if err := c.Match(w); err != nil {
		return err
	}
	return w.CheckFinite()
}

// inverseTemperature returns the factor by which temperature t scales logits. Temperature
// 0 counts as 1.
func inverseTemperature(t float64) float32 {
	if t == 0 {
		return 1
	}
	return float32(1 / t)
}
