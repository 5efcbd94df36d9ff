package workers

import (
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
	"github.com/fulgurite/fulgurite/model/sampler/remote"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/workers/fleet"
)

// listening holds the flags of a process that others connect to.
type listening struct {
	Listen    string `help:"Address to listen on, host:port (port 0: any)." default:"127.0.0.1:0" env:"FULGURITE_LISTEN"`
	Advertise string `help:"URL that others are told (default: made of the address)." env:"FULGURITE_ADVERTISE" placeholder:"URL"`
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
	url, err := p.serveHTTP(ctx, c.listening, remote.NewServer(sampler, p.log.Named("sampler")))
	if err != nil {
		return err
	}
	_, err = p.acquireLease(ctx, records, record.Sampler, url, false)
	return err
}

// serveHTTP serves HTTP on an address and returns the URL that others are to use.
func (p *process) serveHTTP(ctx context.Context, l listening, handler http.Handler) (string, error) {
	listener, err := fleet.Listen(ctx, l.Listen)
	if err != nil {
		return "", err
	}
	s := fleet.Serve(listener, handler, p.log.Named("http"))
	p.OnClose(s.Close)
	if l.Advertise == "" {
		return s.URL(), nil
	}
	p.tryAdvertised(ctx, l.Advertise)
	return l.Advertise, nil
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
		transport := probe.NewTransport()
		defer transport.CloseIdleConnections()
		var response *http.Response
		if response, err = transport.RoundTrip(request); err == nil {
			_ = response.Body.Close()
			return
		}
	}
	p.log.Warn("this process can't reach itself at the address that it advertises: if others can't either, they leave it out", zap.String("advertise", address), zap.Error(err))
}
