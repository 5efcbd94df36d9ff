package gateway

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/fulgurite/fulgurite/internal/protocol"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/wire"
)

// Keys finds the serving keys of clients.
type Keys interface {
	// Key returns the serving key that a client presents, also if it was revoked. ok is false
	// if there is none.
	Key(ctx context.Context, presented string) (key record.ServingKey, ok bool, err error)
}

// client is who asks outside attempts.
type client struct {
	// key is that of a client with a serving key of its own. It is zero for those who
	// present the serving key of the process, and for all where none is needed.
	key record.ServingKey
	// operator says that the client has all scopes.
	operator bool
}

// has reports whether the client has one of the scopes.
func (c client) has(scopes ...string) bool {
	if c.operator {
		return true
	}
	for _, scope := range scopes {
		if c.key.HasScope(scope) {
			return true
		}
	}
	return false
}

// judges reports whether the client may give feedback on a conversation.
func (c client) judges(conversation record.Conversation) bool {
	return c.has(record.ScopeFeedbackAny) || conversation.Key == c.key.Name
}

type clientKey struct{}

// clientOf returns who makes a request that serving admitted.
func clientOf(ctx context.Context) client {
	c, _ := ctx.Value(clientKey{}).(client)
	return c
}

// serving admits requests of clients that may ask versions.
func (g *Gateway) serving(handle func(http.ResponseWriter, *http.Request) error) func(http.ResponseWriter, *http.Request) error {
	return g.within(handle, record.ScopeServe)
}

// within admits requests of clients with one of the scopes: those that present the serving
// key of the process, or a key with such a scope. Without a serving key of the process,
// everybody who presents no other key has all scopes, unless Closed is set.
func (g *Gateway) within(handle func(http.ResponseWriter, *http.Request) error, scopes ...string) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		if g.config.Versions == nil {
			return unknownURL(nil, "this gateway serves attempts only")
		}
		if err := checkAgent(r); err != nil {
			return err
		}
		c, err := g.client(r)
		if err != nil {
			return err
		}
		if err := g.limit(w, c, 1, 0); err != nil {
			return err
		}
		if !c.has(scopes...) {
			return &wire.Failure{Status: http.StatusForbidden, Code: "missing_scope", Message: fmt.Sprintf("the API key %s has not the scope %s", c.key.Name, strings.Join(scopes, " or "))}
		}
		return handle(w, r.WithContext(context.WithValue(r.Context(), clientKey{}, c)))
	}
}

// limit takes requests of a client's limit, less those that are paid, or refuses them.
func (g *Gateway) limit(w http.ResponseWriter, c client, requests, paid int) error {
	wait := g.limits.take(c.key, requests, paid, g.config.Now())
	if wait <= 0 {
		return nil
	}
	w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(wait.Seconds()))))
	return &wire.Failure{Status: http.StatusTooManyRequests, Code: "rate_limit_exceeded", Message: fmt.Sprintf("the API key %s may make %d requests a minute", c.key.Name, c.key.PerMinute)}
}

// client finds out who makes a request.
func (g *Gateway) client(r *http.Request) (client, error) {
	presented := protocol.PresentedKey(r)
	got, want := sha256.Sum256([]byte(presented)), sha256.Sum256([]byte(g.config.ServingKey))
	if g.config.ServingKey != "" && subtle.ConstantTimeCompare(got[:], want[:]) == 1 {
		return client{operator: true}, nil
	}
	key, ok, err := g.keys.find(r.Context(), presented, got, g.config.Now())
	switch {
	case err != nil:
		return client{}, fault(fmt.Errorf("find the serving key of a client: %w", err))
	case ok && key.Revoked.IsZero():
		return client{key: key}, nil
	case ok, g.config.ServingKey != "":
		return client{}, missingKey()
	case g.config.Closed != "":
		return client{}, &wire.Failure{Status: http.StatusForbidden, Code: "serving_closed", Message: "no version is served here: " + g.config.Closed}
	}
	return client{operator: true}, nil
}

const (
	// keyAge is for how long a key that was found, or not found, is not looked for again.
	// After that time at most a revoked key is refused.
	keyAge = time.Second
	// maxKeys is how many keys are remembered. Those who try keys can't make it more.
	maxKeys = 4096
)

// keyCache remembers for a short time what was found under keys.
type keyCache struct {
	keys Keys // nil finds none

	mu    sync.Mutex
	found map[[sha256.Size]byte]foundKey
}

type foundKey struct {
	key record.ServingKey
	ok  bool
	at  time.Time
}

// find returns the key that a client presents; digest is its SHA-256.
func (c *keyCache) find(ctx context.Context, presented string, digest [sha256.Size]byte, now time.Time) (record.ServingKey, bool, error) {
	if c.keys == nil || presented == "" {
		return record.ServingKey{}, false, nil
	}
	c.mu.Lock()
	f, ok := c.found[digest]
	c.mu.Unlock()
	if age := now.Sub(f.at); ok && 0 <= age && age < keyAge {
		return f.key, f.ok, nil
	}
	key, ok, err := c.keys.Key(ctx, presented)
	if err != nil {
		return key, false, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.found == nil || len(c.found) >= maxKeys {
		c.found = map[[sha256.Size]byte]foundKey{}
	}
	c.found[digest] = foundKey{key, ok, now}
	return key, ok, nil
}

// rateLimits bounds how many requests a minute are answered to each key. A key that was not
// used for a minute has all of them at once. Each process counts for itself.
type rateLimits struct {
	mu      sync.Mutex
	buckets map[string]*bucket // by the name of the key
}

// bucket is what is left to a key.
type bucket struct {
	tokens float64
	at     time.Time
}

// take takes requests of a key's limit, all of it if they are more. For paid of them it was
// taken before. If less is left, it takes nothing, and returns after what time there is enough
// for all of them, since who tries again pays for all.
func (l *rateLimits) take(key record.ServingKey, requests, paid int, now time.Time) (wait time.Duration) {
	if key.PerMinute == 0 {
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	capacity := float64(key.PerMinute)
	b, ok := l.buckets[key.Name]
	if !ok {
		if l.buckets == nil {
			l.buckets = map[string]*bucket{}
		}
		b = &bucket{tokens: capacity, at: now}
		l.buckets[key.Name] = b
	}
	// A clock that was set back adds nothing.
	b.tokens = min(capacity, b.tokens+max(0, now.Sub(b.at).Minutes())*capacity)
	b.at = now
	all := min(float64(requests), capacity)
	want := all - float64(paid)
	if want > b.tokens {
		return time.Duration((all - b.tokens) / capacity * float64(time.Minute))
	}
	b.tokens -= max(0, want)
	return 0
}
