package agent

import (
	"bytes"
	"fmt"
	"strings"
)

const (
	// headBytes and endBytes are the most that is kept of the beginning and of the end
	// of what an agent prints, on each of its outputs.
	headBytes = 1 << 10
	endBytes  = 3 << 10
)

// ends keeps the beginning and the end of what is written. It is written to by one
// goroutine.
type ends struct {
	first   []byte
	last    []byte // what came after first, the newest of it
	dropped int64  // bytes between them
}

func (e *ends) Write(p []byte) (int, error) {
	n := len(p)
	if room := headBytes - len(e.first); room > 0 {
		took := min(room, len(p))
		e.first, p = append(e.first, p[:took]...), p[took:]
	}
	if surplus := len(e.last) + len(p) - endBytes; surplus > 0 {
		e.dropped += int64(surplus)
		gone := min(surplus, len(e.last))
		e.last = append(e.last[:0], e.last[gone:]...)
		p = p[surplus-gone:]
	}
	e.last = append(e.last, p...)
	return n, nil
}

// text says between the two how much is missing.
func (e *ends) text() string {
	if e.dropped == 0 {
		return strings.ToValidUTF8(string(e.first)+string(e.last), "\uFFFD")
	}
	// A character that was cut at either side of the gap is left out.
	first, last := bytes.ToValidUTF8(e.first, nil), bytes.ToValidUTF8(e.last, nil)
	return fmt.Sprintf("%s\n[%d bytes left out]\n%s", first, e.dropped, last)
}
