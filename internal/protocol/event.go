package protocol

import (
	"bytes"
	"slices"

	"github.com/fulgurite/fulgurite/wire"
)

// EventKind says what a server-sent event of a streamed reply is.
type EventKind int

// The kinds.
const (
	ReplyEvent EventKind = iota // part of the reply
	Keepalive                   // nothing but a sign of life
	ErrorEvent                  // tells of an error
)

// KindOf looks at an event. Keepalives are comments and, of Anthropic's API, the
// event ping; errors are told apart from replies whose error is null.
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

// EventData is the data of an event.
func EventData(event []byte) []byte {
	var data []byte
	for line := range bytes.Lines(event) {
		if rest, ok := bytes.CutPrefix(line, []byte("data:")); ok {
			data = append(data, rest...)
		}
	}
	return bytes.TrimSpace(data)
}

// BlamesAgent reports whether an ErrorEvent blames the agent's request. An error that
// blames nobody by name is a fault of the machinery.
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
