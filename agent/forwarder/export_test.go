package forwarder

import (
	"io"
	"time"

	"github.com/fulgurite/fulgurite/internal/protocol"
)

// Probe shortens the times after which a gateway is asked for its health and given up.
func (f *Forwarder) Probe(every, limit time.Duration) {
	f.probing.Every, f.probing.Patience = every, limit
}

// SplitEvents reads a stream to its end and looks at each event as a forwarder does.
func SplitEvents(r io.Reader) (list []string, rest string) {
	in := newEvents(r)
	for {
		event, err := in.next()
		_, _ = protocol.KindOf(event), protocol.BlamesAgent(event)
		if err != nil {
			return list, string(event)
		}
		list = append(list, string(event))
	}
}

// ClosedStreams counts the streams that are read without their agent.
func (s *Session) ClosedStreams() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.closedStreams)
}
