package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/fulgurite/fulgurite/internal/health"
	"github.com/fulgurite/fulgurite/internal/trust"
	"github.com/fulgurite/fulgurite/model"
)

// replyBytes limits a reply: it has room for a million tokens with their
// log-probabilities.
const replyBytes = 64 << 20

// ErrUnresponsive is the error of requests to a peer that hangs.
var ErrUnresponsive = errors.New("sampler does not respond")

// Options configures a client. The zero value is right except in tests.
type Options struct {
	Probe    time.Duration // how often a peer is asked whether it is alive; 0 means health.Every
	Patience time.Duration // how long it may leave that unanswered; 0 means health.Patience
	// Peers has the key that the sampler wants, and says which certificates it may have.
	Peers trust.Peers
}

// Client samples at another process. It is safe for concurrent use.
type Client struct {
	base      string
	key       string
	transport *http.Transport
	prober    *health.Prober
}

var _ Sampler = (*Client)(nil)

// NewClient returns a client of the sampler at base, a URL without path. It
// connects when it is first asked.
func NewClient(base string, o Options) *Client {
	base = strings.TrimSuffix(base, "/")
	prober := health.New(health.Config{URL: base, Every: o.Probe, Patience: o.Patience, Gone: ErrUnresponsive, TLS: o.Peers.TLS})
	dialer := net.Dialer{Timeout: prober.Patience}
	return &Client{
		base: base, key: o.Peers.Key,
		transport: &http.Transport{
			Proxy:               http.ProxyFromEnvironment,
			DialContext:         dialer.DialContext,
			MaxIdleConnsPerHost: 256, // one for each call in flight of a busy gateway
			IdleConnTimeout:     time.Minute,
			TLSClientConfig:     o.Peers.TLS.Clone(),
		},
		prober: prober,
	}
}

// Close closes idle connections. Requests in progress continue.
func (c *Client) Close() { c.transport.CloseIdleConnections() }

// Sample implements model.Sampler.
func (c *Client) Sample(ctx context.Context, v model.VersionID, r model.DecodeRequest) (model.Completion, string, error) {
	completion, weights, err := c.sample(ctx, v, r)
	if err != nil {
		return model.Completion{}, "", fmt.Errorf("sample %s at %s: %w", v, c.base, err)
	}
	return completion, weights, nil
}

func (c *Client) sample(ctx context.Context, v model.VersionID, r model.DecodeRequest) (model.Completion, string, error) {
	if r.Constraint != nil && r.Form == nil {
		return model.Completion{}, "", errors.New("a constraint can't be sent: say the form that it is of")
	}
	var out sampleReply
	read := whole(&out)
	if r.Emit != nil {
		read = func(body io.Reader) (err error) {
			out, err = readStream(body, r.Emit)
			return err
		}
	}
	if err := c.post(ctx, samplePath, newSampleRequest(v, r), read); err != nil {
		return model.Completion{}, "", err
	}
	completion, err := out.completion()
	if r.Timing != nil && out.Timing != nil {
		*r.Timing = *out.Timing
	}
	return completion, out.Weights, err
}

// Publish makes a version ready at the sampler.
func (c *Client) Publish(ctx context.Context, v model.VersionID) error {
	var out struct{}
	if err := c.post(ctx, publishPath, publishRequest{v}, whole(&out)); err != nil {
		return fmt.Errorf("publish %s at %s: %w", v, c.base, err)
	}
	return nil
}

// Loaded asks the sampler at a URL which versions it has in memory, the last used first.
// For a sampler of an earlier release, which has no such path, it returns an error.
func Loaded(ctx context.Context, base string, peers trust.Peers) ([]model.VersionID, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, base+loadedPath, nil)
	if err != nil {
		return nil, fmt.Errorf("ask %s for its versions: %w", base, err)
	}
	present(request, peers.Key)
	transport := health.NewTransport(peers.TLS)
	defer transport.CloseIdleConnections()
	answer, err := transport.RoundTrip(request)
	if err != nil {
		return nil, fmt.Errorf("ask %s for its versions: %w", base, err)
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode == http.StatusUnauthorized {
		return nil, fmt.Errorf("ask %s for its versions: %w", base, refusal(answer))
	}
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("ask %s for its versions: it answers %s", base, answer.Status)
	}
	var out loadedReply
	err = whole(&out)(answer.Body)
	return out.Versions, err
}

// whole reads a reply that is one JSON value.
func whole(out any) func(io.Reader) error {
	return func(body io.Reader) error {
		reply, err := io.ReadAll(io.LimitReader(body, replyBytes))
		if err != nil {
			return fmt.Errorf("read reply: %w", err)
		}
		if err := json.Unmarshal(reply, out); err != nil {
			return fmt.Errorf("decode reply: %w", err)
		}
		return nil
	}
}

// post sends in as JSON and passes the body of the reply to read.
func (c *Client) post(ctx context.Context, path string, in any, read func(io.Reader) error) error {
	body, err := json.Marshal(in)
	if err != nil {
		return fmt.Errorf("encode request: %w", err)
	}
	ctx, release := c.prober.Guard(ctx)
	defer release()
	err = c.exchange(ctx, path, body, read)
	if cause := context.Cause(ctx); err != nil && cause != nil {
		return cause // a hung peer shows as a cancelled request
	}
	return err
}

func (c *Client) exchange(ctx context.Context, path string, body []byte, read func(io.Reader) error) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base+path, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("make request: %w", err)
	}
	request.Header.Set("Content-Type", "application/json")
	present(request, c.key)
	response, err := c.transport.RoundTrip(request)
	if err != nil {
		return fmt.Errorf("ask: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode == http.StatusOK {
		return read(response.Body)
	}
	return refusal(response)
}

// present adds the key of the fleet to a request.
func present(request *http.Request, key string) {
	if key != "" {
		request.Header.Set("Authorization", "Bearer "+key)
	}
}

// refusal returns the error of a reply that is no success.
func refusal(response *http.Response) error {
	reply, err := io.ReadAll(io.LimitReader(response.Body, replyBytes))
	if err != nil {
		return fmt.Errorf("read reply: %w", err)
	}
	var e errorReply
	if err := json.Unmarshal(reply, &e); err != nil || e.Error.Message == "" {
		return fmt.Errorf("sampler answered %d: %.200s", response.StatusCode, reply)
	}
	return errorOf(e.Error)
}
