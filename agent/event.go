package agent

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
)

// errComplained is for a stream that told the agent of a fault of ours.
var errComplained = errors.New("the gateway told of a fault in a stream")

// events reads a stream of server-sent events.
type events struct{ in *bufio.Reader }

func newEvents(r io.Reader) events { return events{bufio.NewReaderSize(r, 32<<10)} }

// next returns the next event with the blank line that ends it. With io.EOF it
// returns what stands after the last one; of an event that is broken off, nothing.
func (e events) next() ([]byte, error) {
	var event []byte
	begun := 0 // of the present line
	for {
		piece, err := e.in.ReadSlice('\n')
		event = append(event, piece...)
		switch {
		case len(event) > replyBytes:
			return nil, fmt.Errorf("an event of more than %d bytes", replyBytes)
		case errors.Is(err, bufio.ErrBufferFull):
			continue // in the middle of a line
		case errors.Is(err, io.EOF):
			return event, io.EOF
		case err != nil:
			return nil, err
		case len(bytes.TrimRight(event[begun:], "\r\n")) == 0:
			return event, nil
		}
		begun = len(event)
	}
}

// eventKind says what the forwarder does with an event.
type eventKind int

const (
	speech    eventKind = iota // part of the reply
	keepalive                  // nothing but a sign of life
	complaint                  // tells of an error
)

// kindOf looks at an event. Keepalives are comments and, of Anthropic's API, the
// event ping; errors are told apart from replies whose error is null.
func kindOf(event []byte) eventKind {
	comment := true
	for line := range bytes.Lines(event) {
		line = bytes.TrimRight(line, "\r\n")
		if bytes.Equal(line, []byte("event: ping")) {
			return keepalive
		}
		comment = comment && (len(line) == 0 || line[0] == ':')
	}
	switch {
	case comment:
		return keepalive
	case bytes.Contains(event, []byte(`"error"`)) && readGrievance(event).told():
		return complaint
	}
	return speech
}

// dataOf is the data of an event.
func dataOf(event []byte) []byte {
	var data []byte
	for line := range bytes.Lines(event) {
		if rest, ok := bytes.CutPrefix(line, []byte("data:")); ok {
			data = append(data, rest...)
		}
	}
	return bytes.TrimSpace(data)
}

// grievance is an error in the middle of a stream: OpenAI's {"error": …}, its
// event {"type": "error", …} or {"type": "response.failed", …} of Responses, or
// Anthropic's {"type": "error", "error": …}.
type grievance struct {
	Type     string
	Code     any
	Error    *struct{ Type, Code any }
	Response struct {
		Error *struct{ Code any }
	}
}

func readGrievance(event []byte) (g grievance) {
	if json.Unmarshal(dataOf(event), &g) != nil {
		return grievance{} // such as [DONE]
	}
	return g
}

func (g grievance) told() bool { return g.Type == "error" || g.Error != nil || g.Response.Error != nil }

// isOwn reports whether a complaint blames the agent's request. What nobody is
// blamed for by name is a fault of ours.
func isOwn(event []byte) bool {
	g := readGrievance(event)
	words := []any{g.Code}
	if g.Error != nil {
		words = append(words, g.Error.Type, g.Error.Code)
	}
	return slices.ContainsFunc(words, func(word any) bool {
		switch word {
		case "invalid_request_error", "authentication_error", "permission_error", "not_found_error", "request_too_large", "rate_limit_error",
			"invalid_value", codeFenced, codeCallLimit, codeTokenLimit:
			return true
		}
		return false
	})
}
