package upstream

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"slices"
	"sync"
	"time"

	"github.com/fulgurite/fulgurite/model"
)

// longestRetry is the longest time that a replica which failed is left alone.
const longestRetry = time.Minute

// replica is one server.
type replica struct {
	url   string
	retry time.Duration // the first time to leave it alone

	mu      sync.Mutex
	wait    time.Duration // to leave it alone for after the next failure
	again   time.Time     // when it may be tried again, if it failed
	probing bool          // one request finds out whether it is back
	heeds   bool          // its log-probabilities are known to heed the temperature

	// loading is held, for reading, by whoever samples, and for writing by whoever
	// changes the weights.
	loading sync.RWMutex
	loaded  map[model.VersionID]string // digests of the versions that it serves
}

// affinity is how many tokens of a prompt decide where it goes: dialogs keep their
// beginning.
const affinity = 64

// choose takes the replica that the prompt's beginning belongs to, by rendezvous
// hashing, or the next one that may be asked.
func (s *Sampler) choose(prompt []int32) (*replica, error) {
	h := fnv.New64a()
	_ = binary.Write(h, binary.LittleEndian, prompt[:min(len(prompt), affinity)])
	type ranked struct {
		*replica
		weight uint64
	}
	order := make([]ranked, len(s.replicas))
	for i, r := range s.replicas {
		of := fnv.New64a()
		_ = binary.Write(of, binary.LittleEndian, h.Sum64())
		_, _ = of.Write([]byte(r.url))
		order[i] = ranked{r, of.Sum64()}
	}
	slices.SortFunc(order, func(a, b ranked) int { return cmp.Compare(b.weight, a.weight) })
	for _, r := range order {
		if r.admit() {
			return r.replica, nil
		}
	}
	return nil, fmt.Errorf("%w: all %d replicas failed lately", ErrAway, len(order))
}

// admit reports whether the replica may be asked. Of those that ask one which failed,
// one is let through.
func (r *replica) admit() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.again.IsZero():
		return true
	case r.probing || time.Now().Before(r.again):
		return false
	}
	r.probing = true
	return true
}

// report notes how a request ended. One that its asker gave up says nothing.
func (r *replica) report(err error, givenUp bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	probing := r.probing
	r.probing = false
	switch {
	case err == nil:
		r.wait, r.again = 0, time.Time{}
	case givenUp || !isFault(err):
		if probing && !givenUp {
			r.wait, r.again = 0, time.Time{} // it answered
		}
	default:
		r.heeds = false
		r.wait = min(max(r.retry, 2*r.wait), longestRetry)
		r.again = time.Now().Add(r.wait)
	}
}

// forget makes the next request load its version again.
func (r *replica) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.loaded = nil
}

func (r *replica) has(v model.VersionID) (weights string, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	weights, ok = r.loaded[v]
	return weights, ok
}

// hold makes the replica serve a version and keeps it from serving another until
// release is called. name is the model's name in requests for the version.
func (s *Sampler) hold(ctx context.Context, at *replica, v model.VersionID) (name, weights string, release func(), err error) {
	name = s.nameOf(v)
	if s.options.Versions == None {
		return name, "server:" + s.options.Model, func() {}, nil
	}
	for {
		at.loading.RLock()
		if weights, ok := at.has(v); ok {
			return name, weights, at.loading.RUnlock, nil
		}
		at.loading.RUnlock()
		if err := s.change(ctx, at, v); err != nil {
			return "", "", nil, err
		}
	}
}

// change has the replica load a version, once nobody samples there.
func (s *Sampler) change(ctx context.Context, at *replica, v model.VersionID) error {
	at.loading.Lock()
	defer at.loading.Unlock()
	if _, ok := at.has(v); ok || ctx.Err() != nil {
		return ctx.Err()
	}
	weights, err := s.bring(ctx, at, v)
	if err != nil {
		return err
	}
	at.mu.Lock()
	defer at.mu.Unlock()
	if s.options.Versions == Reload || at.loaded == nil {
		at.loaded = map[model.VersionID]string{}
	}
	at.loaded[v] = weights
	return nil
}
