package agent

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/fulgurite/fulgurite/trace"
)

// The codes in the gateway's refusals that concern the whole attempt.
const (
	codeFenced     = "attempt_fenced" // a later attempt has begun
	codeCallLimit  = "call_limit"
	codeTokenLimit = "token_limit"
)

// codeHeader on a refusal holds its code, for APIs whose errors have no place for it.
const codeHeader = "X-Fulgurite-Code"

// refusals is how many requests beyond its limit an agent may make. One that took
// the first for an answer has ended by then; this one would go on for ever.
const refusals = 100

// heed looks for refusals that end the session. An error says that the agent must
// not see the reply.
func (s *Session) heed(header http.Header, body []byte) error {
	var refusal struct {
		Code  string // of an event of a stream
		Error struct{ Code string }
	}
	_ = json.Unmarshal(body, &refusal) // what isn't JSON is no refusal of the gateway
	switch code := cmp.Or(header.Get(codeHeader), refusal.Error.Code, refusal.Code); code {
	case codeFenced:
		err := fmt.Errorf("gateway refused attempt %s: %w", s.address, trace.ErrFenced)
		s.visible(err) // whoever sees the end sees the reason
		s.end(err)
		return err
	case codeCallLimit, codeTokenLimit:
		s.mu.Lock()
		s.refused++
		over := s.refused == refusals
		s.mu.Unlock()
		if over {
			s.end(&exceeded{Failure(code), fmt.Sprintf("went on asking: %d requests were refused", refusals)})
		}
	}
	return nil
}

// errRefused is for a request that was answered with an error of the forwarder's own.
var errRefused = errors.New("request refused")

// turnAway refuses a request whose body nobody will read. What its client has not
// sent soon is not waited for.
func turnAway(w http.ResponseWriter, r *http.Request, status int, code, message string) {
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(refusalTime)) // connections over TCP have deadlines
	refuse(w, r, status, code, message)
}

// refuse answers with an error in the form that the client of the API understands:
// Anthropic's for its clients and below /v1/messages, else OpenAI's.
func refuse(w http.ResponseWriter, r *http.Request, status int, code, message string) {
	body := map[string]any{"error": map[string]any{"message": message, "type": "invalid_request_error", "code": code, "param": nil}}
	if r.Header.Get("Anthropic-Version") != "" || strings.Contains(r.URL.Path, "/v1/messages") {
		body = map[string]any{"type": "error", "error": map[string]any{"type": anthropicType(status), "message": message}}
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set(codeHeader, code)
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}

func anthropicType(status int) string {
	switch status {
	case http.StatusUnauthorized:
		return "authentication_error"
	case http.StatusNotFound:
		return "not_found_error"
	case http.StatusRequestEntityTooLarge:
		return "request_too_large"
	case http.StatusTooManyRequests:
		return "rate_limit_error"
	}
	return "invalid_request_error"
}
