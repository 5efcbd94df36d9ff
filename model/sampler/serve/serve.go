// Package serve is the built-in sampler. It answers for any version of any run, and keeps
// in memory the few versions that were asked for last; of large models it keeps only
// those that are in use. Versions of several policies with the same number count as one,
// because attempts ask for them together.
//
// It has no state that a crash could lose. A request names a version; a version that is
// not in memory is loaded from the source. The sampler does not decide which version to
// use, and it does not record what it samples; the gateway does both.
//
// A version whose canary it does not reproduce is refused with model.ErrWrongWeights,
// when it is published and each time it is asked for: the decoder that would sample
// scores given tokens and has to arrive at the numbers that the trainer wrote. A version
// without a canary is served without a check.
//
// If the decoder of a version is lost (model.ErrEngineLost), the next request loads the
// version again. The current request fails, and its caller must repeat it.
//
// A reply to a request with a form conforms to that form, or the request is refused with
// model.ErrForm.
package serve

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/fulgurite/fulgurite/internal/memory"
	"github.com/fulgurite/fulgurite/model"
)

// Source loads what is needed to sample from a version, and returns the digest of its
// weights.
type Source interface {
	Load(ctx context.Context, v model.VersionID) (model.Checkpoint, string, error)
	// Canary returns the numbers that the weights have to reproduce; nil if the version
	// has none.
	Canary(ctx context.Context, v model.VersionID) (*model.Canary, error)
}

const (
	// heavy is how many bytes of weights may stay in memory although no request uses
	// them. Weights beyond that are kept for idle, because other requests may be on the
	// way. Loading a version takes about a second for each gigabyte.
	heavy = 256 << 20
	idle  = 10 * time.Second
)

// ErrClosed is returned once the sampler was closed.
var ErrClosed = errors.New("sampler is closed")

// Sampler implements model.Sampler over an engine. It is safe for concurrent use.
type Sampler struct {
	// Constrain makes the constraints of forms; set it before the first request.
	// Without it forms are refused.
	Constrain model.Constrain

	engine   model.Engine
	source   Source
	resident int

	ctx   context.Context // of loads; ends with Close
	end   context.CancelFunc
	loads sync.WaitGroup // Add only while holding mu and not closed

	mu     sync.Mutex
	live   map[*replica]struct{} // replicas that are loaded or being loaded, evicted ones too
	loaded map[model.VersionID]*list.Element
	recent *list.List // of *replica, the most recently used in front
	closed bool
}

// replica is one version in memory. ready is closed when loading ended.
type replica struct {
	version model.VersionID
	ready   chan struct{}
	decoder model.Decoder
	weights string
	bytes   int64 // of its weights
	err     error
	users   int
	left    time.Time // when the last user went
	evicted bool
}

// New returns a sampler that keeps at most resident versions (at least 1), of all policies
// of a run.
func New(engine model.Engine, source Source, resident int) *Sampler {
	ctx, end := context.WithCancel(context.Background())
	return &Sampler{
		engine: engine, source: source, resident: max(resident, 1), ctx: ctx, end: end,
		live: map[*replica]struct{}{}, loaded: map[model.VersionID]*list.Element{}, recent: list.New(),
	}
}

// Sample implements model.Sampler.
func (s *Sampler) Sample(ctx context.Context, v model.VersionID, r model.DecodeRequest) (model.Completion, string, error) {
	r, err := s.constrained(r)
	if err != nil {
		return model.Completion{}, "", fmt.Errorf("sample %s: %w", v, err)
	}
	rep, err := s.acquire(ctx, v)
	if err != nil {
		return model.Completion{}, "", err
	}
	defer s.release(rep)
	c, err := rep.decoder.Decode(ctx, r)
	if errors.Is(err, model.ErrEngineLost) {
		s.forget(rep)
	}
	if err != nil {
		return model.Completion{}, "", fmt.Errorf("sample %s: %w", v, err)
	}
	return c, rep.weights, nil
}

// constrained returns r with the constraint that its form asks for, if any.
func (s *Sampler) constrained(r model.DecodeRequest) (model.DecodeRequest, error) {
	if !r.Form.Masks() && (r.Form == nil || len(r.Form.Stop) == 0) {
		return r, nil
	}
	if s.Constrain == nil {
		return r, fmt.Errorf("%w: this sampler supports no forms", model.ErrForm)
	}
	var err error
	if r.Constraint, err = s.Constrain(*r.Form); err != nil {
		return r, fmt.Errorf("%w: codec %q: %w", model.ErrForm, r.Form.Codec, err)
	}
	return r, nil
}

// Publish loads version v, so that the first request for it does not wait.
func (s *Sampler) Publish(ctx context.Context, v model.VersionID) error {
	rep, err := s.acquire(ctx, v)
	if err != nil {
		return err
	}
	s.release(rep)
	return nil
}

// Loaded returns the versions that are in memory or being loaded, the last used first.
func (s *Sampler) Loaded() []model.VersionID {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []model.VersionID
	for e := s.recent.Front(); e != nil; e = e.Next() {
		all = append(all, e.Value.(*replica).version)
	}
	return all
}

// Close breaks off current loads and ends all decoders; requests in progress fail. After
// it has returned, the sampler does not use the source or the engine any more.
func (s *Sampler) Close() {
	s.mu.Lock()
	s.closed = true
	s.loaded, s.recent = map[model.VersionID]*list.Element{}, list.New()
	s.mu.Unlock()
	s.end()
	s.loads.Wait()
	s.mu.Lock()
	left := slices.Collect(maps.Keys(s.live))
	s.mu.Unlock()
	for _, rep := range left {
		s.discard(rep)
	}
}

// acquire returns v's replica, and loads it if necessary. A failed load is not kept.
func (s *Sampler) acquire(ctx context.Context, v model.VersionID) (*replica, error) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil, ErrClosed
	}
	e, ok := s.loaded[v]
	if !ok {
		e = s.recent.PushFront(&replica{version: v, ready: make(chan struct{})})
		s.loaded[v], s.live[e.Value.(*replica)] = e, struct{}{}
		// Loading continues when the first caller gives up, because others wait for it.
		s.loads.Go(func() { s.load(context.WithoutCancel(ctx), e) })
	}
	s.recent.MoveToFront(e)
	rep := e.Value.(*replica)
	rep.users++
	surplus := s.evict()
	s.mu.Unlock()
	for _, r := range surplus {
		s.discard(r)
	}
	select {
	case <-rep.ready:
	case <-ctx.Done():
		s.release(rep)
		return nil, ctx.Err()
	}
	if rep.err != nil {
		s.release(rep)
		return nil, rep.err
	}
	return rep, nil
}

func (s *Sampler) load(ctx context.Context, e *list.Element) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	rep := e.Value.(*replica)
	var err error
	err = s.newDecoder(ctx, rep)
	memory.Dropped(rep.bytes) // the engine has copied them
	if err != nil && s.ctx.Err() != nil {
		err = ErrClosed
	}
	if err != nil {
		rep.err = fmt.Errorf("load version %s: %w", rep.version, err)
		s.mu.Lock()
		delete(s.live, rep)
		if s.loaded[rep.version] == e {
			delete(s.loaded, rep.version)
			s.recent.Remove(e)
		}
		s.mu.Unlock()
	}
	close(rep.ready)
	s.mu.Lock()
	abandoned := rep.evicted && rep.users == 0
	s.mu.Unlock()
	if abandoned {
		s.discard(rep)
	}
}

// newDecoder makes rep's decoder, which reproduces the version's canary.
func (s *Sampler) newDecoder(ctx context.Context, rep *replica) error {
	canary, err := s.source.Canary(ctx, rep.version)
	if err != nil {
		return err
	}
	c, digest, err := s.source.Load(ctx, rep.version)
	if err != nil {
		return err
	}
	decoder, err := s.engine.NewDecoder(c)
	if err != nil {
		return err
	}
	if canary != nil {
		if err := canary.Verify(ctx, s.engine, decoder); err != nil {
			decoder.Close()
			return fmt.Errorf("%w: it is not served; a new load is tried when it is asked for again", err)
		}
	}
	rep.decoder, rep.weights = decoder, digest
	for _, t := range c.Weights {
		rep.bytes += 4 * int64(t.Size())
	}
	if c.Files != nil {
		for _, f := range c.Files.Weights {
			rep.bytes += f.Size
		}
	}
	return nil
}

// forget makes the next request for the version of rep load it again. The decoder of rep
// was lost together with the program that it computed in.
func (s *Sampler) forget(rep *replica) {
	s.mu.Lock()
	defer s.mu.Unlock()
	rep.evicted = true
	if e := s.loaded[rep.version]; e != nil && e.Value.(*replica) == rep {
		delete(s.loaded, rep.version)
		s.recent.Remove(e)
	}
}

// evict removes the least recently used versions beyond the limit, and heavy ones that
// are no longer in use. It returns the removed replicas that have no users. The caller
// holds mu.
func (s *Sampler) evict() []*replica {
	var surplus []*replica
	numbers := s.numbers()
	for e := s.recent.Back(); e != nil; {
		at, rep := e, e.Value.(*replica)
		e = e.Prev()
		if len(numbers) <= s.resident && (rep.users > 0 || time.Since(rep.left) <= idle || s.bytes() <= heavy) {
			continue
		}
		s.recent.Remove(at)
		delete(s.loaded, rep.version)
		if number := numberOf(rep.version); numbers[number] > 1 {
			numbers[number]--
		} else {
			delete(numbers, number)
		}
		rep.evicted = true
		if rep.users == 0 && rep.isReady() {
			surplus = append(surplus, rep)
		}
	}
	return surplus
}

// numberOf returns the version without its policy.
func numberOf(v model.VersionID) model.VersionID {
	v.Policy = ""
	return v
}

// numbers returns the numbers of each run that are in memory, with how many policies of
// each. The caller holds mu.
func (s *Sampler) numbers() map[model.VersionID]int {
	out := map[model.VersionID]int{}
	for e := s.recent.Front(); e != nil; e = e.Next() {
		out[numberOf(e.Value.(*replica).version)]++
	}
	return out
}

// bytes returns the size of all weights in memory. A version that is being loaded counts
// as much as the largest one. The caller holds mu.
func (s *Sampler) bytes() (sum int64) {
	largest, unknown := int64(0), int64(0)
	for e := s.recent.Front(); e != nil; e = e.Next() {
		rep := e.Value.(*replica)
		if !rep.isReady() {
			unknown++
			continue
		}
		sum, largest = sum+rep.bytes, max(largest, rep.bytes)
	}
	return sum + unknown*largest
}

func (s *Sampler) release(rep *replica) {
	s.mu.Lock()
	rep.users--
	rep.left = time.Now()
	last := rep.evicted && rep.users == 0 && rep.isReady()
	s.mu.Unlock()
	if last {
		s.discard(rep)
	}
}

func (r *replica) isReady() bool {
	select {
	case <-r.ready:
		return true
	default:
		return false
	}
}

// discard ends a replica's decoder. That may happen twice, when a load ends while the
// last user leaves, or when the sampler is closed while it has users; decoders allow it.
func (s *Sampler) discard(rep *replica) {
	s.mu.Lock()
	delete(s.live, rep)
	s.mu.Unlock()
	if rep.decoder != nil {
		rep.decoder.Close()
	}
}
