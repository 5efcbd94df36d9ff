package workers

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/fulgurite/fulgurite/workers/fleet"
)

// health is the flag of processes that listen for nothing else.
type health struct {
	HealthListen string `help:"Address to answer /healthz on, host:port (default: none)." env:"FULGURITE_HEALTH_LISTEN" placeholder:"ADDRESS"`
}

// serveHealth answers /healthz from when the process works until it drains.
func (p *process) serveHealth(ctx context.Context, h health) error {
	if h.HealthListen == "" {
		return nil
	}
	listener, err := fleet.Listen(ctx, h.HealthListen)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, `{"status":"ok"}`)
	})
	p.OnClose(fleet.Serve(listener, mux, p.log.Named("http")).Close)
	return nil
}

// healthCommand is for images without a shell or curl.
type healthCommand struct {
	URL     string        `help:"URL to ask." required:"" name:"url"`
	Timeout time.Duration `help:"How long to wait for the answer." default:"3s"`
}

// Run fails unless the answer is 200.
func (c *healthCommand) Run(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.URL, nil)
	if err != nil {
		return fmt.Errorf("make request: %w", err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("ask %s: %w", c.URL, err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("ask %s: it answers %s", c.URL, response.Status)
	}
	return nil
}
