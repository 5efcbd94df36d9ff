package forwarder

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"

	"github.com/fulgurite/fulgurite/internal/protocol"
)

// authorizes reports whether the request holds the key of the session. A session without
// a key authorizes nothing.
func (s *Session) authorizes(r *http.Request) bool {
	got, want := sha256.Sum256([]byte(protocol.PresentedKey(r))), sha256.Sum256([]byte(s.key))
	return subtle.ConstantTimeCompare(got[:], want[:]) == 1 && s.key != ""
}
