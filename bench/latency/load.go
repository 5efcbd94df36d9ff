package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// target is a server that is measured.
type target struct {
	name string
	url  func(serial int) string
}

// load is a stream of requests.
type load struct {
	rate   float64 // requests a second
	count  int
	stream bool
	delay  time.Duration // time that the upstream takes for a request
}

// outcome is the outcome of a load.
type outcome struct {
	added    []time.Duration // latency less delay, sorted
	failures int
	failure  string // the first one
}

func (o outcome) at(q float64) time.Duration {
	if len(o.added) == 0 {
		return 0
	}
	return o.added[min(len(o.added)-1, int(q*float64(len(o.added))))]
}

// run sends the load. Requests are due at even intervals, whatever became of those
// before.
func (l load) run(ctx context.Context, client *http.Client, t target) outcome {
	var out outcome
	var mu sync.Mutex
	var wg sync.WaitGroup
	begin := time.Now().Add(50 * time.Millisecond)
	for i := range l.count {
		due := begin.Add(time.Duration(float64(i) / l.rate * float64(time.Second)))
		timer := time.NewTimer(time.Until(due))
		<-timer.C
		wg.Go(func() {
			err := l.ask(ctx, client, t)
			took := time.Since(due) - l.delay
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				out.failures++
				out.failure = fmt.Sprint(err)
				return
			}
			out.added = append(out.added, took)
		})
	}
	wg.Wait()
	slices.Sort(out.added)
	return out
}

// ask makes one request and reads its reply to the end.
func (l load) ask(ctx context.Context, client *http.Client, t target) error {
	n := nextSerial()
	body := fmt.Sprintf(`{"model":"canned","stream":%t,"messages":[{"role":"system","content":"You are a helpful assistant."},{"role":"user","content":"Question %d: say something."}]}`, l.stream, n)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, t.url(n), strings.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Authorization", "Bearer "+key)
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	reply, err := io.ReadAll(response.Body)
	switch {
	case err != nil:
		return err
	case response.StatusCode != http.StatusOK:
		return fmt.Errorf("%d: %.200s", response.StatusCode, reply)
	case l.stream && !bytes.Contains(reply, []byte("[DONE]")):
		return fmt.Errorf("the stream ended early: %.200s", reply)
	case !l.stream && !bytes.Contains(reply, []byte(answer)):
		return fmt.Errorf("another answer: %.200s", reply)
	}
	return nil
}
