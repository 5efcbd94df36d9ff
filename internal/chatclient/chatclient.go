// Package chatclient asks a chat model one question over HTTP: a judge for scores, a
// reflector for a better prompt. It speaks OpenAI's chat completions and Anthropic's
// messages.
//
// It is no client for agents: it has no tools, no streams and no sampling settings. It sets
// no temperature, because reasoning models refuse one.
//
// While the server answers that there are too many requests, a request waits and is sent
// again, for as long as its time lasts. After a fault of the server it is sent again twice.
//
// An error is a [*Refusal] if the same request can't succeed before somebody changes it, or
// the settings. Any other error may be temporary: the network, a busy server, a proxy's page
// in place of a reply, no reply in time. No error contains the key.
package chatclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sashabaranov/go-openai"

	"github.com/fulgurite/fulgurite/internal/truncate"
)

// API is the protocol of a server.
type API string

// APIs.
const (
	// OpenAI is the API of chat completions. URL is what ends in /v1.
	OpenAI API = "openai"
	// Anthropic is the API of messages. URL may end in /v1 or not.
	Anthropic API = "anthropic"
)

// Options tells which model to ask, and how.
type Options struct {
	API        API
	URL, Model string
	// Key is the API key; if it is empty, none is sent.
	Key string
	// Timeout is how long a reply may take, with all times that the request is sent again.
	Timeout time.Duration
	// Connections is how many unused connections stay open.
	Connections int
}

// Roles of messages.
const (
	System    = "system"
	User      = "user"
	Assistant = "assistant"
)

// Message is one message of a conversation.
type Message struct {
	Role, Content string
}

// Request is what to ask.
type Request struct {
	Messages []Message
	// MaxTokens is the most tokens that the reply may have. 0 leaves it to the server, and
	// is 4096 where the API requires a number.
	MaxTokens int
	// Repeat tells requests apart that ask the same: servers and caches that always reply
	// the same to the same request reply something else. 0 adds nothing to the request.
	Repeat int
}

// Reply is what the model replied.
type Reply struct {
	Text string
	// CutOff says that the reply ended because it was too long.
	CutOff bool
	Usage  Usage
	// Model is what the server calls the model that replied.
	Model string
}

// Usage counts the tokens of a request and of its reply.
type Usage struct {
	Input  int `json:"input"`
	Output int `json:"output"`
}

// Refusal is the error of a request that the server does not accept. It says so itself,
// because a proxy's page is no refusal, whatever its status, unless it is about the request.
type Refusal struct {
	Status int
	Err    error
}

// Error returns what the server said.
func (r *Refusal) Error() string { return r.Err.Error() }

// Unwrap returns the error of the request.
func (r *Refusal) Unwrap() error { return r.Err }

// OfRequest reports whether the request itself is the cause, most likely because it is too
// long. The causes of other refusals, such as a wrong key or a missing model, can be
// corrected without changing the request.
func (r *Refusal) OfRequest() bool { return aboutRequest(r.Status) }

func aboutRequest(status int) bool {
	return status == http.StatusBadRequest || status == http.StatusRequestEntityTooLarge || status == http.StatusUnprocessableEntity
}

// temporary reports whether a status of 400 or more says nothing about the next try.
func temporary(status int) bool {
	return status >= http.StatusInternalServerError ||
		slices.Contains([]int{http.StatusRequestTimeout, http.StatusConflict, http.StatusTooEarly, http.StatusTooManyRequests}, status)
}

// Client asks a model. It is safe for concurrent use. Close it when it is no longer needed.
type Client struct {
	options   Options
	transport *http.Transport
	http      *http.Client
	openai    *openai.Client
	// completionTokens says that the model wants max_completion_tokens, not max_tokens.
	completionTokens atomic.Bool
	// noSeed says that the server knows no seed.
	noSeed atomic.Bool
}

// New returns a client. It does not connect to the server.
func New(o Options) *Client {
	transport := &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
		MaxIdleConnsPerHost: o.Connections, IdleConnTimeout: time.Minute,
	}
	o.URL = strings.TrimSuffix(o.URL, "/")
	c := &Client{options: o, transport: transport, http: &http.Client{Transport: unpaged{bounded{retrying{unprompted{transport}}}}}}
	if o.API == Anthropic {
		c.http.CheckRedirect = stayAtHost
		return c
	}
	config := openai.DefaultConfig(o.Key)
	config.BaseURL = o.URL
	config.HTTPClient = c.http
	c.openai = openai.NewClientWithConfig(config)
	return c
}

// Close closes idle connections.
func (c *Client) Close() { c.transport.CloseIdleConnections() }

// Ask returns the model's reply.
func (c *Client) Ask(ctx context.Context, q Request) (Reply, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, c.options.Timeout, fmt.Errorf("no answer within %s", c.options.Timeout))
	defer cancel()
	ask := c.askOpenAI
	if c.options.API == Anthropic {
		ask = c.askAnthropic
	}
	reply, err := ask(ctx, q)
	switch status := statusOf(err); {
	case err == nil:
		return reply, nil
	case ctx.Err() != nil:
		return Reply{}, fmt.Errorf("%w: %w", context.Cause(ctx), c.presentable(err))
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return Reply{}, fmt.Errorf("the server's reply is empty or ends too early: %w", c.presentable(err))
	case refuses(status, err):
		return Reply{}, &Refusal{status, c.presentable(err)}
	default:
		return Reply{}, c.presentable(err)
	}
}

// refuses reports whether an error with a status is final.
func refuses(status int, err error) bool {
	var page *pageError
	if errors.As(err, &page) {
		return aboutRequest(status)
	}
	return status >= http.StatusBadRequest && !temporary(status)
}

// statusOf returns the status of the reply that an error is about, or 0.
func statusOf(err error) int {
	var api *openai.APIError
	var other *openai.RequestError
	var message *messageError
	var page *pageError
	var moved *movedError
	switch {
	case errors.As(err, &api):
		return api.HTTPStatusCode
	case errors.As(err, &other):
		return other.HTTPStatusCode
	case errors.As(err, &message):
		return message.status
	case errors.As(err, &page):
		return page.status
	case errors.As(err, &moved):
		return http.StatusMisdirectedRequest
	}
	return 0
}

const (
	// errorBytes is the most of an error's text that is kept: it may quote a whole body.
	errorBytes = 2 << 10
	// secretBytes is the least length of a key that is worth hiding. Local servers often
	// have a key such as "x", which is in every text.
	secretBytes = 4
)

// presentable returns the error without the key, which servers quote when they refuse it,
// and not too long.
func (c *Client) presentable(err error) error {
	text := err.Error()
	if len(c.options.Key) >= secretBytes {
		text = strings.ReplaceAll(text, c.options.Key, "[the key]")
	}
	text = truncate.Ellipsis(text, errorBytes)
	if text == err.Error() {
		return err
	}
	return errors.New(text)
}

// askOpenAI asks for a chat completion. If the server names a parameter that it does not
// accept, the request is sent again without it, and so are all later ones.
func (c *Client) askOpenAI(ctx context.Context, q Request) (Reply, error) {
	for {
		request := c.completion(q)
		r, err := c.openai.CreateChatCompletion(ctx, request)
		switch {
		case err != nil && c.adapt(q, request, err):
			continue
		case err != nil:
			return Reply{}, err
		case len(r.Choices) == 0:
			// Not a model's reply but, for example, a proxy's report of an error with status 200.
			return Reply{}, errors.New("the answer has no choices, so it is no chat completion")
		}
		one := r.Choices[0]
		return Reply{
			Text: one.Message.Content, CutOff: one.FinishReason == openai.FinishReasonLength,
			Usage: Usage{r.Usage.PromptTokens, r.Usage.CompletionTokens}, Model: r.Model,
		}, nil
	}
}

func (c *Client) completion(q Request) openai.ChatCompletionRequest {
	request := openai.ChatCompletionRequest{Model: c.options.Model, Messages: make([]openai.ChatCompletionMessage, len(q.Messages))}
	for i, m := range q.Messages {
		request.Messages[i] = openai.ChatCompletionMessage{Role: m.Role, Content: m.Content}
	}
	if c.completionTokens.Load() {
		request.MaxCompletionTokens = q.MaxTokens
	} else {
		request.MaxTokens = q.MaxTokens //nolint:staticcheck // what most compatible servers know
	}
	if q.Repeat > 0 && !c.noSeed.Load() {
		request.Seed = &q.Repeat
	}
	return request
}

// adapt reports whether a request should be sent again in another form.
func (c *Client) adapt(q Request, request openai.ChatCompletionRequest, err error) bool {
	refused := aboutRequest(statusOf(err))
	if q.MaxTokens > 0 && request.MaxCompletionTokens == 0 && (errors.Is(err, openai.ErrReasoningModelMaxTokensDeprecated) || refused && strings.Contains(err.Error(), "max_completion_tokens")) {
		c.completionTokens.Store(true)
		return true
	}
	if request.Seed != nil && refused && strings.Contains(err.Error(), "seed") {
		c.noSeed.Store(true)
		return true
	}
	return false
}
