package process

import (
	"bytes"
	"fmt"
	"strings"
)

// headTail keeps the beginning and the end of what is written, as many bytes as it says.
// It is written to by one goroutine.
type headTail struct {
	headBytes, tailBytes int

	first   []byte
	last    []byte // what came after first, the newest of it
	dropped int64  // bytes between them
}

func (h *headTail) Write(p []byte) (int, error) {
	n := len(p)
	if room := h.headBytes - len(h.first); room > 0 {
		took := min(room, len(p))
		h.first, p = append(h.first, p[:took]...), p[took:]
	}
	if surplus := len(h.last) + len(p) - h.tailBytes; surplus > 0 {
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
	return fmt.Sprintf("%s\n[%d bytes left out]\n%s", bytes.ToValidUTF8(h.first, nil), h.dropped, h.tail())
}

// tail is what came after the beginning, without a character that was cut at its start
// and all else that isn't UTF-8.
func (h *headTail) tail() string { return string(bytes.ToValidUTF8(h.last, nil)) }
