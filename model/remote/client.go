package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/fulgurite/fulgurite/model"
)

// replyBytes bounds a reply: a million tokens with their log-probabilities.
const replyBytes = 64 << 20

// Options of a client. The zero value is right outside tests.
type Options struct {
	Probe    time.Duration // 0 is the constant Probe
	Patience time.Duration // 0 is the constant Patience
}

// Client samples at another process. It is safe for concurrent use.
type Client struct {
	base      string
	transport *http.Transport
	pulse     *pulse
}

var _ Sampler = (*Client)(nil)

// NewClient returns a client of the sampler at base, a URL without path. It
// connects when it is first asked.
func NewClient(base string, o Options) *Client {
	if o.Probe == 0 {
		o.Probe = Probe
	}
	if o.Patience == 0 {
		o.Patience = Patience
	}
	base = strings.TrimSuffix(base, "/")
	dialer := net.Dialer{Timeout: o.Patience}
	return &Client{
		base: base,
		transport: &http.Transport{
			DialContext:         dialer.DialContext,
			MaxIdleConnsPerHost: 256, // one for each call in flight of a busy gateway
			IdleConnTimeout:     time.Minute,
		},
		pulse: newPulse(base+healthPath, o.Probe, o.Patience),
	}
}

// Close lets go of idle connections. Requests under way go on.
func (c *Client) Close() { c.transport.CloseIdleConnections() }

// Sample implements model.Sampler.
func (c *Client) Sample(ctx context.Context, v model.VersionID, r model.DecodeRequest) (model.Completion, string, error) {
	var out sampleReply
	in := sampleRequest{Version: v, Prompt: r.Prompt, MaxTokens: r.MaxTokens, Temperature: r.Temperature, Stop: r.Stop, Seed: r.Seed}
	if err := c.post(ctx, samplePath, in, &out); err != nil {
		return model.Completion{}, "", fmt.Errorf("sample %s at %s: %w", v, c.base, err)
	}
	if len(out.Tokens) == 0 || len(out.Logprobs) != len(out.Tokens) || out.Weights == "" {
		return model.Completion{}, "", fmt.Errorf("sample %s at %s: the reply has %d tokens, %d log-probabilities, weights %q",
			v, c.base, len(out.Tokens), len(out.Logprobs), out.Weights)
	}
	return model.Completion{Tokens: out.Tokens, Logprobs: out.Logprobs, Finish: out.Finish}, out.Weights, nil
}

// Publish makes a version ready there.
func (c *Client) Publish(ctx context.Context, v model.VersionID) error {
	var out struct{}
	if err := c.post(ctx, publishPath, publishRequest{v}, &out); err != nil {
		return fmt.Errorf("publish %s at %s: %w", v, c.base, err)
	}
	return nil
}

func (c *Client) post(ctx context.Context, path string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return fmt.Errorf("encode request: %w", err)
	}
	ctx, release := c.pulse.guard(ctx)
	defer release()
	status, body, err := c.exchange(ctx, path, body)
	if cause := context.Cause(ctx); err != nil && cause != nil {
		return cause // a hung peer shows as a cancelled request
	}
	if err != nil {
		return err
	}
	if status != http.StatusOK {
		var e errorReply
		if err := json.Unmarshal(body, &e); err != nil || e.Error.Message == "" {
			return fmt.Errorf("sampler answered %d: %.200s", status, body)
		}
		return received(e.Error)
	}
	if err := json.Unmarshal(body, out); err != nil {
		return fmt.Errorf("decode reply: %w", err)
	}
	return nil
}

func (c *Client) exchange(ctx context.Context, path string, body []byte) (status int, reply []byte, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base+path, bytes.NewReader(body))
	if err != nil {
		return 0, nil, fmt.Errorf("make request: %w", err)
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := c.transport.RoundTrip(request)
	if err != nil {
		return 0, nil, fmt.Errorf("ask: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	reply, err = io.ReadAll(io.LimitReader(response.Body, replyBytes))
	if err != nil {
		return 0, nil, fmt.Errorf("read reply: %w", err)
	}
	return response.StatusCode, reply, nil
}
