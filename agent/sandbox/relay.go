package sandbox

import (
	"context"
	"io"
	"net"
	"sync"
	"time"
)

// dialTime is how long a host of a route has to accept a connection.
const dialTime = 30 * time.Second

// relay passes connections of a sandbox on to the machine. A listener that was made in the
// network of the sandbox stays there, wherever it is used. So the relay runs outside, and
// nothing inside could change where connections go.
type relay struct {
	ctx    context.Context
	cancel context.CancelFunc
	closed func() // closes the listeners
	work   sync.WaitGroup
}

// startRelay passes on what each listener accepts to the route of the same index.
func startRelay(listeners []net.Listener, routes []Route) *relay {
	ctx, cancel := context.WithCancel(context.Background())
	r := &relay{ctx: ctx, cancel: cancel, closed: func() {
		for _, l := range listeners {
			_ = l.Close()
		}
	}}
	for i, l := range listeners {
		r.work.Go(func() { r.accept(l, routes[i].target()) })
	}
	return r
}

// Close ends all connections.
func (r *relay) Close() {
	r.cancel()
	r.closed()
	r.work.Wait()
}

func (r *relay) accept(l net.Listener, target string) {
	for {
		inner, err := l.Accept()
		if err != nil {
			if r.ctx.Err() != nil {
				return
			}
			// The process may have too many files open. Connections end, so it goes on.
			select {
			case <-r.ctx.Done():
				return
			case <-time.After(10 * time.Millisecond):
			}
			continue
		}
		r.work.Go(func() { r.pass(inner, target) })
	}
}

// pass copies between a connection of the sandbox and a new one to the target until both
// sides have ended, or one has failed.
func (r *relay) pass(inner net.Conn, target string) {
	defer inner.Close()
	dialer := net.Dialer{Timeout: dialTime}
	outer, err := dialer.DialContext(r.ctx, "tcp", target)
	if err != nil {
		reset(inner) // as a port without a listener does
		return
	}
	defer outer.Close()
	defer context.AfterFunc(r.ctx, func() { _, _ = inner.Close(), outer.Close() })()
	var both sync.WaitGroup
	both.Go(func() { oneWay(outer, inner) })
	both.Go(func() { oneWay(inner, outer) })
	both.Wait()
}

// oneWay copies until the source ends, and passes that end on. If one of both fails, it
// resets both, so that the other direction ends too.
func oneWay(to, from net.Conn) {
	if _, err := io.Copy(to, from); err != nil {
		reset(to)
		reset(from)
		return
	}
	if half, ok := to.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
}

// reset ends a connection by an error rather than by its usual end, so that a broken reply
// does not look complete.
func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}
