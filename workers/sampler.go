package workers

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"go.uber.org/zap"

	probe "github.com/fulgurite/fulgurite/internal/health"
	"github.com/fulgurite/fulgurite/internal/trust"
	"github.com/fulgurite/fulgurite/model/sampler/remote"
	"github.com/fulgurite/fulgurite/page/access"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/workers/fleet"
)

// listening holds the flags of a process that others connect to.
type listening struct {
	Listen    string `help:"Address to listen on, host:port (port 0: any)." default:"127.0.0.1:0" env:"FULGURITE_LISTEN"`
	Advertise string `help:"URL that others are told (default: made of the address)." env:"FULGURITE_ADVERTISE" placeholder:"URL"`
	Insecure  bool   `help:"Answer other machines although no key is set: whoever reaches the address may use it." env:"FULGURITE_INSECURE"`
}

// reachable reports whether other machines can reach an address on which a process listens. What
// is wrong with an address is found when it is listened on.
func reachable(address string) bool {
	host, _, err := net.SplitHostPort(address)
	return err == nil && !access.IsLoopback(host)
}

// check returns an error if other machines can reach the address and there is no key, unless
// --insecure allows that.
func (l listening) check(p *process, variable, key string) error {
	switch {
	case key != "" || !reachable(l.Listen):
		return nil
	case l.Insecure:
		p.log.Warn("--insecure: whoever reaches this process may use it, because no key is set", zap.String("listen", l.Listen), zap.String("variable", variable))
		return nil
	}
	return fmt.Errorf("--listen %s: other machines can reach it, so a key is needed: set %s, for example to what `openssl rand -hex 32` prints, here and where this process is asked; "+
		"or give --insecure, and whoever reaches it may use it", l.Listen, variable)
}

// samplerCommand samples.
type samplerCommand struct {
	common    `embed:""`
	database  `embed:""`
	listening `embed:""`

	Resident      int    `help:"Versions to keep in memory." default:"4" env:"FULGURITE_RESIDENT"`
	GenerationLog string `help:"File to which each generation is appended as a line of JSON." env:"FULGURITE_GENERATION_LOG" placeholder:"FILE" type:"path"`
}

// Validate is called by kong.
func (c *samplerCommand) Validate() error {
	if c.Resident < 1 {
		return fmt.Errorf("--resident %d: give 1 or more", c.Resident)
	}
	return checkURL("--advertise", c.Advertise)
}

// checkURL returns an error if a flag has a value that others can't connect to.
func checkURL(flag, value string) error {
	if value == "" {
		return nil
	}
	u, err := url.Parse(value)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		return fmt.Errorf("%s %q: give an address with its scheme, such as http://sampler:8000", flag, value)
	case u.RawQuery != "" || strings.Contains(value, "#"):
		return fmt.Errorf("%s %q: paths are added to this address: leave out ? and #, and what follows", flag, u.Redacted())
	case flag == "--advertise" && u.User != nil:
		return fmt.Errorf("%s %q: everyone is told this address: leave out the user and the password", flag, u.Redacted())
	case flag == "--advertise" && net.ParseIP(u.Hostname()).IsUnspecified():
		return fmt.Errorf("%s %q: others can't connect to this address; give the name or the address of this machine", flag, value)
	}
	return nil
}

// Run serves until a signal comes.
func (c *samplerCommand) Run(ctx context.Context, stderr io.Writer) error {
	return c.serve(ctx, stderr, c.setUp)
}

func (c *samplerCommand) setUp(ctx context.Context, p *process) error {
	if err := c.check(p, trust.FleetKey, p.peers.Key); err != nil {
		return err
	}
	records, err := p.open(ctx, c.database)
	if err != nil {
		return err
	}
	local := records.RouteLocally(c.Resident)
	p.OnClose(func(context.Context) error { local.Close(); return nil })
	p.Background(func(ctx context.Context) {
		if err := local.Preload(ctx); err != nil {
			p.log.Debug("the first calls will load the weights", zap.Error(err))
		}
	})
	var sampler remote.Sampler = local
	if c.GenerationLog != "" {
		log, err := remote.OpenLog(c.GenerationLog, local)
		if err != nil {
			return err
		}
		p.OnClose(func(context.Context) error { return log.Close() })
		sampler = log
	}
	url, err := p.serveHTTP(ctx, c.listening, trust.RequireKey(p.peers.Key, trust.FleetKey, remote.NewServer(sampler, p.log.Named("sampler"))))
	if err != nil {
		return err
	}
	_, err = p.acquireLease(ctx, records, record.Sampler, url, false)
	return err
}

// serveHTTP serves HTTP on an address and returns the URL that others are to use.
func (p *process) serveHTTP(ctx context.Context, l listening, handler http.Handler) (string, error) {
	listener, err := p.listen(ctx, l.Listen)
	if err != nil {
		return "", fmt.Errorf("--listen: %w", err)
	}
	s := fleet.Serve(listener, handler, p.log.Named("http"))
	p.OnClose(s.Close)
	p.log.Info("listening", zap.String("url", s.URL()))
	url := cmp.Or(l.Advertise, s.URL())
	if l.Advertise != "" || p.certificate != nil { // a certificate may be for another name
		p.tryAdvertised(ctx, url)
	}
	return url, nil
}

// advertisedWait is how long this process waits for itself at its advertised address.
const advertisedWait = 3 * time.Second

// tryAdvertised warns if this process can't reach itself at the address that others are
// told. It is no error: some networks lead others there but not this process.
func (p *process) tryAdvertised(ctx context.Context, address string) {
	ctx, cancel := context.WithTimeout(ctx, advertisedWait)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(address, "/")+"/healthz", nil)
	if err == nil {
		transport := probe.NewTransport(p.peers.TLS)
		defer transport.CloseIdleConnections()
		var response *http.Response
		if response, err = transport.RoundTrip(request); err == nil {
			_ = response.Body.Close()
			return
		}
	}
	p.log.Warn("this process can't reach itself at the address that it advertises: if others can't either, they leave it out", zap.String("advertise", address), zap.Error(err))
}
