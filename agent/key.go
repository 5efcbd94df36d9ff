package agent

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"strings"
)

// presentedKey is the API key in the headers of OpenAI's or Anthropic's SDKs, found
// as the gateway finds it.
func presentedKey(r *http.Request) string {
	scheme, key, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if strings.EqualFold(scheme, "Bearer") {
		return strings.TrimSpace(key)
	}
	return r.Header.Get("X-Api-Key")
}

// admits reports whether the request holds the key of the session. A session without
// a key admits nothing.
func (s *Session) admits(r *http.Request) bool {
	got, want := sha256.Sum256([]byte(presentedKey(r))), sha256.Sum256([]byte(s.key))
	return subtle.ConstantTimeCompare(got[:], want[:]) == 1 && s.key != ""
}
