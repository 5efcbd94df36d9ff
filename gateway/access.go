package gateway

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"strings"

	"github.com/fulgurite/fulgurite/gateway/conversation"
	"github.com/fulgurite/fulgurite/internal/protocol"
	"github.com/fulgurite/fulgurite/trace"
	"github.com/fulgurite/fulgurite/wire"
)

// maxAgent is the most bytes of an agent's name in a path.
const maxAgent = 128

// attemptHandler answers a request below the path of an attempt.
type attemptHandler func(http.ResponseWriter, *http.Request, *conversation.Conversation) error

// inAttempt admits requests that present the key of the attempt in their path.
func (g *Gateway) inAttempt(handle attemptHandler) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		var parts []string
		for _, name := range []string{"run", "step", "task", "sample", "attempt"} {
			parts = append(parts, r.PathValue(name))
		}
		address, err := trace.ParseAddress(strings.Join(parts, "/"))
		if err != nil {
			return unknownURL(err, "no attempt has this URL: use the base URL that the agent is given (OPENAI_BASE_URL)")
		}
		if len(r.PathValue("agent")) > maxAgent {
			return unknownURL(nil, "the agent's name has more than %d bytes", maxAgent)
		}
		key := protocol.PresentedKey(r)
		if key == "" {
			return missingKey()
		}
		c := g.conversations.enter(address, g.config.Now())
		defer func() { g.conversations.leave(address, g.config.Now(), !c.Exists()) }()
		if err := c.Enter(r.Context(), key); err != nil {
			return err
		}
		g.conversations.weigh(address, g.config.Now())
		return handle(w, r, c)
	}
}

// outOfAttempt adapts a handler that does not depend on the attempt.
func outOfAttempt(handle func(http.ResponseWriter, *http.Request) error) attemptHandler {
	return func(w http.ResponseWriter, r *http.Request, _ *conversation.Conversation) error { return handle(w, r) }
}

// serving admits requests that present the serving key, if there is one.
func (g *Gateway) serving(handle func(http.ResponseWriter, *http.Request) error) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		if g.config.Versions == nil {
			return unknownURL(nil, "this gateway serves attempts only")
		}
		if g.config.ServingKey == "" {
			return handle(w, r)
		}
		got, want := sha256.Sum256([]byte(protocol.PresentedKey(r))), sha256.Sum256([]byte(g.config.ServingKey))
		if subtle.ConstantTimeCompare(got[:], want[:]) != 1 {
			return missingKey()
		}
		return handle(w, r)
	}
}

func missingKey() *wire.Failure {
	return &wire.Failure{
		Status: http.StatusUnauthorized, Code: protocol.CodeInvalidKey,
		Message: "no valid API key: send it as Authorization: Bearer KEY, or as X-Api-Key",
	}
}

// wrongKey refuses a key that does not belong to the attempt.
func wrongKey() *wire.Failure {
	return &wire.Failure{
		Status: http.StatusUnauthorized, Code: protocol.CodeInvalidKey,
		Message: "the API key is not that of this attempt: use the one that the agent is given (OPENAI_API_KEY)",
	}
}
