package agent

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/fulgurite/fulgurite/internal/protocol"
	"github.com/fulgurite/fulgurite/trace"
	"github.com/fulgurite/fulgurite/wire"
)

// refusals is how many requests beyond its limit an agent may make. One that took
// the first for an answer has ended by then; this one would go on for ever.
const refusals = 100

// heed looks for refusals that end the session. An error says that the agent must
// not see the reply.
func (s *Session) heed(header http.Header, body []byte) error {
	switch code := protocol.CodeOf(header, body); code {
	case protocol.CodeFenced:
		err := fmt.Errorf("gateway refused attempt %s: %w", s.address, trace.ErrFenced)
		s.visible(err) // whoever sees the end sees the reason
		s.end(err)
		return err
	case protocol.CodeCallLimit, protocol.CodeTokenLimit:
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
	api := wire.Chat
	if r.Header.Get("Anthropic-Version") != "" || strings.Contains(r.URL.Path, "/v1/messages") {
		api = wire.Messages
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set(protocol.CodeHeader, code)
	w.WriteHeader(status)
	_, _ = w.Write((&wire.Failure{Status: status, Code: code, Message: message}).Body(api)) // who left does not read why
}
