package serve

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"syscall"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/terminal"
	"github.com/fulgurite/fulgurite/internal/devserver"
	"github.com/fulgurite/fulgurite/workers/stack"
)

// defaultGatewayPort is the gateway's port. It follows the ports that users of Temporal
// expect for Temporal and its Web UI.
const defaultGatewayPort = 8234

// Ports holds the ports on which the parts of a stack listen. A port that a flag gives
// must be free. If a default port is in use, a free one takes its place.
type Ports struct {
	Port        *int `help:"Temporal's port (0: any; default: 7233, or a free one)." env:"FULGURITE_PORT" placeholder:"PORT"`
	UIPort      *int `help:"The Web UI's port (0: any; default: 8233, or a free one)." env:"FULGURITE_UI_PORT" name:"ui-port" placeholder:"PORT"`
	GatewayPort *int `help:"The gateway's port (0: any; default: 8234, or a free one)." env:"FULGURITE_GATEWAY_PORT" placeholder:"PORT"`
	TracePort   int  `help:"Port for spans by gRPC (0: none; by HTTP the gateway takes them)." default:"0" env:"FULGURITE_TRACE_PORT"`
}

func (p Ports) temporal() port {
	return port{"Temporal", "port", p.Port, devserver.DefaultFrontendPort}
}

func (p Ports) ui() port { return port{"the Web UI", "ui-port", p.UIPort, devserver.DefaultUIPort} }

func (p Ports) gateway() port {
	return port{"the gateway", "gateway-port", p.GatewayPort, defaultGatewayPort}
}

func (p Ports) trace() port { return port{"the trace server", "trace-port", &p.TracePort, 0} }

// free checks that each port that a flag gives is free. It checks nothing if the
// directory is in use, because the start then says who uses it.
func (p Ports) free(l stack.Layout) error {
	holder, err := l.Holder()
	if err != nil || holder != "" {
		return err
	}
	var all []error
	for _, one := range []port{p.temporal(), p.ui(), p.gateway(), p.trace()} {
		all = append(all, one.free())
	}
	return errors.Join(all...)
}

// check compares the ports of a stack with those that flags give, and prints where a
// default port was in use.
func (p Ports) check(st *stack.Stack, t *terminal.Terminal) error {
	return errors.Join(
		p.temporal().check(st.TemporalAddress(), t), p.ui().check(st.UIURL(), t),
		p.gateway().check(st.GatewayURL(), t), p.trace().check(st.TraceAddress(), t),
	)
}

// port is the port of one part of the stack.
type port struct {
	of, flag string
	given    *int // nil if the flag is not given
	usual    int
}

func (p port) wanted() int {
	if p.given == nil {
		return p.usual
	}
	return *p.given
}

func (p port) free() error {
	if p.given == nil || *p.given == 0 {
		return nil
	}
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(*p.given)))
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return p.taken()
	case err != nil:
		return terminal.Usagef("--%s %d: %v", p.flag, *p.given, err)
	}
	return l.Close()
}

func (p port) taken() error {
	return terminal.Usagef("--%s %d: the port is in use; give another one, or 0 for any", p.flag, *p.given)
}

// check compares the port of an address with the wanted one. The address is host:port, a
// URL, or empty.
func (p port) check(address string, t *terminal.Terminal) error {
	if u, err := url.Parse(address); err == nil && strings.Contains(address, "://") {
		address = u.Host
	}
	_, got, err := net.SplitHostPort(address)
	if wanted := p.wanted(); err != nil || wanted == 0 || got == strconv.Itoa(wanted) {
		return nil // there is none, or it is as it should be
	}
	if p.given != nil {
		return p.taken() // by somebody who was faster
	}
	fmt.Fprintf(t.Err, "Port %d is in use: %s listens on %s.\n", p.usual, p.of, got)
	return nil
}
