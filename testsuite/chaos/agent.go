package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"time"

	openai "github.com/sashabaranov/go-openai"
	"golang.org/x/sync/errgroup"

	"github.com/fulgurite/fulgurite/examples/calc/calculator"
)

// agentCommand is the argument that makes this program an agent.
const agentCommand = "agent"

// agentOptions say how the agent works.
type agentOptions struct {
	// think is the time before each call, so that most faults come between calls.
	think time.Duration
	// parallel makes two dialogs at once. Otherwise the second dialog follows the first.
	// Both then begin with the same request, which must be sampled again for the second.
	parallel bool
}

// arguments returns the arguments that parseAgentOptions reads.
func (m agentOptions) arguments() []string {
	return []string{agentCommand, m.think.String(), strconv.FormatBool(m.parallel)}
}

func parseAgentOptions(args []string) (m agentOptions, err error) {
	if len(args) != 2 {
		return m, errors.New("say how long to think before a call, and whether to make two at once")
	}
	if m.think, err = time.ParseDuration(args[0]); err != nil {
		return m, err
	}
	m.parallel, err = strconv.ParseBool(args[1])
	return m, err
}

// solve is an agent that knows nothing about its environment. It solves its task with the
// calculator twice. If the dialogs follow each other, it returns the last answer. If they
// run in parallel, it returns the answer that sorts last, so that it does not matter
// which one is finished first.
func solve(ctx context.Context, m agentOptions, in io.Reader, out io.Writer) error {
	var task struct {
		Input string `json:"input"`
	}
	if err := json.NewDecoder(in).Decode(&task); err != nil {
		return fmt.Errorf("read task: %w", err)
	}
	config := openai.DefaultConfig(os.Getenv("OPENAI_API_KEY"))
	config.BaseURL = os.Getenv("OPENAI_BASE_URL")
	config.HTTPClient = &http.Client{Transport: slowTransport{http.DefaultTransport, m.think}}
	agent := calculator.Agent{Client: openai.NewClientWithConfig(config), Model: os.Getenv("OPENAI_MODEL_NAME"), MaxTurns: 3}
	answers := make([]string, 2)
	var both errgroup.Group
	if !m.parallel {
		both.SetLimit(1)
	}
	for i := range answers {
		question := task.Input
		if m.parallel && i == 1 {
			question += "+0"
		}
		both.Go(func() (err error) {
			answers[i], err = agent.Solve(ctx, question)
			if errors.Is(err, calculator.ErrNoAnswer) {
				err = nil
			}
			return err
		})
	}
	if err := both.Wait(); err != nil {
		return err
	}
	answer := answers[1]
	if m.parallel {
		answer = slices.Max(answers)
	}
	_, err := fmt.Fprintln(out, answer)
	return err
}

// slowTransport waits before each request.
type slowTransport struct {
	next  http.RoundTripper
	think time.Duration
}

// RoundTrip implements http.RoundTripper.
func (t slowTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	timer := time.NewTimer(t.think)
	defer timer.Stop()
	select {
	case <-timer.C:
		return t.next.RoundTrip(r)
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}
