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

// ports are one for each service that listens.
type ports struct {
	frontend, http, history, matching, worker, ui int
}

// choosePorts finds free ports. All are held until all are found, so that no two
// are the same; they are let go together just before the server takes them,
// because it listens by number only.
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
	// The wished-for ones come first, lest a free one be taken from them.
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
	// Not where the kernel takes the ports of connections from (32768 and up on
	// Linux): one of those could take ours back before the server listens.
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

// Free ports are looked for between these.
const (
	lowestPort = 10000
	ephemeral  = 32768
)

func hostPort(port int) string {
	return net.JoinHostPort(loopback, strconv.Itoa(port))
}
