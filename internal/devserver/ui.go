//go:build !serverprocess

package devserver

import (
	"context"
	"fmt"
	"net/http"
	"time"

	ui "github.com/temporalio/ui-server/v2/server"
	"github.com/temporalio/ui-server/v2/server/config"
	"github.com/temporalio/ui-server/v2/server/server_options"
)

// webUI is the Web UI and the goroutine that serves it.
type webUI struct {
	server *ui.Server
	done   chan struct{}
}

func newUI(p ports, namespace string) *webUI {
	return &webUI{
		done: make(chan struct{}),
		server: ui.NewServer(server_options.WithConfigProvider(&config.Config{
			TemporalGRPCAddress: hostPort(p.frontend),
			Host:                loopback,
			Port:                p.ui,
			EnableUI:            true,
			DefaultNamespace:    namespace,
			// The pages come by plain HTTP, over which some browsers keep no secure cookie.
			CORS:     config.CORS{CookieInsecure: true},
			HideLogs: true,
			// Pages on this machine ask no other server for news.
			DisableNewsFetch: true,
		})),
	}
}

// start returns when the UI answers; stop follows it in either case.
func (u *webUI) start(ctx context.Context, url string) error {
	go func() {
		defer close(u.done)
		_ = u.server.Start() // ends the process itself on what it regards as an error
	}()
	err := until(ctx, func() error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/healthz", nil)
		if err != nil {
			return err
		}
		reply, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		defer func() { _ = reply.Body.Close() }() // nothing is read from it
		if reply.StatusCode != http.StatusOK {
			return fmt.Errorf("web UI answers %s", reply.Status)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("start web UI at %s: %w", url, err)
	}
	return nil
}

func (u *webUI) stop() {
	u.server.Stop()
	<-u.done
}

// until repeats try, at short intervals, until it succeeds or ctx ends; the
// error is then the last one of try.
func until(ctx context.Context, try func() error) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		err := try()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w (%w)", err, ctx.Err())
		case <-tick.C:
		}
	}
}
