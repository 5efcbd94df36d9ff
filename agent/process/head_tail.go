package process

import (
	"bytes"
	"fmt"
	"strings"
)

const (
	// headBytes and tailBytes are the most that is kept of the beginning and of the end
	// of what an agent prints, on each of its outputs.
	headBytes = 1 << 10
	tailBytes = 3 << 10
)

// headTail keeps the beginning and the end of what is written. It is written to by one
// goroutine.
type headTail struct {
	first   []byte
	last    []byte // what came after first, the newest of it
	dropped int64  // bytes between them
}

func (h *headTail) Write(p []byte) (int, error) {
	n := len(p)
	if room := headBytes - len(h.first); room > 0 {
		took := min(room, len(p))
		h.first, p = append(h.first, p[:took]...), p[took:]
	}
	if surplus := len(h.last) + len(p) - tailBytes; surplus > 0 {
		h.dropped += int64(surplus)
		gone := min(surplus, len(h.last))
		h.last = append(h.last[:0], h.last[gone:]...)
		p = p[surplus-gone:]
	}
	h.last = append(h.last, p...)
	return n, nil
}

// text says between the two how much is missing.
func (h *headTail) text() string {
	if h.dropped == 0 {
		return strings.ToValidUTF8(string(h.first)+string(h.last), "\uFFFD")
	}
	// A character that was cut at either side of the gap is left out.
	first, last := bytes.ToValidUTF8(h.first, nil), bytes.ToValidUTF8(h.last, nil)
	return fmt.Sprintf("%s\n[%d bytes left out]\n%s", first, h.dropped, last)
}
