package workers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync/atomic"

	"go.uber.org/zap"

	"github.com/fulgurite/fulgurite/gateway"
	"github.com/fulgurite/fulgurite/internal/memory"
	"github.com/fulgurite/fulgurite/internal/protocol"
	"github.com/fulgurite/fulgurite/internal/trust"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/retention"
	"github.com/fulgurite/fulgurite/workers/fleet"
)

// gatewayCommand answers agents.
type gatewayCommand struct {
	common    `embed:""`
	database  `embed:""`
	listening `embed:""`

	Sampler         string `help:"The sampler's URL (default: all that hold a lease)." env:"FULGURITE_SAMPLER" placeholder:"URL"`
	Embeddings      string `help:"Server to which requests for embeddings are passed on (default: none). Its key is in FULGURITE_EMBEDDINGS_KEY." env:"FULGURITE_EMBEDDINGS" placeholder:"URL"`
	EmbeddingsModel string `help:"Model to ask it for (default: what the client asks for)." env:"FULGURITE_EMBEDDINGS_MODEL" placeholder:"NAME"`
	OTLP            string `help:"Address on which spans are taken by gRPC (default: none; by HTTP they always are)." env:"FULGURITE_OTLP" placeholder:"HOST:PORT"`
	NoReplay        bool   `help:"Answer no call from the record: for tests of what the record does." hidden:"" env:"FULGURITE_NO_REPLAY"`
}

// embeddingsKey is the environment variable with the key of the server of embeddings.
const embeddingsKey = "FULGURITE_EMBEDDINGS_KEY"

// Validate is called by kong.
func (c *gatewayCommand) Validate() error {
	if c.EmbeddingsModel != "" && c.Embeddings == "" {
		return errors.New("--embeddings-model is without effect: give the server of the embeddings as --embeddings")
	}
	return errors.Join(checkURL("--sampler", c.Sampler), checkURL("--embeddings", c.Embeddings), checkURL("--advertise", c.Advertise))
}

// Run serves until a signal comes.
func (c *gatewayCommand) Run(ctx context.Context, stderr io.Writer) error {
	return c.serve(ctx, stderr, c.setUp)
}

// servingKey returns the key of /v1. If other machines could reach /v1 without a key, or with one
// that can be guessed, it returns why /v1 is closed.
func (c *gatewayCommand) servingKey(p *process) (key, closed string) {
	key = strings.TrimSpace(os.Getenv(trust.ServingKey))
	if err := c.check(p, trust.ServingKey, key); err != nil {
		return "", "other machines can reach this gateway (--listen " + c.Listen + "), and it has no key for those who ask versions: set " + trust.ServingKey + " where it is started, or give --insecure"
	}
	_, err := trust.ReadKey(trust.ServingKey)
	switch {
	case err == nil || !reachable(c.Listen):
		return key, ""
	case c.Insecure:
		p.log.Warn("--insecure: whoever guesses the key may ask versions", zap.String("listen", c.Listen), zap.Error(err))
		return key, ""
	}
	return "", "other machines can reach this gateway (--listen " + c.Listen + "): " + err.Error() + "; or give --insecure"
}

func (c *gatewayCommand) setUp(ctx context.Context, p *process) error {
	serving, closed := c.servingKey(p)
	if closed != "" {
		p.log.Warn("/v1 is closed: agents are answered, and nobody else", zap.String("reason", closed))
	}
	memory.Pace(ctx)
	records, err := p.open(ctx, c.database)
	if err != nil {
		return err
	}
	samplers := fleet.NewSamplers(leasesOr(records, c.Sampler), p.peers, p.log.Named("samplers"))
	p.OnClose(func(context.Context) error { samplers.Close(); return nil })
	router := records.Route(samplers)
	p.OnClose(func(context.Context) error { router.Close(); return nil })
	g := records.Gateway(gateway.Config{
		Sampler: router, ServingKey: serving, Closed: closed,
		Embeddings: gateway.Embeddings{URL: c.Embeddings, Option: "--embeddings URL (FULGURITE_EMBEDDINGS)", Key: os.Getenv(embeddingsKey), Model: c.EmbeddingsModel}, NoReplay: c.NoReplay, Log: p.log.Named("gateway"),
	})
	p.Background((&retention.Expirer{Store: records.Store, Log: p.log.Named("retention")}).Run)
	if c.OTLP != "" {
		listener, err := p.listen(ctx, c.OTLP)
		if err != nil {
			return fmt.Errorf("--otlp: %w", err)
		}
		p.OnClose(fleet.ServeTraces(listener, g, p.log.Named("traces")).Close)
	}
	// The lease needs the address, and clients that find the lease may ask at once.
	var guarded atomic.Pointer[http.Handler]
	url, err := p.serveHTTP(ctx, c.listening, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if h := guarded.Load(); h != nil {
			(*h).ServeHTTP(w, r)
			return
		}
		w.Header().Set(protocol.FaultHeader, "starting")
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	if err != nil {
		return err
	}
	lease, err := p.acquireLease(ctx, records, record.Gateway, url, true)
	if err != nil {
		return err
	}
	h := lease.Guard(g)
	guarded.Store(&h)
	return nil
}
