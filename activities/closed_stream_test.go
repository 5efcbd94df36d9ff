package activities_test

import (
	"bufio"
	"bytes"
	"context"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/agent"
	"github.com/fulgurite/fulgurite/internal/protocol"
	"github.com/fulgurite/fulgurite/record"
)

// heldStreams is a gateway whose streams stop after their first event until a forwarder
// asks for its health, which it does when an agent has closed a stream.
type heldStreams struct {
	http.Handler
	closed chan struct{} // one entry for each such question
	asked  atomic.Int64  // requests of agents
}

func (h *heldStreams) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.URL.Path == "/healthz":
		h.Handler.ServeHTTP(w, r)
		select {
		case h.closed <- struct{}{}:
		default:
		}
		return
	case r.Header.Get(protocol.RequestNameHeader) != "":
		h.asked.Add(1)
		w = &heldConnection{ResponseWriter: w, pass: h.closed}
	}
	h.Handler.ServeHTTP(w, r)
}

// heldConnection holds all writes after the first event until pass gives an entry.
type heldConnection struct {
	http.ResponseWriter
	pass    <-chan struct{}
	written bool
	passed  bool
}

func (c *heldConnection) Unwrap() http.ResponseWriter { return c.ResponseWriter }

func (c *heldConnection) Write(p []byte) (int, error) {
	n := bytes.Index(p, []byte("\n\n")) + 2
	if c.passed || !c.written && n == len(p) {
		c.written = true
		return c.ResponseWriter.Write(p)
	}
	if !c.written {
		_, _ = c.ResponseWriter.Write(p[:n])
		_ = http.NewResponseController(c.ResponseWriter).Flush()
		p = p[n:]
		c.written = true
	} else {
		n = 0
	}
	<-c.pass
	c.passed = true
	m, err := c.ResponseWriter.Write(p)
	return n + m, err
}

// beginStream asks for a streamed reply, reads its first event and closes it.
func beginStream(ctx context.Context, env agent.Env, content string) error {
	body := `{"model":"any","stream":true,"messages":[{"role":"user","content":"` + content + `"}]}`
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, env.BaseURL+"/chat/completions", bytes.NewReader([]byte(body)))
	if err != nil {
		return err
	}
	request.Close = true
	request.Header.Set("Authorization", "Bearer "+env.Key)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	_, err = bufio.NewReader(response.Body).ReadString('\n')
	_ = response.Body.Close()
	return err
}

// An agent that uses the beginnings of replies has used the model: its calls are on record
// whole, each another sample, and the attempt is sealed after the last of them.
func TestRepliesThatAnAgentStopsReadingAreOnRecordWhole(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	w.start(w.spec())
	texts := func(sample int, door http.Handler, ask func(context.Context, agent.Env, string) error) (completions [][]int32, marks []bool) {
		runner := w.runner(w.serve(door), func(ctx context.Context, task agent.Task, env agent.Env) (string, error) {
			for range 3 {
				if err := ask(ctx, env, task.Input); err != nil {
					return "", err
				}
			}
			return "42", nil
		})
		result, err := do[activities.RunAgentResult](t, runner.RunAgent, rollout(0, sample))
		require.NoError(t, err)
		require.Equal(t, 1, result.Attempt)
		require.Equal(t, record.OutcomeCompleted, result.Outcome)
		calls, err := w.store.Calls(t.Context(), at(rollout(0, sample), 1))
		require.NoError(t, err)
		for i, c := range calls {
			require.Equal(t, i, c.Occurrence)
			completions, marks = append(completions, c.Completion), append(marks, c.PartlyRead)
		}
		return completions, marks
	}
	held := &heldStreams{Handler: w.gateway(), closed: make(chan struct{}, 1)}
	cut, marks := texts(0, held, beginStream)
	require.Equal(t, []bool{true, true, true}, marks)
	require.EqualValues(t, 3, held.asked.Load(), "no request is made twice")

	// Uncut, the same rollout gets the same three replies.
	again := newTestEnv(t)
	again.start(again.spec())
	w = again
	whole, marks := texts(0, w.gateway(), func(ctx context.Context, env agent.Env, content string) error {
		_, err := streamed(ctx, env, content)
		return err
	})
	require.Equal(t, []bool{false, false, false}, marks)
	require.Equal(t, whole, cut)
}
