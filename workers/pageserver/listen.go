package pageserver

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"syscall"

	"github.com/fulgurite/fulgurite/internal/shell"
	"github.com/fulgurite/fulgurite/page/access"
	"github.com/fulgurite/fulgurite/workers/fleet"
)

// Listening has the flags that say where the page is served, and to whom.
type Listening struct {
	Listen      string `help:"Address to listen on, host:port, instead of loopback. Needs --tokens, and TLS, --behind-proxy or --insecure." env:"FULGURITE_PAGE_LISTEN" placeholder:"ADDRESS"`
	Tokens      string `help:"File of tokens (fulgurite token create): everybody has to log in with one." env:"FULGURITE_TOKENS" placeholder:"FILE" type:"path"`
	TLSCert     string `help:"Certificate to serve over TLS with, PEM." name:"tls-cert" env:"FULGURITE_PAGE_TLS_CERT" placeholder:"FILE" type:"path"`
	TLSKey      string `help:"Its key, PEM." name:"tls-key" env:"FULGURITE_PAGE_TLS_KEY" placeholder:"FILE" type:"path"`
	BehindProxy bool   `help:"A proxy in front serves over TLS, and sends the addresses of clients in X-Forwarded-For." env:"FULGURITE_PAGE_BEHIND_PROXY"`
	Insecure    bool   `help:"Serve other machines without TLS: tokens can be read on the way." env:"FULGURITE_PAGE_INSECURE"`
}

// UsageError is a mistake in the flags, which the error names.
type UsageError struct{ error }

func usage(format string, args ...any) error { return UsageError{fmt.Errorf(format, args...)} }

// Check returns an error if the flags would open the page to someone who has not been
// admitted.
func (l Listening) Check() error {
	host, _, err := net.SplitHostPort(l.Listen)
	local := l.Listen == "" || err == nil && access.IsLoopback(host)
	switch {
	case l.Listen != "" && err != nil:
		return usage("--listen %q: want host:port, for example 0.0.0.0:%d", l.Listen, DefaultPort)
	case (l.TLSCert == "") != (l.TLSKey == ""):
		return usage("--tls-cert and --tls-key: give both, or neither")
	case l.BehindProxy && l.TLSCert != "":
		return usage("--behind-proxy: the proxy serves over TLS, so --tls-cert has no use")
	case !local && l.Tokens == "":
		return usage("--listen %s: other machines can reach it, so --tokens is needed: make the file with `fulgurite token create NAME --file FILE`", l.Listen)
	case l.BehindProxy && l.Tokens == "":
		return usage("--behind-proxy: everyone who reaches the proxy reaches the page, so --tokens is needed")
	case !local && l.TLSCert == "" && !l.BehindProxy && !l.Insecure:
		return usage("--listen %s: give --tls-cert and --tls-key, or --behind-proxy if a proxy serves over TLS, or --insecure", l.Listen)
	}
	if l.Tokens != "" {
		if _, err := access.File(l.Tokens).Tokens(); err != nil {
			return usage("--tokens: %w: make one with `%s`", err, shell.Command("token", "create", "NAME", "--file", l.Tokens))
		}
	}
	return nil
}

// open listens on the given port, which must be free. If none is given, it listens on the
// default port, or on any free port if that is in use.
func (l Listening) open(ctx context.Context, port *int) (net.Listener, error) {
	if err := l.Check(); err != nil {
		return nil, err
	}
	if l.Listen != "" && port != nil {
		return nil, usage("--listen and --port: give one of them")
	}
	listener, err := l.listen(ctx, port)
	if err != nil || l.TLSCert == "" {
		return listener, err
	}
	certificate, err := tls.LoadX509KeyPair(l.TLSCert, l.TLSKey)
	if err != nil {
		return nil, errors.Join(usage("--tls-cert and --tls-key: %w", err), listener.Close())
	}
	return tls.NewListener(listener, &tls.Config{Certificates: []tls.Certificate{certificate}, NextProtos: []string{"http/1.1"}, MinVersion: tls.VersionTLS12}), nil
}

func (l Listening) listen(ctx context.Context, port *int) (net.Listener, error) {
	if l.Listen != "" {
		listener, err := fleet.Listen(ctx, l.Listen)
		if err != nil {
			return nil, usage("--listen: %w", err)
		}
		return listener, nil
	}
	wanted := DefaultPort
	if port != nil {
		wanted = *port
	}
	if wanted < 0 || wanted > 65535 {
		return nil, usage("the page's port %d: want one from 0 to 65535", wanted)
	}
	listener, err := fleet.Listen(ctx, net.JoinHostPort("127.0.0.1", strconv.Itoa(wanted)))
	switch {
	case err == nil:
		return listener, nil
	case port == nil:
		return fleet.Listen(ctx, "127.0.0.1:0")
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, usage("the page's port %d is in use; give another one, or 0 for any", wanted)
	}
	return nil, usage("the page's port: %w", err)
}

// guard returns the guard that admits those whom the flags admit.
func (l Listening) guard(at net.Addr, person string) (*access.Guard, error) {
	host, port, err := net.SplitHostPort(at.String())
	if err != nil {
		return nil, fmt.Errorf("read the address %s: %w", at, err)
	}
	return access.New(access.Options{
		Tokens: access.File(l.Tokens), Anywhere: l.BehindProxy || !access.IsLoopback(host), Secure: l.TLSCert != "" || l.BehindProxy, Proxy: l.BehindProxy,
		Local: person, Cookie: "fulgurite_" + port,
	})
}

// url returns the URL of the page, with https if the page is served over TLS.
func (l Listening) url(at string) string {
	if l.TLSCert != "" {
		return "https://" + strings.TrimPrefix(at, "http://")
	}
	return at
}
