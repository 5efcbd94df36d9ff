package agent

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"os"
	"strings"
	"time"
	"unicode/utf16"
	"unicode/utf8"

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
	// TLS says which certificates the service may have; nil is what the system accepts.
	TLS *tls.Config
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
	transport := health.NewTransport(s.TLS)
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

// quotedBytes is how much of an answer that is no result stands in an error.
const quotedBytes = 200

// errTooLong is returned for an answer of more than serviceBytes.
var errTooLong = errors.New("too long")

// wanted ends the errors about answers that can't be told from those of a proxy.
const wanted = `want JSON {"result": …}, or text as text/plain`

// answer turns a service's answer into a result. Whatever the service's own code need not
// have written is a fault, since the agent has nothing to do with it: most statuses, and
// bodies of other kinds than JSON and text.
func answer(response *http.Response, body []byte, limit float64) (Result, error) {
	body, err := decompressed(response.Header.Get("Content-Encoding"), body)
	switch status := response.StatusCode; {
	case status == http.StatusBadRequest, status == http.StatusUnprocessableEntity, status == http.StatusInternalServerError:
		message := strings.TrimSpace(fmt.Sprintf("service answered %s: %s", response.Status, shortened(body)))
		return Result{Failure: Error, Message: message}, nil
	case status >= 300 && status <= 399 && response.Header.Get("Location") != "":
		return Result{}, fmt.Errorf("service answered %s and names another address, %.300q: redirects are not followed, so let agent.service.url be the final address",
			response.Status, response.Header.Get("Location"))
	case status == http.StatusAccepted:
		return Result{}, fmt.Errorf("service answered %s, which is no result: it has to answer with status 200 when its agent is done", response.Status)
	case status != http.StatusOK && status != http.StatusCreated:
		return Result{}, fmt.Errorf("service answered %s: %s", response.Status, shortened(body))
	case errors.Is(err, errTooLong) || len(body) > serviceBytes:
		return Result{Failure: OutputLimit, Message: fmt.Sprintf("answered more than %d bytes", serviceBytes)}, nil
	case err != nil:
		return Result{}, fmt.Errorf("service answered %s: %w", response.Status, err)
	}
	text, err := textOf(response.Header.Get("Content-Type"), body)
	if err != nil {
		return Result{}, fmt.Errorf("service answered %s: %w", response.Status, err)
	}
	return ReadReply(text, limit), nil
}

// decompressed returns the body without its content coding.
func decompressed(coding string, body []byte) ([]byte, error) {
	switch strings.ToLower(strings.TrimSpace(coding)) {
	case "", "identity":
		return body, nil
	case "gzip", "x-gzip":
		r, err := gzip.NewReader(bytes.NewReader(body))
		if err != nil {
			return nil, fmt.Errorf("its body is not in gzip, as Content-Encoding says: %w", err)
		}
		plain, err := io.ReadAll(io.LimitReader(r, serviceBytes+1))
		switch {
		case err != nil:
			return nil, fmt.Errorf("its body in gzip can't be read: %w", err)
		case len(plain) > serviceBytes:
			return nil, errTooLong
		}
		return plain, nil
	}
	return nil, fmt.Errorf("its Content-Encoding %.80q can't be read: want none, or gzip", coding)
}

// textOf returns the body in UTF-8 if it is an answer: text, a JSON text, number or truth
// value, or an object with a result or a reward.
func textOf(contentType string, body []byte) ([]byte, error) {
	kind, charset, err := mediaType(contentType)
	if err != nil {
		return nil, err
	}
	declared := kind == "application/json" || strings.HasSuffix(kind, "+json")
	if !declared && kind != "" && kind != "text/plain" && kind != "text/markdown" {
		return nil, fmt.Errorf("content type %.80q is no result, %s; it begins with %.*q", kind, wanted, quotedBytes, body)
	}
	text, err := inUTF8(charset, body)
	if err != nil {
		return nil, err
	}
	text = bytes.TrimSpace(text)
	switch {
	case len(text) == 0:
		return nil, fmt.Errorf(`its body is empty, which is no result: answer {"result": ""} if the agent's result is an empty text`)
	case bytes.ContainsFunc(text, isBinary):
		return nil, fmt.Errorf("its body is binary, %s; it begins with %.*q", wanted, quotedBytes, text)
	case !declared && strings.HasPrefix(http.DetectContentType(text), "text/html"):
		return nil, fmt.Errorf(`its body is an HTML page, %s; an agent whose result is a page answers {"result": "<html…"}; it begins with %.*q`, wanted, quotedBytes, text)
	case kind == "" && isEventStream(text):
		return nil, fmt.Errorf("its body is a stream of events, %s; it begins with %.*q", wanted, quotedBytes, text)
	}
	return text, checkJSON(text, declared)
}

// mediaType reads a content type. Both results are empty if there is none.
func mediaType(contentType string) (kind, charset string, err error) {
	if strings.TrimSpace(contentType) == "" {
		return "", "", nil
	}
	kind, parameters, err := mime.ParseMediaType(contentType)
	if err != nil && !errors.Is(err, mime.ErrInvalidMediaParameter) {
		return "", "", fmt.Errorf("its content type %.80q can't be read: %w", contentType, err)
	}
	return kind, strings.ToLower(parameters["charset"]), nil
}

// inUTF8 decodes a body. A byte order mark says more than the charset, which many servers
// name by habit.
func inUTF8(charset string, body []byte) ([]byte, error) {
	switch {
	case bytes.HasPrefix(body, []byte("\xEF\xBB\xBF")):
		charset, body = "utf-8", body[3:]
	case bytes.HasPrefix(body, []byte("\xFF\xFE")):
		charset, body = "utf-16le", body[2:]
	case bytes.HasPrefix(body, []byte("\xFE\xFF")):
		charset, body = "utf-16be", body[2:]
	}
	switch charset {
	case "", "utf-8", "utf8", "us-ascii", "ascii":
		if !utf8.Valid(body) {
			return nil, fmt.Errorf("its body is not UTF-8, %s; it begins with %.*q", wanted, quotedBytes, body)
		}
		return body, nil
	case "utf-16", "utf-16be":
		return fromUTF16(binary.BigEndian, body)
	case "utf-16le":
		return fromUTF16(binary.LittleEndian, body)
	case "iso-8859-1", "latin1":
		text := make([]rune, len(body))
		for i, b := range body {
			text[i] = rune(b)
		}
		return []byte(string(text)), nil
	}
	return nil, fmt.Errorf("its charset %.80q can't be read: answer in UTF-8", charset)
}

func fromUTF16(order binary.ByteOrder, body []byte) ([]byte, error) {
	if len(body)%2 != 0 {
		return nil, fmt.Errorf("its body of %d bytes is not UTF-16: answer in UTF-8", len(body))
	}
	units := make([]uint16, len(body)/2)
	for i := range units {
		units[i] = order.Uint16(body[2*i:])
	}
	return []byte(string(utf16.Decode(units))), nil
}

// isBinary reports whether a character appears in no text.
func isBinary(r rune) bool {
	return r < ' ' && !strings.ContainsRune("\t\n\v\f\r\b\x1b", r)
}

// isEventStream reports whether a text begins as server-sent events do.
func isEventStream(text []byte) bool {
	for _, field := range []string{"data:", "event:", "id:", "retry:"} {
		if bytes.HasPrefix(text, []byte(field)) {
			return bytes.Contains(text, []byte("\ndata:")) || field == "data:"
		}
	}
	return false
}

// checkJSON returns an error for JSON that is no result: an object of another kind, which
// may be anybody's report of an error or of a start, and a list. declared says that the
// body has to be JSON.
func checkJSON(text []byte, declared bool) error {
	text = withoutNaN(text)
	if !json.Valid(text) {
		if declared {
			return fmt.Errorf("its body is not JSON, as its content type says; it begins with %.*q", quotedBytes, text)
		}
		return nil
	}
	switch text[0] {
	case '[':
		return fmt.Errorf(`its body is a list, which is no result: answer {"result": […]}; it begins with %.*q`, quotedBytes, text)
	case '{':
		var fields map[string]json.RawMessage
		if err := json.Unmarshal(text, &fields); err != nil {
			return fmt.Errorf("its body can't be read: %w", err)
		}
		if _, ok := fields["result"]; ok {
			return nil
		}
		if _, ok := fields["reward"]; ok {
			return nil
		}
		if _, ok := retryOf(fields); ok {
			return nil
		}
		return fmt.Errorf(`its body is an object without "result" and "reward", which is no result: answer {"result": …}, or status 500 if the agent has failed; it begins with %.*q`, quotedBytes, text)
	}
	return nil
}
