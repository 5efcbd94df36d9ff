package fleet

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/fulgurite/fulgurite/internal/trust"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/sampler/remote"
	"github.com/fulgurite/fulgurite/record"
)

// ErrNoSampler is returned while no sampler holds a lease.
var ErrNoSampler = errors.New("no sampler is up")

// Samplers makes all samplers that hold a lease look like one. Requests go round robin to
// those that did not fail lately. But a request that begins with a prompt that was sent
// before goes to the same sampler, which has computed that prompt, unless this one is
// much busier than another. Samplers retries nothing itself: the gateway reports a
// failure as a fault, and the forwarder asks again.
type Samplers struct {
	finder *Finder
	peers  trust.Peers
	log    *zap.Logger

	mu      sync.Mutex
	clients map[string]*remote.Client // by URL
	failed  map[leaseID]time.Time
	prompts *sentPrompts
	running map[string]int // requests, by URL
	next    int
}

// spareRequests is how many requests beyond twice those of the least busy sampler another
// one may have and still get the requests that continue what it has computed.
const spareRequests = 8

// leaseID distinguishes a sampler from a later one of the same name.
type leaseID struct {
	name  string
	epoch int64
}

var _ remote.Sampler = (*Samplers)(nil)

// NewSamplers returns samplers that are found by their leases, and are asked as peers says.
func NewSamplers(leases Lister, peers trust.Peers, log *zap.Logger) *Samplers {
	return &Samplers{
		peers: peers, log: log,
		finder:  NewFinder(leases, record.Sampler, log),
		clients: map[string]*remote.Client{}, failed: map[leaseID]time.Time{},
		prompts: newSentPrompts(), running: map[string]int{},
	}
}

// Sample implements model.Sampler.
func (s *Samplers) Sample(ctx context.Context, v model.VersionID, r model.DecodeRequest) (model.Completion, string, error) {
	lease, err := s.begin(s.finder.Live(ctx), v, r.Prompt)
	if err != nil {
		return model.Completion{}, "", fmt.Errorf("sample %s: %w", v, err)
	}
	defer s.end(lease)
	c, weights, err := s.client(lease.URL).Sample(ctx, v, r)
	if remote.IsFault(err) && ctx.Err() == nil {
		s.markFailed(lease)
	}
	return c, weights, err
}

// Publish makes a version ready at every sampler, so that the first requests don't wait
// for it. A sampler that can't be reached, or fails, is left out and named in the log: it
// gets no requests while it fails, and when it comes back it loads the version by itself.
// If all fail, that is an error.
func (s *Samplers) Publish(ctx context.Context, v model.VersionID) error {
	s.finder.Invalidate()
	live := s.finder.Live(ctx)
	if len(live) == 0 {
		return fmt.Errorf("publish %s: %w", v, ErrNoSampler)
	}
	failures := make([]error, len(live))
	var all sync.WaitGroup
	for i, lease := range live {
		all.Go(func() {
			if err := s.client(lease.URL).Publish(ctx, v); err != nil {
				failures[i] = fmt.Errorf("sampler %s at %s: %w", lease.Name, lease.URL, err)
			}
		})
	}
	all.Wait()
	failed := 0
	for i, err := range failures {
		switch {
		case err == nil:
		case !remote.IsFault(err) || ctx.Err() != nil:
			return err
		default:
			failed++
			s.markFailed(live[i])
		}
	}
	if failed == len(live) {
		return fmt.Errorf("publish %s: no sampler can be reached: %w", v, errors.Join(failures...))
	}
	if failed > 0 {
		s.log.Warn("version is not ready at samplers that can't be reached; they get no calls until they answer", zap.Stringer("version", v), zap.Error(errors.Join(failures...)))
	}
	return nil
}

// Close closes idle connections.
func (s *Samplers) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.clients {
		c.Close()
	}
}

// begin chooses a sampler for a request and counts it there until end.
func (s *Samplers) begin(live []record.Lease, v model.VersionID, prompt []int32) (record.Lease, error) {
	if len(live) == 0 {
		s.finder.Invalidate()
		return record.Lease{}, ErrNoSampler
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.prune(live)
	l, ok := s.chooseByPrompt(live, v, prompt)
	if !ok {
		l = s.chooseNext(live)
	}
	s.prompts.remember(v, prompt, l.URL)
	s.running[l.URL]++
	return l, nil
}

func (s *Samplers) end(l record.Lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running[l.URL]--; s.running[l.URL] == 0 {
		delete(s.running, l.URL)
	}
}

// chooseByPrompt returns the sampler that was sent what the prompt begins with, if it did
// not fail lately and is not too busy.
func (s *Samplers) chooseByPrompt(live []record.Lease, v model.VersionID, prompt []int32) (found record.Lease, ok bool) {
	url := s.prompts.find(v, prompt)
	if url == "" {
		return found, false
	}
	least := s.running[url]
	for _, l := range live {
		if _, failed := s.failed[leaseIDOf(l)]; failed {
			continue
		}
		least = min(least, s.running[l.URL])
		if l.URL == url {
			found, ok = l, true
		}
	}
	return found, ok && s.running[url] <= 2*least+spareRequests
}

// chooseNext returns the next of the samplers that did not fail lately. If all did, it
// returns the one that failed first, which has had the longest time to recover. The
// caller holds mu.
func (s *Samplers) chooseNext(live []record.Lease) record.Lease {
	s.next++
	first, longest := live[0], time.Now()
	for i := range live {
		l := live[(s.next+i)%len(live)]
		at, failed := s.failed[leaseIDOf(l)]
		if !failed {
			return l
		}
		if at.Before(longest) {
			first, longest = l, at
		}
	}
	return first
}

// prune forgets samplers that are gone, and failures from before the last TTL.
func (s *Samplers) prune(live []record.Lease) {
	for h, at := range s.failed {
		if time.Since(at) > TTL {
			delete(s.failed, h)
		}
	}
	urls := map[string]bool{}
	for _, l := range live {
		urls[l.URL] = true
	}
	for url, c := range s.clients {
		if !urls[url] {
			c.Close()
			delete(s.clients, url)
		}
	}
}

func (s *Samplers) markFailed(l record.Lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed[leaseIDOf(l)] = time.Now()
	s.finder.Invalidate()
}

func (s *Samplers) client(url string) *remote.Client {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, ok := s.clients[url]
	if !ok {
		c = remote.NewClient(url, remote.Options{Peers: s.peers})
		s.clients[url] = c
	}
	return c
}

func leaseIDOf(l record.Lease) leaseID { return leaseID{l.Name, l.Epoch} }

// refreshEvery is the greatest age of the leases that were read.
const refreshEvery = time.Second

// Fixed is a list of one lease that never ends: a process at a known URL.
type Fixed string

// Leases implements Lister.
func (f Fixed) Leases(_ context.Context, role record.Role) ([]record.Lease, error) {
	return []record.Lease{{Role: role, Name: string(f), URL: string(f), Epoch: 1}}, nil
}

// Finder reads the leases of a role, at most every second. While the store does not
// answer, it returns those it read last.
type Finder struct {
	leases Lister
	role   record.Role
	log    *zap.Logger

	mu   sync.Mutex
	live []record.Lease
	read time.Time
}

// NewFinder returns a finder that reads nothing before it is asked.
func NewFinder(leases Lister, role record.Role, log *zap.Logger) *Finder {
	return &Finder{leases: leases, role: role, log: log}
}

// URL returns the URL of the latest lease, or "" if there is none.
func (f *Finder) URL() string {
	live := f.Live(context.Background())
	if len(live) == 0 {
		return ""
	}
	return live[0].URL
}

// Live returns the leases that are not over, the latest first.
func (f *Finder) Live(ctx context.Context) []record.Lease {
	f.mu.Lock()
	defer f.mu.Unlock()
	if time.Since(f.read) < refreshEvery {
		return f.live
	}
	ctx, cancel := context.WithTimeout(ctx, refreshEvery)
	defer cancel()
	live, err := f.leases.Leases(ctx, f.role)
	if err != nil {
		f.log.Warn("leases not read", zap.String("role", string(f.role)), zap.Error(err))
	} else {
		f.live = live
	}
	f.read = time.Now() // also after an error, so that not every request waits for a store that is away
	return f.live
}

// Invalidate makes the next call read the leases, whatever their age.
func (f *Finder) Invalidate() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.read = time.Time{}
}

const (
	// leastPrompt is the number of tokens from which on a prompt is remembered. Computing
	// a shorter one again costs less than a load that is unequal among the samplers.
	leastPrompt = 64
	// rememberedPrompts is how many of the last prompts are remembered at least; at most
	// are twice as many.
	rememberedPrompts = 1 << 14
)

// sentPrompts remembers which sampler was lately sent which prompt. A prompt that begins with
// it should go to the same sampler: the other samples of a group, and the next turns of a
// dialog. It keeps only digests of prompts. If two prompts had the same digest, a sampler
// would compute a prompt that another has, and nothing else would happen.
type sentPrompts struct {
	seed         maphash.Seed
	newer, older map[uint64]string // URL by digest
}

func newSentPrompts() *sentPrompts {
	return &sentPrompts{seed: maphash.MakeSeed(), newer: map[uint64]string{}}
}

// find returns the URL of the sampler that was sent the longest prompt that this one
// begins with; it is empty if none was.
func (p *sentPrompts) find(v model.VersionID, prompt []int32) (url string) {
	p.eachDigest(v, prompt, func(digest uint64) {
		if at, ok := p.newer[digest]; ok {
			url = at
		} else if at, ok := p.older[digest]; ok {
			url = at
		}
	})
	return url
}

// remember notes that the sampler at url is sent a prompt.
func (p *sentPrompts) remember(v model.VersionID, prompt []int32, url string) {
	if len(prompt) < leastPrompt {
		return
	}
	var last uint64
	p.eachDigest(v, prompt, func(digest uint64) { last = digest })
	if p.newer[last] = url; len(p.newer) >= rememberedPrompts {
		p.newer, p.older = map[uint64]string{}, p.newer
	}
}

// eachDigest calls use with the digests of all beginnings that are long enough, the whole
// prompt's last.
func (p *sentPrompts) eachDigest(v model.VersionID, prompt []int32, use func(digest uint64)) {
	const prime = 1099511628211 // of FNV-1a
	digest := maphash.Comparable(p.seed, v)
	for i, token := range prompt {
		if digest = (digest ^ uint64(uint32(token))) * prime; i+1 >= leastPrompt {
			use(digest)
		}
	}
}
