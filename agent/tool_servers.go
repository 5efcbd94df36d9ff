package agent

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/fulgurite/fulgurite/internal/health"
	"github.com/fulgurite/fulgurite/internal/protocol"
)

// toolServerTimeout is how long a tool server may take to answer its probe.
const toolServerTimeout = 10 * time.Second

// ErrToolServer is wrapped when a tool server was away before or after an attempt, or was
// another process after it.
var ErrToolServer = errors.New("server of tools")

// WithToolServers wraps a launcher of agents that need tool servers. Before the agent is
// launched and after it has ended, each URL has to answer a GET, sent without a proxy,
// with a status of success. Otherwise the attempt is a fault, whatever its result: the
// agent may have seen an error of its tool, and guessed.
//
// That alone would not notice a server that dies and restarts while the agent runs. So a
// server may name its process in the header X-Fulgurite-Instance, by any text that
// another process would not send. If this text has changed at the end, that is a fault,
// too. trusted says which certificates the servers may have; nil is what the system accepts.
func WithToolServers(l Launcher, urls []string, trusted *tls.Config) Launcher {
	if len(urls) == 0 {
		return l
	}
	return toolUser{l, urls, trusted}
}

type toolUser struct {
	inner   Launcher
	urls    []string
	trusted *tls.Config
}

// Launch implements Launcher.
func (t toolUser) Launch(ctx context.Context, job Job) (Result, error) {
	before, err := t.instances(ctx)
	if err != nil {
		return Result{}, job.infrastructure(fmt.Errorf("before the attempt: %w", err))
	}
	result, err := t.inner.Launch(ctx, job)
	if err != nil {
		return result, err
	}
	after, err := t.instances(ctx)
	for i, url := range t.urls {
		if err == nil && before[i] != after[i] {
			err = fmt.Errorf("%w %s was started again", ErrToolServer, url)
		}
	}
	if err != nil {
		return Result{Output: result.Output}, job.infrastructure(fmt.Errorf("the agent may have met a fault of its tools: %w", err))
	}
	return result, nil
}

// instances returns the processes that the servers name, "" for a server that names none.
func (t toolUser) instances(ctx context.Context) ([]string, error) {
	out := make([]string, len(t.urls))
	for i, url := range t.urls {
		var err error
		if out[i], err = instance(ctx, url, t.trusted); err != nil {
			return nil, fmt.Errorf("%w %s: %w", ErrToolServer, url, err)
		}
	}
	return out, nil
}

func instance(ctx context.Context, url string, trusted *tls.Config) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, toolServerTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return "", err
	}
	transport := health.NewTransport(trusted)
	transport.DisableKeepAlives = true // a connection that is kept could outlive the server's listener
	response, err := transport.RoundTrip(request)
	if err != nil {
		return "", err
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, serviceBytes)) // the body doesn't matter
	_ = response.Body.Close()
	if response.StatusCode < 200 || response.StatusCode > 299 {
		return "", fmt.Errorf("answered %s", response.Status)
	}
	return response.Header.Get(protocol.InstanceHeader), nil
}
