package upstream

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/fulgurite/fulgurite/internal/wait"
	"github.com/fulgurite/fulgurite/model"
)

// longestRetry is the longest time for which a replica that failed is not asked.
const longestRetry = time.Minute

// replica is one server.
type replica struct {
	url   string
	retry time.Duration // how long it is not asked after a first failure

	mu       sync.Mutex
	backoff  time.Duration // how long it is not asked after the next failure
	retryAt  time.Time     // when it may be tried again, if it failed
	retrying bool          // one request finds out whether it is back
	checked  bool          // its log-probabilities are known to respect the temperature
	probed   bool          // it is known to sample only from the log-probabilities that it reports
	loaded   map[model.VersionID]served

	// loading is held for reading while calls sample, and for writing while the weights
	// change.
	loading sync.RWMutex
	// admitting is held while an adapter is added.
	admitting sync.Mutex
}

// served is a version that a replica serves.
type served struct {
	name    string // of the model in requests for it
	weights string // their digest
}

// affinity is how many tokens of a prompt decide which replica it goes to: the first
// tokens of a dialog stay the same.
const affinity = 64

// choose returns the replica that the prompt's first tokens belong to, by rendezvous
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
		if r.mayBeAsked() {
			return r.replica, nil
		}
	}
	return nil, fmt.Errorf("%w: all %d replicas failed lately", ErrAway, len(order))
}

// mayBeAsked reports whether the caller may send a request to the replica. After a
// failure, one caller may, once the waiting time is over; no other caller may before the
// result of that request.
func (r *replica) mayBeAsked() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.retryAt.IsZero():
		return true
	case r.retrying || time.Now().Before(r.retryAt):
		return false
	}
	r.retrying = true
	return true
}

// noteResult records how a request ended. A request that its caller gave up says nothing
// about the replica.
func (r *replica) noteResult(err error, givenUp bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	retrying := r.retrying
	r.retrying = false
	switch {
	case err == nil:
		r.backoff, r.retryAt = 0, time.Time{}
	case givenUp || !isFault(err):
		if retrying && !givenUp {
			r.backoff, r.retryAt = 0, time.Time{} // it answered
		}
	default:
		r.checked, r.probed = false, false
		r.backoff = min(max(r.retry, 2*r.backoff), longestRetry)
		r.retryAt = time.Now().Add(r.backoff)
	}
}

// forgetVersions makes the next request load its version again.
func (r *replica) forgetVersions() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.loaded = nil
}

// forget makes the next request for v load it again.
func (r *replica) forget(v model.VersionID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.loaded, v)
}

func (r *replica) has(v model.VersionID) (on served, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	on, ok = r.loaded[v]
	return on, ok
}

// add records that the replica serves a version in addition to others.
func (r *replica) add(v model.VersionID, on served) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.loaded == nil {
		r.loaded = map[model.VersionID]served{}
	}
	r.loaded[v] = on
}

// acquire makes the replica serve a version. If the replica serves one version at a time,
// it can't serve another until release is called.
func (s *Sampler) acquire(ctx context.Context, at *replica, v model.VersionID) (on served, release func(), err error) {
	switch s.options.Versions {
	case None:
		return served{s.options.Model, "server:" + s.options.Model}, func() {}, nil
	case Adapters:
		on, err = s.admit(ctx, at, v)
		return on, func() {}, err
	}
	for {
		at.loading.RLock()
		if on, ok := at.has(v); ok {
			return on, at.loading.RUnlock, nil
		}
		at.loading.RUnlock()
		if err := s.switchTo(ctx, at, v); err != nil {
			return served{}, nil, err
		}
	}
}

// switchTo makes the replica load a version, once no call samples there.
func (s *Sampler) switchTo(ctx context.Context, at *replica, v model.VersionID) error {
	at.loading.Lock()
	defer at.loading.Unlock()
	if _, ok := at.has(v); ok || ctx.Err() != nil {
		return ctx.Err()
	}
	on, err := s.loadVersion(ctx, at, v)
	if err != nil {
		return err
	}
	at.forgetVersions()
	at.add(v, on)
	return nil
}

const (
	// longestSleep is how long a call waits for a server that sleeps. After that the call
	// is a fault and is made again.
	longestSleep = 30 * time.Minute
	// pollInterval is the interval at which such a call checks whether the server is awake.
	pollInterval = 250 * time.Millisecond
)

// SharesGPU reports whether the servers sleep while a trainer computes.
func (s *Sampler) SharesGPU() bool { return s.options.ShareGPU }

// Sleep makes every replica give up its GPU's memory once the current calls have ended.
// vLLM keeps the weights and the adapters in the machine's memory, and drops its cache. A
// replica that sleeps already stays as it is. If one can't sleep, Sleep wakes the others.
// Without Options.ShareGPU it does nothing.
func (s *Sampler) Sleep(ctx context.Context) error {
	if !s.options.ShareGPU {
		return nil
	}
	err := s.atEach(func(at *replica) error {
		at.forgetVersions()
		return s.switchSleep(ctx, at, "/sleep?level=1&mode=wait", true)
	})
	if err != nil {
		err = errors.Join(err, s.Wake(context.WithoutCancel(ctx)))
	}
	return err
}

// Wake makes every replica that sleeps take its memory again. At each replica, the next
// call checks its adapter by the canary again. Waking a replica that is awake does
// nothing.
func (s *Sampler) Wake(ctx context.Context) error {
	if !s.options.ShareGPU {
		return nil
	}
	return s.atEach(func(at *replica) error { return s.wake(ctx, at) })
}

func (s *Sampler) wake(ctx context.Context, at *replica) error {
	at.forgetVersions()
	asleep, err := s.isAsleep(ctx, at)
	if err != nil || !asleep {
		return err
	}
	return s.switchSleep(ctx, at, "/wake_up", false)
}

// switchSleep posts to a route that puts a replica to sleep or wakes it, and checks
// whether it worked.
func (s *Sampler) switchSleep(ctx context.Context, at *replica, route string, want bool) error {
	response, err := s.ask(ctx, http.MethodPost, at.url+route, nil)
	if err != nil {
		return explainSleep(at, err)
	}
	if err := response.Body.Close(); err != nil {
		return err
	}
	asleep, err := s.isAsleep(ctx, at)
	if err == nil && asleep != want {
		err = fmt.Errorf("%w: %s answered 200 to %s, and says is_sleeping %t", ErrReply, at.url, route, asleep)
	}
	return err
}

func (s *Sampler) isAsleep(ctx context.Context, at *replica) (bool, error) {
	response, err := s.ask(ctx, http.MethodGet, at.url+"/is_sleeping", nil) //nolint:bodyclose // readJSON closes it
	if err != nil {
		return false, explainSleep(at, err)
	}
	var reply struct {
		Asleep *bool `json:"is_sleeping"`
	}
	if err := readJSON(response, &reply); err != nil {
		return false, err
	}
	if reply.Asleep == nil {
		return false, fmt.Errorf("%w: /is_sleeping has no is_sleeping", ErrReply)
	}
	return *reply.Asleep, nil
}

// explainSleep adds to err what to do if a server has no such routes, or can't sleep.
func explainSleep(at *replica, err error) error {
	var r *refusal
	if !errors.As(err, &r) {
		return fmt.Errorf("sampling.server.share_gpu: %s: %w", at.url, err)
	}
	if r.status == http.StatusNotFound {
		return fmt.Errorf("%w: sampling.server.share_gpu: %s has no /sleep: start vLLM with --enable-sleep-mode and VLLM_SERVER_DEV_MODE=1 in its environment, or leave share_gpu out (%w)", ErrVersion, at.url, err)
	}
	return fmt.Errorf("sampling.server.share_gpu: %s: %w: was vLLM started with --enable-sleep-mode, on a GPU?", at.url, err)
}

// awake waits until a replica that shares its GPU is awake. While it sleeps, a trainer
// computes there.
func (s *Sampler) awake(ctx context.Context, at *replica) error {
	if !s.options.ShareGPU {
		return nil
	}
	for until := time.Now().Add(longestSleep); ; {
		asleep, err := s.isAsleep(ctx, at)
		if err != nil || !asleep {
			return err
		}
		at.forgetVersions() // versions are checked once it is awake
		if time.Now().After(until) {
			return fmt.Errorf("%w: %s has slept for %v; POST /wake_up wakes it", ErrAway, at.url, longestSleep)
		}
		if !wait.For(ctx, pollInterval) {
			return ctx.Err()
		}
	}
}
