package chatclient

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/fulgurite/fulgurite/internal/protocol"
	"github.com/fulgurite/fulgurite/internal/truncate"
)

// The wait before a request that came too soon is sent again, where the server does
// not say how long; it doubles up to the longest.
const (
	firstWait   = 500 * time.Millisecond
	longestWait = 10 * time.Second
)

// maxFaults is how often a request is sent again after a fault of the server.
const maxFaults = 2

// retrying is a transport that repeats requests. While the server answers that there are
// too many requests, it repeats one for as long as its context lasts: a rate limit is not
// an outage, so it only slows the work down. After a fault of the server, it repeats it a
// few times.
type retrying struct{ http.RoundTripper }

func (t retrying) RoundTrip(r *http.Request) (*http.Response, error) {
	faults := 0
	for wait := firstWait; ; wait = min(2*wait, longestWait) {
		response, err := t.RoundTripper.RoundTrip(r)
		if err != nil {
			return nil, err
		}
		if response.StatusCode >= http.StatusInternalServerError {
			faults++
		}
		again := response.StatusCode == http.StatusTooManyRequests || response.StatusCode >= http.StatusInternalServerError && faults <= maxFaults
		if !again || r.GetBody == nil {
			return response, nil
		}
		_, _ = io.CopyN(io.Discard, response.Body, 1<<16) // so that the connection can be used again
		if err := response.Body.Close(); err != nil {
			return nil, err
		}
		if seconds, err := strconv.ParseFloat(response.Header.Get("Retry-After"), 64); err == nil && seconds >= 0 {
			wait = time.Duration(min(seconds, longestWait.Seconds()) * float64(time.Second))
		}
		select {
		case <-r.Context().Done():
			return nil, fmt.Errorf("after status %d: %w", response.StatusCode, r.Context().Err())
		case <-time.After(wait):
		}
		r = r.Clone(r.Context())
		if r.Body, err = r.GetBody(); err != nil {
			return nil, err
		}
	}
}

// unprompted asks a gateway that serves the model to leave requests as they are: prompts are
// for the requests of agents.
type unprompted struct{ http.RoundTripper }

func (u unprompted) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set(protocol.PromptsHeader, protocol.NoPrompts)
	return u.RoundTripper.RoundTrip(r)
}

// maxBytes is how many bytes of a reply's body are read at most.
const maxBytes = 4 << 20

// bounded limits how much of a reply is read.
type bounded struct{ http.RoundTripper }

func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := b.RoundTripper.RoundTrip(r)
	if err == nil {
		response.Body = http.MaxBytesReader(nil, response.Body, maxBytes)
	}
	return response, err
}

// pageError is the error of a reply that is a web page. APIs reply in JSON, so the page
// comes from somebody else, such as a proxy.
type pageError struct {
	status int
	page   string
}

func (e *pageError) Error() string {
	return fmt.Sprintf("the reply with status %d is a web page, perhaps that of a proxy: %q", e.status, e.page)
}

const (
	// blankBytes is how far a page is looked for behind white space.
	blankBytes = 512
	// pageBytes is how much of a page its error quotes.
	pageBytes = 300
)

// unpaged returns a pageError for web pages.
type unpaged struct{ http.RoundTripper }

func (u unpaged) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := u.RoundTripper.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	body := response.Body
	buffered := bufio.NewReaderSize(body, blankBytes)
	// An error of the body comes again when it is read.
	first, _ := buffered.Peek(1)
	if n := buffered.Buffered(); n > 1 {
		first, _ = buffered.Peek(n)
	}
	if !bytes.HasPrefix(bytes.TrimSpace(first), []byte("<")) {
		response.Body = struct {
			io.Reader
			io.Closer
		}{buffered, body}
		return response, nil
	}
	page, err := io.ReadAll(io.LimitReader(buffered, pageBytes+1))
	if err = errors.Join(err, body.Close()); err != nil {
		return nil, fmt.Errorf("read a web page with status %d: %w", response.StatusCode, err)
	}
	return nil, &pageError{response.StatusCode, truncate.Ellipsis(string(page), pageBytes)}
}
