package workers

import (
	"context"
	"io"
	"net/http"

	"github.com/fulgurite/fulgurite/internal/fleet"
	"github.com/fulgurite/fulgurite/model/remote"
	"github.com/fulgurite/fulgurite/record"
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

// Run serves until a signal comes.
func (c *samplerCommand) Run(ctx context.Context, stderr io.Writer) error {
	return c.serve(ctx, stderr, c.setUp)
}

func (c *samplerCommand) setUp(ctx context.Context, p *process) error {
	records, err := p.open(ctx, c.database)
	if err != nil {
		return err
	}
	local := records.Sampler(c.Resident)
	p.OnClose(func(context.Context) error { local.Close(); return nil })
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
	if l.Advertise != "" {
		return l.Advertise, nil
	}
	return s.URL(), nil
}
