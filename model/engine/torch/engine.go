package torch

import (
	"cmp"
	"context"
	_ "embed" // for requirements
	"errors"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/fulgurite/fulgurite/model"
)

// version is raised whenever a change here or in the program changes numbers.
const version = 1

// EnvPython, EnvDevice and EnvRanks name the environment variables that Options are read from.
const (
	EnvPython = "FULGURITE_TORCH"
	EnvDevice = "FULGURITE_TORCH_DEVICE"
	EnvRanks  = "FULGURITE_TORCH_RANKS"
)

const (
	halfTolerance    = 0.5 // nats; see CanaryTolerance
	defaultTokens    = 8192
	defaultSequences = 128
	defaultLimit     = 2 * time.Minute
	maxRanks         = 64
	autoRanks        = "auto"
	autoProducts     = "auto"
)

// Options chooses the program's Python and device. The zero value works where a Python
// with torch is called python3.
type Options struct {
	// Python is the interpreter with torch, transformers and peft. If it is empty,
	// FULGURITE_TORCH names it, or else it is python3.
	Python string
	// Device is "cpu", "cuda", "cuda:1" and so on, or "auto", which is a GPU if there is
	// one. If it is empty, FULGURITE_TORCH_DEVICE names it, or else it is "auto".
	Device string
	// Ranks is the number of processes over which a trained model is spread: "1" to "64",
	// each with its own GPU, or all on the CPU; or "auto", one for each GPU. If it is
	// empty, FULGURITE_TORCH_RANKS names it, or else it is "1".
	Ranks string
	// Threads is the number of CPU threads of each rank; 0 means an equal share of
	// GOMAXPROCS.
	Threads int
	// Tokens is the largest number of tokens, padding included, of one forward and
	// backward pass (8192). It is lower if the activations of so many would take much of
	// the device's memory. A longer row is a pass alone.
	Tokens int
	// Sequences is the largest number of sequences that a decoder samples at once (128);
	// more wait in the order of their arrival. If the device has too little memory for
	// them, the decoder takes fewer.
	Sequences int
	// Limit is how long the program may show no progress before it counts as hanging
	// (2 minutes). A layer of a transformer is progress.
	Limit time.Duration

	// products is the type of products, "float32" or "bfloat16"; "auto", the default, is
	// the device's type. Tests use it to compute on a CPU what a GPU computes.
	products string
}

func (o Options) withDefaults() Options {
	o.Python = cmp.Or(o.Python, os.Getenv(EnvPython), "python3")
	o.Device = cmp.Or(o.Device, os.Getenv(EnvDevice), "auto")
	o.Ranks = cmp.Or(o.Ranks, os.Getenv(EnvRanks), "1")
	count, _ := strconv.Atoi(o.Ranks) // check refuses another text
	o.Threads = cmp.Or(o.Threads, max(1, runtime.GOMAXPROCS(0)/max(1, count)))
	o.Tokens = cmp.Or(o.Tokens, defaultTokens)
	o.Sequences = cmp.Or(o.Sequences, defaultSequences)
	o.Limit = cmp.Or(o.Limit, defaultLimit)
	o.products = cmp.Or(o.products, autoProducts)
	return o
}

// devices are the names that an engine takes.
var devices = regexp.MustCompile(`^(auto|cpu|cuda|cuda:[0-9]+)$`)

func (o Options) check() error {
	if !devices.MatchString(o.Device) {
		return fmt.Errorf("device %q: give auto, cpu, cuda or cuda:N", o.Device)
	}
	count, err := strconv.Atoi(o.Ranks)
	if o.Ranks != autoRanks && (err != nil || count < 1 || count > maxRanks) {
		return fmt.Errorf("ranks %q (%s): give a number from 1 to %d, or auto", o.Ranks, EnvRanks, maxRanks)
	}
	if o.Ranks != "1" && strings.HasPrefix(o.Device, "cuda:") {
		return fmt.Errorf("ranks %q (%s) on device %q: a rank takes the GPU of its number; give device cuda, and let CUDA_VISIBLE_DEVICES choose GPUs", o.Ranks, EnvRanks, o.Device)
	}
	if o.Threads < 1 || o.Tokens < 1 || o.Sequences < 1 || o.Limit <= 0 {
		return fmt.Errorf("threads %d, tokens %d, sequences %d and limit %v must be positive", o.Threads, o.Tokens, o.Sequences, o.Limit)
	}
	return nil
}

// Engine implements model.Engine. It is safe for concurrent use, but the program answers
// one request at a time. Callers must close an engine that they no longer need.
type Engine struct {
	options     Options
	fingerprint string

	mu      sync.Mutex
	process *process
	closed  bool
}

var (
	_ model.Engine        = (*Engine)(nil)
	_ model.Approximate   = (*Engine)(nil)
	_ model.ScoringEngine = (*Engine)(nil)
)

// New starts the program, which takes some seconds. If the program can't work, the error
// says what the user has to change: there is no Python, a library is absent or has a
// version that is not known to work, or the device does not exist.
func New(o Options) (*Engine, error) {
	o = o.withDefaults()
	if err := o.check(); err != nil {
		return nil, fmt.Errorf("open engine torch: %w", err)
	}
	p, err := begin(&o, startLimit)
	if err != nil {
		return nil, fmt.Errorf("open engine torch with %s: %w", o.Python, err)
	}
	return &Engine{options: o, process: p, fingerprint: p.fingerprint()}, nil
}

// begin starts the program for the first time and writes into o how many ranks it has.
func begin(o *Options, within time.Duration) (*process, error) {
	count, _ := strconv.Atoi(o.Ranks) // 0 means auto
	p, err := start(*o, max(1, count), 1, within)
	if err != nil {
		return nil, err
	}
	if gpus := p.about.GPUs; count == 0 && gpus > 1 { // only the program knows what it sees
		p.close()
		count = min(gpus, maxRanks)
		o.Threads = max(1, o.Threads/count)
		if p, err = start(*o, count, 1, within); err != nil {
			return nil, err
		}
	}
	o.Ranks = strconv.Itoa(len(p.ranks))
	return p, nil
}

// Name returns "torch".
func (e *Engine) Name() string { return "torch" }

// Deterministic returns false.
func (e *Engine) Deterministic() bool { return false }

// Fingerprint names versions, device, type of numbers, attention, threads and ranks.
func (e *Engine) Fingerprint() string { return e.fingerprint }

// CanaryTolerance implements model.Approximate. On a GPU products are in bfloat16, which
// changes the log-probability of a token by some hundredths of a nat and, rarely, by
// tenths. So on a GPU the canary detects damaged weights and weights of other models, but
// not those of an adjacent version.
func (e *Engine) CanaryTolerance() float64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.process.about.DType == "float32" {
		return 0
	}
	return halfTolerance
}

// Close ends the program. Trainers of the engine answer with an error from then on.
func (e *Engine) Close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed = true
	e.process.close()
}

// running returns the program. If the program was lost, it starts it again.
func (e *Engine) running() (*process, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.process.isLost() {
		return e.process, nil
	}
	if e.closed {
		return nil, errors.New("the engine is closed")
	}
	p, err := start(e.options, len(e.process.ranks), e.process.generation+1, startLimit)
	if err != nil {
		return nil, fmt.Errorf("%w: start it again: %w", model.ErrEngineLost, err)
	}
	if f := p.fingerprint(); f != e.fingerprint {
		p.close()
		return nil, fmt.Errorf("the program was started again and is another: it was %s and is %s; start this process again", e.fingerprint, f)
	}
	e.process = p
	return p, nil
}

// NewTrainer gives the checkpoint to the program.
func (e *Engine) NewTrainer(c model.Checkpoint) (model.Trainer, error) {
	if err := checkPolicy(c.Architecture); err != nil {
		return nil, fmt.Errorf("new torch trainer: %w", err)
	}
	t, err := e.open(c)
	if err != nil {
		return nil, fmt.Errorf("new torch trainer: %w", err)
	}
	return t, nil
}

// NewCritic gives the checkpoint to the program.
func (e *Engine) NewCritic(c model.Checkpoint) (model.Critic, error) {
	if err := c.Architecture.CheckCritic(); err != nil {
		return nil, fmt.Errorf("new torch critic: %w", err)
	}
	t, err := e.open(c)
	if err != nil {
		return nil, fmt.Errorf("new torch critic: %w", err)
	}
	return critic{t}, nil
}

// NewDecoder passes the weights to the program, which samples from them. A base that
// adapters of trainers and decoders share is held once.
func (e *Engine) NewDecoder(c model.Checkpoint) (model.Decoder, error) {
	if err := checkPolicy(c.Architecture); err != nil {
		return nil, fmt.Errorf("new torch decoder: %w", err)
	}
	held, err := e.load(withoutMoments(c), forSampling)
	if err != nil {
		return nil, fmt.Errorf("new torch decoder: %w", err)
	}
	return newDecoder(held, e.options.Sequences), nil
}

// NewRowScorer implements model.ScoringEngine. A whole model is on the device only while
// it scores; otherwise it is in the memory of the CPU.
func (e *Engine) NewRowScorer(c model.Checkpoint) (model.RowScorer, error) {
	if err := checkPolicy(c.Architecture); err != nil {
		return nil, fmt.Errorf("new torch scorer: %w", err)
	}
	t, err := e.load(withoutMoments(c), forScoring)
	if err != nil {
		return nil, fmt.Errorf("new torch scorer: %w", err)
	}
	return t, nil
}

func withoutMoments(c model.Checkpoint) model.Checkpoint {
	return model.Checkpoint{Architecture: c.Architecture, Adapter: c.Adapter, Weights: c.Weights, Files: c.Files, Seed: c.Seed}
}

// purpose says what the program uses a model for.
type purpose int

const (
	forTraining purpose = iota
	forScoring
	forSampling
)

// open makes a trainer of c.
func (e *Engine) open(c model.Checkpoint) (*trainer, error) { return e.load(c, forTraining) }

// load gives c to the program.
func (e *Engine) load(c model.Checkpoint, what purpose) (*trainer, error) {
	check, open := checkCheckpoint, (*trainer).open
	if c.Architecture.Config != "" {
		check, open = model.Checkpoint.CheckFiles, (*trainer).openFiles
	}
	if err := check(c); err != nil {
		return nil, err
	}
	p, err := e.running()
	if err != nil {
		return nil, err
	}
	t := &trainer{process: p, ranks: len(p.ranks), tokens: e.options.Tokens, updates: c.Updates, what: what, of: model.Checkpoint{Architecture: c.Architecture, Adapter: c.Adapter, Moments: c.Moments}}
	if what == forSampling {
		t.ranks = 1 // rank 0 holds all weights that it samples from
	}
	if err := open(t, context.Background(), c, what); err != nil {
		return nil, err
	}
	return t, nil
}

//go:embed requirements.txt
var requirements string

// Requirements returns the text of a requirements file of pip: the packages, each with
// the version that the engine's tests were made with.
func Requirements() string { return requirements }

// About describes the program, its libraries and its device. The program sends it when it
// starts.
type About struct {
	// Versions of the libraries, by their names on the Python index.
	Versions map[string]string `json:"versions"`
	// Device is the device that would train: "cpu", "cuda" or "cuda:N".
	Device string `json:"device"`
	// Processor is the device's name; for a CPU, its instruction set.
	Processor string `json:"processor"`
	Threads   int    `json:"threads"`
	DType     string `json:"dtype"`
	Attention string `json:"attention"`
	PID       int    `json:"pid"`
	// CUDA is the version that torch was built for, empty for a build without it.
	CUDA string `json:"cuda"`
	// GPUs is how many GPUs the program sees; 0 if it computes on the CPU.
	GPUs int `json:"gpus"`
	// Memory is the device's memory in bytes; 0 for a CPU.
	Memory int64 `json:"memory,omitempty"`
	// Ranks is the number of processes over which a model is spread.
	Ranks int `json:"ranks"`
}

// RanksOf returns over how many processes an engine with the zero Options spreads a model
// if the program sees so many GPUs. It returns 1 for a setting that is not a number,
// which New refuses.
func RanksOf(gpus int) int {
	o := Options{}.withDefaults()
	if o.Ranks == autoRanks {
		return max(1, min(gpus, maxRanks))
	}
	count, _ := strconv.Atoi(o.Ranks) // 0 if it is not a number
	return max(1, count)
}

// Describe starts the program as New does, asks it to describe itself, and ends it. It
// kills a program that has not loaded its libraries within the limit. The error says what
// the user has to change.
func Describe(o Options, within time.Duration) (About, error) {
	o = o.withDefaults()
	if err := o.check(); err != nil {
		return About{}, err
	}
	o.Limit = within
	p, err := begin(&o, within)
	if err != nil {
		return About{}, fmt.Errorf("%s: %w", o.Python, err)
	}
	defer p.close()
	return p.about, nil
}

// checkCheckpoint reports the first tensor that does not match or is not finite.
func checkCheckpoint(c model.Checkpoint) error {
	if err := c.Check(); err != nil {
		return err
	}
	if c.Moments != model.MomentsF32 && c.Moments != model.MomentsInt8 {
		return fmt.Errorf("moments %q: there are %q and %q", c.Moments, model.MomentsF32, model.MomentsInt8)
	}
	if c.Updates < 0 {
		return fmt.Errorf("%d updates", c.Updates)
	}
	for _, of := range []struct {
		name    string
		tensors model.Weights
	}{{"weights", c.Weights}, {"mean", c.Mean}, {"variance", c.Variance}} {
		if of.tensors == nil && c.Updates == 0 {
			continue
		}
		if err := c.Match(of.tensors); err != nil {
			return fmt.Errorf("%s after %d updates: %w", of.name, c.Updates, err)
		}
		if err := of.tensors.CheckFinite(); err != nil {
			return fmt.Errorf("%s: %w", of.name, err)
		}
	}
	return nil
}
