package judge

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/sashabaranov/go-openai"
)

// maxBytes is how many bytes of an answer's body are read at most.
const maxBytes = 4 << 20

// client asks a model that has an API like OpenAI's. It sets no temperature: reasoning
// models refuse one, and a judgment is made only once, however it is sampled.
type client struct {
	api       *openai.Client
	transport *http.Transport
	model     string
	timeout   time.Duration
}

func newClient(o Options) *client {
	transport := &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
		MaxIdleConnsPerHost: atOnce, IdleConnTimeout: time.Minute,
	}
	config := openai.DefaultConfig(o.Key)
	config.BaseURL = strings.TrimSuffix(o.URL, "/")
	config.HTTPClient = &http.Client{Transport: bounded{retrying{transport}}}
	return &client{openai.NewClientWithConfig(config), transport, o.Model, o.Timeout}
}

// ask returns the model's answer. An error that wraps ErrRefused is caused by the request
// itself; any other error may be temporary.
func (c *client) ask(ctx context.Context, messages []openai.ChatCompletionMessage) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, c.timeout, fmt.Errorf("no answer within %s", c.timeout))
	defer cancel()
	r, err := c.api.CreateChatCompletion(ctx, openai.ChatCompletionRequest{Model: c.model, Messages: messages})
	switch {
	case err != nil && ctx.Err() != nil:
		return "", fmt.Errorf("%w: %w", context.Cause(ctx), err)
	case refused(err):
		return "", fmt.Errorf("%w: %w", ErrRefused, err)
	case err != nil:
		return "", err
	case len(r.Choices) == 0:
		// Not a judge's answer but, for example, a proxy's report of an error with status 200.
		return "", errors.New("the answer has no choices, so it is no chat completion")
	}
	return r.Choices[0].Message.Content, nil
}

// refused reports whether an API refuses the request as such, most likely because it is
// too long. The causes of other refusals, such as a wrong key or a missing model, can be
// corrected without changing the request.
func refused(err error) bool {
	status := 0
	var api *openai.APIError
	var other *openai.RequestError
	if errors.As(err, &api) {
		status = api.HTTPStatusCode
	} else if errors.As(err, &other) {
		status = other.HTTPStatusCode
	}
	return status == http.StatusBadRequest || status == http.StatusRequestEntityTooLarge || status == http.StatusUnprocessableEntity
}

// bounded limits how much of an answer is read.
type bounded struct{ http.RoundTripper }

func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := b.RoundTripper.RoundTrip(r)
	if err == nil {
		response.Body = http.MaxBytesReader(nil, response.Body, maxBytes)
	}
	return response, err
}
