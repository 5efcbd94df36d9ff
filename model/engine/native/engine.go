package native

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"time"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/engine/decode"
	"github.com/fulgurite/fulgurite/model/engine/native/kernel"
	"github.com/fulgurite/fulgurite/model/engine/native/kvcache"
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

// errAbandoned marks a request whose caller has gone.
var errAbandoned = errors.New("abandoned")

// request is one completion in progress. During a step, the thread that computes it may
// touch it too.
type request struct {
	*decode.Request
	scale    float32 // of the logits, for log-probabilities and, unless greedy, for sampling
	cached   int     // tokens whose keys and values are in pages
	feed     int     // tokens that the present step adds
	sampling bool    // the present step samples a token
	pages    []*kvcache.Page
	sought   bool     // whether other requests' pages were searched for a prefix of the prompt
	leader   *request // the request waits until leader has computed the first shared tokens of the prompt; nil if it does not wait
	shared   int
}

func newRequest(q *decode.Request) *request {
	return &request{Request: q, scale: inverseTemperature(q.Temperature)}
}

// remaining returns the number of tokens that are not yet in pages: the rest of the
// prompt, or the token sampled last.
func (q *request) remaining() int { return len(q.Prompt) + len(q.Completion.Tokens) - q.cached }

func (q *request) token(position int) int32 {
	if position < len(q.Prompt) {
		return q.Prompt[position]
	}
	return q.Completion.Tokens[position-len(q.Prompt)]
}

// choice holds the tokens that one position may choose among, in ascending order, and
// their logits one after the other, so that a soft-max runs over a smaller vocabulary.
type choice struct {
	tokens  []int32
	logits  []float32 // with room for padding
	chances []float32 // of the tokens, if the request asks for a nucleus
	set     model.TokenSet
}

// among sets the choice to the tokens of a set and returns their number.
func (c *choice) among(set model.TokenSet, vocab int) int {
	c.tokens = set.AppendTokens(c.tokens[:0], vocab)
	return len(c.tokens)
}

// gather copies the logits of the choice's tokens out of the logits of all tokens.
func (c *choice) gather(logits []float32) []float32 {
	n := len(c.tokens)
	if cap(c.logits) < n {
		c.logits = make([]float32, kernel.Pad(len(logits)))
	}
	c.logits = c.logits[:kernel.Pad(n)]
	for i, token := range c.tokens {
		c.logits[i] = logits[token]
	}
	return c.logits
}

// scatter writes the gathered numbers back to the places of their tokens; all other
// tokens get 0.
func (c *choice) scatter(logits []float32) {
	clear(logits)
	for i, token := range c.tokens {
		logits[token] = c.logits[i]
	}
}

// indexOf returns the index of a token in the choice, which must contain it.
func (c *choice) indexOf(token int32) int {
	at, _ := slices.BinarySearch(c.tokens, token)
	return at
}

// restrict sets b.choice to the tokens that q may choose among next. It reports false if
// q may choose any token.
func (b *worker) restrict(q *request, logits []float32) (bool, error) {
	c, restricted := &b.choice, false
	if q.Constraint != nil {
		if c.set == nil {
			c.set = model.NewTokenSet(b.VocabSize)
		}
		clear(c.set)
		if restricted = q.Constraint.Allowed(c.set); restricted && c.among(c.set, b.VocabSize) == 0 {
			return false, fmt.Errorf("%w: it allows no token of the vocabulary after %d tokens of the completion", model.ErrForm, len(q.Completion.Tokens))
		}
	}
	if !q.HasNucleus() {
		return restricted, nil
	}
	if !restricted {
		c.all(b.VocabSize, b.unused)
	}
	c.chances = append(c.chances[:0], c.gather(logits)...)
	b.Softmax(c.chances, len(c.tokens), q.scale)
	c.tokens = model.Nucleus(c.tokens, c.chances, q.TopP)
	return true, nil
}

// all sets the choice to all tokens of the vocabulary.
func (c *choice) all(vocab int, unused [][2]int) {
	c.tokens = c.tokens[:0]
	next := 0
	for _, ids := range append(unused[:len(unused):len(unused)], [2]int{vocab, vocab}) {
		for ; next < ids[0]; next++ {
			c.tokens = append(c.tokens, int32(next))
		}
		next = ids[1] + 1
	}
}

// chooseAmong samples one token of b.choice, as choose does from all tokens.
func (b *worker) chooseAmong(q *request, all []float32) (token int32, o outcome) {
	c := &b.choice
	logits, n := c.gather(all), len(c.tokens)
	at := largest(logits[:n])
	if q.Temperature > 0 {
		at = model.GumbelChooseAmong(c.tokens, logits[:n], q.scale, q.Seed, len(q.Completion.Tokens))
	}
	return c.tokens[at], b.tokenOutcome(logits, n, at, q.scale)
}

const (
	// idlePages is how many numbers the free pages of an idle decoder may hold: 64 MiB.
	idlePages = 16 << 20
	// keptIdle is for how long a decoder without requests keeps what it computed: the
	// next turns of its dialogs may be on the way.
	keptIdle = 10 * time.Second
)

var _ model.Scorer = (*decoder)(nil)

// decoder implements model.Decoder with continuous batching: one goroutine owns
// the batch and runs it step by step; requests join and leave between steps.
type decoder struct {
	*batch
	*decode.Front[*request]
}

func (e *Engine) newDecoder(c model.Checkpoint) (*decoder, error) {
	d, err := e.prepareDecoder(c)
	if err != nil {
		return nil, err
	}
	d.Own(d.own)
	return d, nil
}

// prepareDecoder returns a decoder whose goroutine has not started.
func (e *Engine) prepareDecoder(c model.Checkpoint) (*decoder, error) {
	p, err := e.newPass(c)
	if err != nil {
		return nil, err
	}
	return &decoder{newBatch(p, e.threads, e.maxBatch), decode.NewFront(p.Architecture, newRequest)}, nil
}

// own runs the batch until Close.
func (d *decoder) own() {
	defer d.free()
	defer d.threadPool.close()
	for {
		if len(d.running) == 0 {
			d.rest()
		}
		var closed bool
		n := len(d.running)
		if d.running, closed = d.Take(d.running, d.capacity-n); closed {
			d.fail(decode.ErrClosed)
			return
		}
		for _, q := range d.running[n:] {
			q.Join()
		}
		d.dropAbandoned()
		if len(d.running) > 0 {
			d.step()
		}
	}
}

// rest waits for requests. If none arrives within keptIdle, it drops what is kept of
// earlier ones.
func (d *decoder) rest() {
	d.kept.Shrink()
	d.pages.Trim(idlePages)
	if !d.kept.IsEmpty() {
		timer := time.NewTimer(keptIdle)
		defer timer.Stop()
		select {
		case <-d.Changed():
			return
		case <-timer.C:
		}
		d.kept.Clear()
		d.pages.Trim(idlePages)
	}
	<-d.Changed()
}
