package forwarder

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
)

// errFaultEvent is for a stream with an error event of a fault of ours.
var errFaultEvent = errors.New("the gateway told of a fault in a stream")

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
