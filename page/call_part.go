package page

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"go.uber.org/zap"

	"github.com/fulgurite/fulgurite/page/format"
	"github.com/fulgurite/fulgurite/trace"
	"github.com/fulgurite/fulgurite/wire"
)

// anyGateway takes the place of the gateway's URL in a command if no gateway is known.
const anyGateway = "$OPENAI_BASE_URL"

// callPart writes a part of a recorded call: the request or the reply as JSON, or a command
// that asks for it again.
func (s *Server) callPart(w http.ResponseWriter, r *http.Request) {
	kind, body, err := s.partOf(r)
	switch {
	case err == nil:
	case r.Context().Err() != nil:
		return // the client has left
	case errors.Is(err, trace.ErrNotFound), errors.Is(err, trace.ErrAddress):
		http.Error(w, format.Shown(err.Error()), http.StatusNotFound)
		return
	default:
		s.Log.Error("part of a call", zap.String("path", r.URL.Path), zap.Error(err))
		http.Error(w, "the call could not be read: "+format.Shown(err.Error()), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", kind)
	_, _ = w.Write(body) // it is no error if the reader has left
}

func (s *Server) partOf(r *http.Request) (kind string, body []byte, err error) {
	at, err := placeOf(r.PathValue("run"), r.PathValue("step"), r.PathValue("task"), r.PathValue("sample"), r.PathValue("attempt"))
	if err != nil {
		return "", nil, err
	}
	seq, err := strconv.Atoi(r.PathValue("call"))
	if err != nil || seq < 0 {
		return "", nil, fmt.Errorf("%w: there is no such call", trace.ErrNotFound)
	}
	calls, err := s.Records.ExchangesBetween(r.Context(), at, seq, seq+1)
	if err != nil {
		return "", nil, err
	}
	if len(calls) == 0 {
		return "", nil, fmt.Errorf("%w: %s has no call %d", trace.ErrNotFound, at, seq)
	}
	switch r.PathValue("part") {
	case "request.json":
		return "application/json", indented(calls[0].Request), nil
	case "reply.json":
		return "application/json", indented(calls[0].Response), nil
	case "curl":
		return "text/plain; charset=utf-8", []byte(s.curl(r, calls[0])), nil
	}
	return "", nil, fmt.Errorf("%w: a call has request.json, reply.json and curl", trace.ErrNotFound)
}

// indented returns JSON with indentation. Text that is not JSON is returned as a JSON
// string.
func indented(raw json.RawMessage) []byte {
	var b bytes.Buffer
	if json.Indent(&b, raw, "", "  ") == nil {
		return escaped(b.Bytes())
	}
	text, err := json.Marshal(string(raw))
	if err != nil {
		return nil // strings always encode
	}
	return escaped(text)
}

// escaped returns JSON with the same meaning, in which characters that a terminal or an
// editor would obey, hide or reverse are written as JSON's escape sequences.
func escaped(text []byte) []byte {
	var out []byte
	for len(text) > 0 {
		r, size := utf8.DecodeRune(text)
		switch {
		case r == '\n' || r == '\t' || unicode.IsPrint(r) && (r != utf8.RuneError || size > 1):
			out = append(out, text[:size]...)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			out = fmt.Appendf(out, `\u%04x\u%04x`, high, low)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
		text = text[size:]
	}
	return out
}

// curl returns a command for a POSIX shell that sends the call's request again, to the
// version that answered it.
func (s *Server) curl(r *http.Request, call trace.Exchange) string {
	gateway := anyGateway
	if s.Fleet != nil {
		if at, err := s.Fleet.Gateway(r.Context()); err == nil {
			gateway = at
		}
	}
	path := map[wire.API]string{wire.Completions: "/completions", wire.Responses: "/responses", wire.Messages: "/messages"}[wire.API(call.API)]
	if path == "" {
		path = "/chat/completions"
	}
	body := []byte(call.Request)
	var fields map[string]json.RawMessage
	if json.Unmarshal(body, &fields) == nil && fields != nil {
		name, err := json.Marshal(fmt.Sprintf("%s@%d", call.Address.Run, call.Version))
		if err == nil {
			fields["model"] = name
			if changed, err := json.Marshal(fields); err == nil {
				body = changed
			}
		}
	}
	return fmt.Sprintf("curl \"%s%s\" -H 'Content-Type: application/json' -d '%s'\n", gateway, path, strings.ReplaceAll(string(escaped(body)), "'", `'\''`))
}
