package forwarder

import (
	"context"
	"fmt"
	"net"
	"strings"
)

// Option changes a forwarder.
type Option func(*config)

// At makes a forwarder listen on every interface, and agents reach it at address. The
// address is a host or host:port; without a port, the forwarder listens on any free one.
// Agents on other machines need this. An empty address changes nothing.
func At(address string) Option { return func(c *config) { c.address = address } }

type config struct{ address string }

// listen returns a listener, and the host and port at which agents reach it.
func (c config) listen(ctx context.Context) (net.Listener, string, error) {
	var lc net.ListenConfig
	if c.address == "" {
		l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			return nil, "", err
		}
		return l, l.Addr().String(), nil
	}
	host, port := strings.Trim(c.address, "[]"), "0"
	if h, n, err := net.SplitHostPort(c.address); err == nil {
		host, port = h, n
	}
	if host == "" {
		return nil, "", fmt.Errorf("%q names no host: give the one by which agents reach this machine", c.address)
	}
	l, err := lc.Listen(ctx, "tcp", net.JoinHostPort("", port))
	if err != nil {
		return nil, "", err
	}
	_, port, err = net.SplitHostPort(l.Addr().String())
	if err != nil {
		return nil, "", err
	}
	return l, net.JoinHostPort(host, port), nil
}
