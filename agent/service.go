package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/fulgurite/fulgurite/internal/health"
	"github.com/fulgurite/fulgurite/internal/truncate"
)

const (
	// serviceBytes is the most that a service may answer.
	serviceBytes = 8 << 20
	// refusalBytes is how much of a refusal stands in the failure's message.
	refusalBytes = 2 << 10
)

// Service is an agent behind HTTP, for many attempts at once. It is asked by POST
// of an Invocation as JSON, under an Idempotency-Key that is the attempt's address, and
// answers with its result, as ReadReply reads it.
//
// A service that can't be reached, breaks off, or answers 429, 502, 503 or 504 is away or
// overloaded: that is a fault, and no failure. Any other status outside 200 to 299 is the
// agent's failure. When a limit ends the attempt, the request is given up, which the
// service has to notice by itself.
type Service struct {
	// URL takes the requests. Redirects are not followed.
	URL string
	// Headers are added to each request.
	Headers map[string]string
}

// Launch asks the service and waits for its answer.
func (s Service) Launch(ctx context.Context, job Job) (Result, error) {
	if ctx.Err() != nil {
		return Result{}, job.infrastructure(context.Cause(ctx))
	}
	began := time.Now()
	bounded, stop := limited(ctx, job, func() time.Duration { return time.Since(began) })
	defer stop()
	result, err := s.ask(bounded, job)
	var over *LimitError
	switch {
	case err == nil:
		return result, nil
	case errors.As(context.Cause(bounded), &over):
		return Result{Failure: over.Failure, Message: over.Message}, nil
	case ctx.Err() != nil:
		return Result{}, job.infrastructure(context.Cause(ctx))
	}
	return Result{}, job.infrastructure(err)
}

func (s Service) ask(ctx context.Context, job Job) (Result, error) {
	body, err := json.Marshal(job.Invocation())
	if err != nil {
		return Result{}, fmt.Errorf("encode invocation: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL, bytes.NewReader(body))
	if err != nil {
		return Result{}, fmt.Errorf("ask service: %w", err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Idempotency-Key", job.Address.String())
	for name, value := range s.Headers {
		request.Header.Set(name, value)
	}
	// Each request has a new connection: on a reused one, it could be sent twice.
	transport := health.NewTransport()
	transport.Proxy, transport.DisableKeepAlives = http.ProxyFromEnvironment, true
	response, err := transport.RoundTrip(request)
	if err != nil {
		return Result{}, fmt.Errorf("ask service: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	job.progressed()
	text, err := io.ReadAll(io.LimitReader(response.Body, serviceBytes+1))
	if err != nil {
		return Result{}, fmt.Errorf("read answer of service: %w", err)
	}
	return answer(response, text, job.Limits.Reward)
}

// answer turns a service's answer into a result.
func answer(response *http.Response, text []byte, limit float64) (Result, error) {
	switch status := response.StatusCode; {
	case status == http.StatusTooManyRequests, status == http.StatusBadGateway,
		status == http.StatusServiceUnavailable, status == http.StatusGatewayTimeout:
		return Result{}, fmt.Errorf("service answered %s: %s", response.Status, shortened(text))
	case status < 200 || status > 299:
		message := strings.TrimSpace(fmt.Sprintf("service answered %s: %s", response.Status, shortened(text)))
		return Result{Failure: Error, Message: message}, nil
	case len(text) > serviceBytes:
		return Result{Failure: OutputLimit, Message: fmt.Sprintf("answered more than %d bytes", serviceBytes)}, nil
	}
	return ReadReply(text, limit), nil
}

func shortened(text []byte) string {
	return truncate.Head(strings.ToValidUTF8(string(bytes.TrimSpace(text)), "\uFFFD"), refusalBytes)
}
