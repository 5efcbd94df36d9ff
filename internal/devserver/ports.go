package devserver

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// loopback is the only address anything binds to: the server has no
// authorization.
const loopback = "127.0.0.1"

// ports holds one port for each service that listens.
type ports struct {
	frontend, http, history, matching, worker, ui int
}

// choosePorts finds free ports. All are held until the last one is found, so that no two
// are the same. They are released together just before the server takes them, because the
// server can only be told their numbers.
func choosePorts(frontend, ui int) (_ ports, err error) {
	var held []net.Listener
	defer func() {
		for _, l := range held {
			err = errors.Join(err, l.Close())
		}
	}()
	choose := func(wanted int) int {
		var l net.Listener
		if err != nil {
			return 0
		}
		if l, err = listen(wanted); err != nil {
			return 0
		}
		held = append(held, l)
		return l.Addr().(*net.TCPAddr).Port
	}
	// The wanted ports come first, so that none of them is taken as a free one.
	p := ports{frontend: choose(frontend), ui: choose(ui)}
	p.http, p.history, p.matching, p.worker = choose(0), choose(0), choose(0), choose(0)
	return p, err
}

func listen(wanted int) (net.Listener, error) {
	if wanted != 0 {
		if l, err := net.Listen("tcp", hostPort(wanted)); err == nil {
			return l, nil
		}
	}
	// From 32768 on (on Linux), the kernel gives ports to outgoing connections. One of
	// these could take a port from us before the server listens, so we choose a lower
	// one.
	for range 100 {
		if l, err := net.Listen("tcp", hostPort(lowestPort+rand.IntN(ephemeral-lowestPort))); err == nil {
			return l, nil
		}
	}
	l, err := net.Listen("tcp", hostPort(0))
	if err != nil {
		return nil, fmt.Errorf("find a free port: %w", err)
	}
	return l, nil
}

// Free ports are searched from lowestPort up to ephemeral.
const (
	lowestPort = 10000
	ephemeral  = 32768
)

func hostPort(port int) string {
	return net.JoinHostPort(loopback, strconv.Itoa(port))
}
