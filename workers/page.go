package workers

import (
	"context"
	"io"
	"os"
	"strings"

	"go.temporal.io/sdk/client"
	"go.uber.org/zap"

	"github.com/fulgurite/fulgurite/internal/trust"
	"github.com/fulgurite/fulgurite/workers/pageserver"
)

// pageCommand serves the page of a fleet's store.
type pageCommand struct {
	common               `embed:""`
	database             `embed:""`
	temporal             `embed:""`
	pageserver.Listening `embed:""`
}

// Run serves until a signal comes.
func (c *pageCommand) Run(ctx context.Context, stderr io.Writer) error {
	return c.serve(ctx, stderr, c.setUp)
}

func (c *pageCommand) setUp(ctx context.Context, p *process) error {
	c.Listening.TLS = c.common.TLS
	if err := c.Check(); err != nil {
		return err
	}
	records, err := p.open(ctx, c.database)
	if err != nil {
		return err
	}
	temporal, namespace, err := p.dial(ctx, c.temporal)
	if err != nil {
		return err
	}
	served, err := pageserver.Serve(ctx, pageserver.Options{
		Records: records, Listening: c.Listening, Local: p.Name, Peers: p.peers, ServingKey: strings.TrimSpace(os.Getenv(trust.ServingKey)), Log: p.log.Named("page"),
		Dial: func(context.Context) (pageserver.Connection, error) {
			own, err := client.NewClientFromExisting(temporal, client.Options{}) // the page closes it
			return pageserver.Connection{Client: own, Namespace: namespace}, err
		},
	})
	if err != nil {
		return err
	}
	p.OnClose(func(context.Context) error { return served.Close() })
	p.log.Info("serving the page", zap.String("url", served.URL()))
	return nil
}
