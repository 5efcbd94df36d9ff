package judge

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/trace"
)

// request asks for the scores of one attempt.
type request struct {
	prompt
	key     string
	address trace.Address
	// nonsense is how many answers could not be read before.
	nonsense int
}

func (j *Judge) request(a Attempt) (request, error) {
	p, err := j.prompt(a)
	return request{prompt: p, key: p.key(j.Model), address: a.Address}, err
}

// judge asks until an answer can be parsed, and stores it. The stored scores count:
// another run with the same request, or a worker that took over while this one hung, may
// have stored its scores first. If they are already stored, no request is made.
func (j *Judge) judge(ctx context.Context, r request) ([]float64, error) {
	if known, err := j.store.Judgment(ctx, r.key); !errors.Is(err, trace.ErrNotFound) {
		return known.Scores, err
	}
	messages := r.messages()
	why, answer := errors.New("see the record"), ""
	for try := r.nonsense + 1; try <= tries; try++ {
		if j.left.Add(-1) < 0 {
			return nil, fmt.Errorf("%w: answers that could not be read have used up what credit.judge.requests allows, %d", ErrRequests, j.Requests)
		}
		var err error
		answer, err = j.client.ask(ctx, messages)
		j.asked.Add(1)
		if err != nil {
			j.left.Add(1)
			return nil, err
		}
		scores, err := read(answer, r.calls)
		if err == nil {
			return j.storeScores(ctx, r, scores)
		}
		messages, why = r.retryMessages(answer, err), err
		if err := j.storeNonsense(ctx, r, try, answer, why); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("%w, %d times; at last: %w: %.200q", ErrNonsense, tries, why, answer)
}

func (j *Judge) storeScores(ctx context.Context, r request, scores []float64) ([]float64, error) {
	stored, _, err := j.store.PutJudgment(ctx, record.Judgment{
		Key: r.key, Model: j.Model, Scores: scores, Run: j.run, Policy: j.policy, Step: j.step,
	})
	return stored.Scores, err
}

// storeNonsense records an answer that could not be parsed, since the request counts even
// if this process dies.
func (j *Judge) storeNonsense(ctx context.Context, r request, try int, answer string, why error) error {
	return j.store.PutNonsense(ctx, record.Nonsense{
		Run: j.run, Policy: j.policy, Step: j.step, Judgment: r.key, Try: try, Answer: truncate(answer), Reason: why.Error(),
	})
}

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
// an outage, so it only slows a step down. After a fault of the server, it repeats it a
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
