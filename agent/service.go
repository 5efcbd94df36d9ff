package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
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
// answers with its result.
//
// The answer is the agent's if its status is 200 or 201, and its body is a JSON object
// with "result", "reward" or "retry", a JSON text, number or truth value, or text as text/plain,
// text/markdown or without a content type. The statuses 400, 422 and 500 are the agent's
// failure. Everything else is a fault, as others than the agent answer like that: every
// other status, redirects, an empty body, HTML pages, streams, lists, other objects, what
// is not text, and a service that can't be reached or breaks off. When a limit ends the
// attempt, the request is given up, which the service has to notice by itself.
type Service struct {
	// URL takes the requests. Redirects are not followed.
	URL string
	// Headers are added to each request. Host names the server that a proxy is to ask.
	Headers map[string]string
	// SecretHeaders are added, too: each is the value of the variable of this process's
	// environment that stands here.
	SecretHeaders map[string]string
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
	request.Header.Set("Accept", "application/json, text/plain")
	request.Header.Set("Idempotency-Key", job.Address.String())
	if err := s.addHeaders(request); err != nil {
		return Result{}, err
	}
	// Each request has a new connection: on a reused one, it could be sent twice.
	transport := health.NewTransport()
	transport.DisableKeepAlives = true
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

// addHeaders adds the headers of the spec, and the user that the URL names.
func (s Service) addHeaders(request *http.Request) error {
	if user := request.URL.User; user != nil {
		password, _ := user.Password()
		request.SetBasicAuth(user.Username(), password)
	}
	headers := maps.Clone(s.Headers)
	for name, variable := range s.SecretHeaders {
		value := strings.TrimSpace(os.Getenv(variable))
		if value == "" {
			return fmt.Errorf("agent.service.secret_headers.%s: the environment variable %s is not set for this worker: start it with the header's value there", name, variable)
		}
		if headers == nil {
			headers = map[string]string{}
		}
		headers[name] = value
	}
	for name, value := range headers {
		if strings.EqualFold(name, "Host") { // net/http sends no other
			request.Host = value
		}
		request.Header.Set(name, value)
	}
	return nil
}

func shortened(text []byte) string {
	return truncate.Head(strings.ToValidUTF8(string(bytes.TrimSpace(text)), "\uFFFD"), refusalBytes)
}
