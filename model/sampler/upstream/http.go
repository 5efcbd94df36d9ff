package upstream

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/internal/wait"
	"github.com/fulgurite/fulgurite/model"
)

const (
	// replyBytes bounds a reply, lineBytes a line of a stream.
	replyBytes = 64 << 20
	lineBytes  = 8 << 20
	// tries is how often a server that is busy is asked.
	tries = 6
)

// refusal is a reply that is not 200.
type refusal struct {
	status  int
	message string
}

func (r *refusal) Error() string {
	return fmt.Sprintf("the server answered %d: %.300s", r.status, messageOf(r.message))
}

// messageOf returns the message in the JSON of an error, or all of the JSON if there is
// none.
func messageOf(body string) string {
	var failure struct {
		Message string          `json:"message"`
		Detail  string          `json:"detail"`
		Error   json.RawMessage `json:"error"`
	}
	if json.Unmarshal([]byte(body), &failure) != nil {
		return body
	}
	var inner struct {
		Message string `json:"message"`
	}
	var word string
	_ = json.Unmarshal(failure.Error, &inner) // it is an object, a text or not there
	_ = json.Unmarshal(failure.Error, &word)
	return cmp.Or(inner.Message, word, failure.Message, failure.Detail, body)
}

// isFault reports whether err is about the server rather than about the request.
func isFault(err error) bool {
	var r *refusal
	if errors.As(err, &r) {
		return r.status >= 500 || r.status == http.StatusTooManyRequests
	}
	return !errors.Is(err, model.ErrPromptTooLong) && !errors.Is(err, model.ErrForm) && !errors.Is(err, dialog.ErrDialog)
}

// post sends a request until the server is not busy. The caller closes the reply's body.
func (s *Sampler) post(ctx context.Context, url string, in any) (*http.Response, error) {
	body, err := json.Marshal(in)
	if err != nil {
		return nil, fmt.Errorf("encode request: %w", err)
	}
	for n := 1; ; n++ {
		response, err := s.ask(ctx, http.MethodPost, url, body)
		var r *refusal
		busy := errors.As(err, &r) && (r.status == http.StatusTooManyRequests || r.status == http.StatusServiceUnavailable)
		if !busy || n == tries {
			return response, err
		}
		if err := pause(ctx, response, n); err != nil {
			return nil, err
		}
	}
}

// pause waits before a busy server is asked again: for as long as the server says, or
// else 200 ms, doubled each time, less a random part of up to half.
func pause(ctx context.Context, response *http.Response, n int) error {
	d := 100 * time.Millisecond << n
	d -= time.Duration(rand.Int64N(int64(d / 2)))
	if after, err := strconv.Atoi(response.Header.Get("Retry-After")); err == nil && after >= 0 {
		d = min(time.Duration(after)*time.Second, longestRetry)
	}
	if !wait.For(ctx, d) {
		return ctx.Err()
	}
	return nil
}

// ask sends a request once. If the status is not 200, it reads and closes the body and
// returns a refusal.
func (s *Sampler) ask(ctx context.Context, method, url string, body []byte) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("make request: %w", err)
	}
	request.Header.Set("Content-Type", "application/json")
	// To repeat a request is always safe, and it is needed if the server closes the
	// connection at that moment. A key without a value is not sent, but lets the client
	// repeat the request.
	request.Header["Idempotency-Key"] = nil
	if key := s.key(); key != "" {
		request.Header.Set("Authorization", "Bearer "+key)
	}
	response, err := s.client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("ask: %w", err)
	}
	if response.StatusCode == http.StatusOK {
		return response, nil
	}
	defer func() { _ = response.Body.Close() }()
	text, _ := io.ReadAll(io.LimitReader(response.Body, 64<<10)) // as much as arrives
	r := &refusal{response.StatusCode, strings.TrimSpace(string(text))}
	if response.StatusCode == http.StatusBadRequest && tooLong(r.message) {
		return response, fmt.Errorf("%w: %w", model.ErrPromptTooLong, r)
	}
	return response, r
}

// isUnknown reports whether a server does not know the model that it was asked for.
func isUnknown(err error) bool {
	var r *refusal
	return errors.As(err, &r) && r.status == http.StatusNotFound
}

// tooLong recognises how servers say that a prompt does not fit.
func tooLong(message string) bool {
	lower := strings.ToLower(message)
	return slices.ContainsFunc([]string{"context length", "context size", "max_model_len", "longer than the maximum"}, func(words string) bool {
		return strings.Contains(lower, words)
	})
}

// readJSON reads a reply that is one JSON object.
func readJSON(response *http.Response, out any) error {
	defer func() { _ = response.Body.Close() }()
	if err := ofType(response, "application/json"); err != nil {
		return err
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, replyBytes+1))
	if err != nil {
		return fmt.Errorf("read reply: %w", err)
	}
	if len(body) > replyBytes {
		return fmt.Errorf("%w: more than %d bytes", ErrReply, replyBytes)
	}
	if err := json.Unmarshal(body, out); err != nil {
		return fmt.Errorf("%w: %w", ErrReply, err)
	}
	return nil
}

// readEvents reads a stream of JSON objects up to "[DONE]". A stream that ends earlier is
// an error.
func readEvents(response *http.Response, each func(data []byte) error) error {
	defer func() { _ = response.Body.Close() }()
	if err := ofType(response, "text/event-stream"); err != nil {
		return err
	}
	lines := bufio.NewScanner(io.LimitReader(response.Body, replyBytes))
	lines.Buffer(make([]byte, 64<<10), lineBytes)
	for lines.Scan() {
		data, ok := bytes.CutPrefix(lines.Bytes(), []byte("data:"))
		if !ok {
			continue // a comment, another field, or the end of an event
		}
		data = bytes.TrimSpace(data)
		if string(data) == "[DONE]" {
			return nil
		}
		if err := each(data); err != nil {
			return err
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read stream: %w", err)
	}
	return fmt.Errorf("%w: the stream ended before its end", ErrReply)
}

func ofType(response *http.Response, want string) error {
	header := response.Header.Get("Content-Type")
	if kind, _, err := mime.ParseMediaType(header); err != nil || kind != want {
		return fmt.Errorf("%w: content type %q where %s is expected", ErrReply, header, want)
	}
	return nil
}

// decodeObject reads one JSON object of a stream.
func decodeObject(data []byte, out any) error {
	if err := json.Unmarshal(data, out); err != nil {
		return fmt.Errorf("%w: %w: %.100s", ErrReply, err, data)
	}
	return nil
}
