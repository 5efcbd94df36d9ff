package access

import (
	"crypto/rand"
	"crypto/sha256"
	"sync"
	"time"
)

const (
	// sessionLife is how long a session lasts at most.
	sessionLife = 12 * time.Hour
	// maxSessions is how many sessions are kept; beyond it, the oldest is dropped.
	maxSessions = 1000
)

// session is the session of a browser that logged in.
type session struct {
	digest string // of the token's secret
	begun  time.Time
}

// sessions holds the sessions of one process, by the hash of the cookie's value.
type sessions struct {
	mu   sync.Mutex
	open map[[sha256.Size]byte]session
}

// begin opens a session for a token, and returns the cookie's value.
func (s *sessions) begin(digest string, now time.Time) string {
	id := rand.Text() + rand.Text() // 260 bits
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open == nil {
		s.open = map[[sha256.Size]byte]session{}
	}
	var oldest [sha256.Size]byte
	var since time.Time
	for key, one := range s.open {
		if now.Sub(one.begun) >= sessionLife {
			delete(s.open, key)
		} else if since.IsZero() || one.begun.Before(since) {
			oldest, since = key, one.begun
		}
	}
	if len(s.open) >= maxSessions {
		delete(s.open, oldest)
	}
	s.open[sha256.Sum256([]byte(id))] = session{digest, now}
	return id
}

// find returns the digest of the token that a session was begun with, if the session
// exists and has not ended.
func (s *sessions) find(id string, now time.Time) (string, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	one, ok := s.open[sha256.Sum256([]byte(id))]
	return one.digest, ok && now.Sub(one.begun) < sessionLife
}

func (s *sessions) end(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, sha256.Sum256([]byte(id)))
}
