package forwarder

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/fulgurite/fulgurite/agent"
	"github.com/fulgurite/fulgurite/internal/protocol"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/wire"
)

// maxRefusals is how many requests beyond its limit an agent may make. An agent that
// accepts a refusal has ended long before; one that gets here would go on forever.
const maxRefusals = 100

// noteRefusal looks for refusals that end the session. An error says that the agent must
// not see the reply.
func (s *Session) noteRefusal(header http.Header, body []byte) error {
	switch code := protocol.CodeOf(header, body); code {
	case protocol.CodeFenced:
		err := fmt.Errorf("gateway refused attempt %s: %w", s.address, record.ErrFenced)
		s.taintBy(err) // a client that sees the end finds the reason, too
		s.end(err)
		return err
	case protocol.CodeCallLimit, protocol.CodeTokenLimit:
		s.mu.Lock()
		s.refusals++
		over := s.refusals == maxRefusals
		s.mu.Unlock()
		if over {
			s.end(&agent.LimitError{Failure: agent.Failure(code), Message: fmt.Sprintf("did not stop: %d of its requests were refused", maxRefusals)})
		}
	}
	return nil
}

// errRefused says that the forwarder itself answered the request with an error.
var errRefused = errors.New("request refused")

// refuseUnread refuses a request without reading its body, and does not wait long for the
// client to send it.
func refuseUnread(w http.ResponseWriter, r *http.Request, status int, code, message string) {
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(refusalTimeout)) // connections over TCP have deadlines
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
	_, _ = w.Write((&wire.Failure{Status: status, Code: code, Message: message}).Body(api)) // an error means that the client has left
}
