package protocol

import (
	"bytes"
	"slices"

	"github.com/fulgurite/fulgurite/wire"
)

// EventKind is the kind of a server-sent event in a streamed reply.
type EventKind int

// The kinds.
const (
	ReplyEvent EventKind = iota // part of the reply
	Keepalive                   // only a sign of life
	ErrorEvent                  // tells of an error
)

// KindOf returns the kind of an event. Keepalives are comments and, in Anthropic's API,
// the event ping. A part of a reply whose error is null is not an error.
func KindOf(event []byte) EventKind {
	comment := true
	for line := range bytes.Lines(event) {
		line = bytes.TrimRight(line, "\r\n")
		if bytes.Equal(line, []byte("event: ping")) {
			return Keepalive
		}
		comment = comment && (len(line) == 0 || line[0] == ':')
	}
	if comment {
		return Keepalive
	}
	if bytes.Contains(event, []byte(`"error"`)) {
		if _, failed := wire.ReadFailure(EventData(event)); failed {
			return ErrorEvent
		}
	}
	return ReplyEvent
}

// EventData returns the data of an event.
func EventData(event []byte) []byte {
	var data []byte
	for line := range bytes.Lines(event) {
		if rest, ok := bytes.CutPrefix(line, []byte("data:")); ok {
			data = append(data, rest...)
		}
	}
	return bytes.TrimSpace(data)
}

// BlamesAgent reports whether an ErrorEvent blames the agent's request. Any other error
// is a fault of the infrastructure.
func BlamesAgent(event []byte) bool {
	words, _ := wire.ReadFailure(EventData(event))
	return slices.ContainsFunc(words, func(word string) bool {
		switch word {
		case CodeFenced, CodeCallLimit, CodeTokenLimit:
			return true
		}
		return wire.BlamesRequest(word)
	})
}
