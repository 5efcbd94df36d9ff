package judge

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"
)

// The wait before a request that came too soon is sent again, where the server does
// not say how long; it doubles up to the longest.
const (
	firstWait   = 500 * time.Millisecond
	longestWait = 10 * time.Second
)

// mostFaults is how often a request is sent again after a fault of the server.
const mostFaults = 2

// retrying sends a request again for as long as its context lasts while the server
// says that there are too many, and a few times after a fault of the server: a limited
// rate is no outage, and slows a step down without failing it.
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
		again := response.StatusCode == http.StatusTooManyRequests || response.StatusCode >= http.StatusInternalServerError && faults <= mostFaults
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
