package activities_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/agent"
	"github.com/fulgurite/fulgurite/internal/protocol"
)

// breakingStreams is a gateway whose streams break off after so many bytes, the first time that
// each request is made.
type breakingStreams struct {
	http.Handler
	after int

	mu   sync.Mutex
	seen map[string]bool
}

func (c *breakingStreams) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	name := r.Header.Get(protocol.RequestNameHeader)
	again := c.seen[name]
	c.seen[name] = true
	c.mu.Unlock()
	if name == "" || again {
		c.Handler.ServeHTTP(w, r)
		return
	}
	c.Handler.ServeHTTP(&brokenConnection{w, c.after}, r)
}

// brokenConnection is a connection that breaks after some more bytes.
type brokenConnection struct {
	http.ResponseWriter
	left int
}

func (s *brokenConnection) Unwrap() http.ResponseWriter { return s.ResponseWriter }

func (s *brokenConnection) Write(p []byte) (int, error) {
	if len(p) > s.left {
		_, _ = s.ResponseWriter.Write(p[:s.left])
		_ = http.NewResponseController(s.ResponseWriter).Flush()
		panic(http.ErrAbortHandler)
	}
	s.left -= len(p)
	return s.ResponseWriter.Write(p)
}

// streamed asks for a streamed reply and returns all of it.
func streamed(ctx context.Context, env agent.Env, content string) (string, error) {
	body := `{"model":"any","stream":true,"messages":[{"role":"user","content":"` + content + `"}]}`
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, env.BaseURL+"/chat/completions", bytes.NewReader([]byte(body)))
	if err != nil {
		return "", err
	}
	request.Close = true
	request.Header.Set("Authorization", "Bearer "+env.Key)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	return string(text), err
}

// The gateway, the forwarder and the journal are real. An agent gets the same bytes from
// a stream that breaks anywhere as from one that doesn't.
func TestAStreamedReplyThatBreaksAnywhereIsTheSame(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	w.start(w.spec())
	look := func(sample, after int) string {
		var got string
		door := &breakingStreams{Handler: w.gateway(), after: after, seen: map[string]bool{}}
		runner := w.runner(w.serve(door), func(ctx context.Context, task agent.Task, env agent.Env) (string, error) {
			var err error
			got, err = streamed(ctx, env, task.Input)
			return "42", err
		})
		result, err := do[activities.RunAgentResult](t, runner.RunAgent, rollout(0, sample))
		require.NoError(t, err)
		require.Equal(t, 1, result.Attempt, "no fault was in sight")
		calls, err := w.store.Exchanges(t.Context(), at(rollout(0, sample), 1))
		require.NoError(t, err)
		require.Len(t, calls, 1, "sampled once")
		var reply chunk
		require.NoError(t, json.Unmarshal(calls[0].Response, &reply))
		require.Equal(t, reply.Choices[0].Message.Content, streamedText(t, got))
		return got
	}
	whole := look(0, 1<<20) // never cut
	require.Greater(t, len(whole), 500)
	for after := 0; after < len(whole); after += 97 {
		look(1+after, after)
	}
}

// chunk is an event of a streamed reply, or all of one that is not streamed.
type chunk struct {
	Choices []struct{ Delta, Message struct{ Content string } }
}

// streamedText returns the text of a stream.
func streamedText(t *testing.T, stream string) string {
	t.Helper()
	require.True(t, strings.HasSuffix(stream, "data: [DONE]\n\n"))
	var text strings.Builder
	for line := range strings.Lines(stream) {
		data, ok := strings.CutPrefix(line, "data: {")
		if !ok {
			continue
		}
		var c chunk
		require.NoError(t, json.Unmarshal([]byte("{"+data), &c))
		for _, choice := range c.Choices {
			text.WriteString(choice.Delta.Content)
		}
	}
	return text.String()
}

// Errors of Anthropic's API have no field for the code by which a forwarder recognizes
// that an agent exceeds a limit.
func TestAgentThatNeverStopsAskingByMessagesIsEnded(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	s := w.spec()
	s.Agent.Limits.Calls = 1
	w.start(s)
	runner := w.runner(w.serve(w.gateway()), func(ctx context.Context, task agent.Task, env agent.Env) (string, error) {
		body := []byte(`{"model":"any","max_tokens":4,"messages":[{"role":"user","content":"` + task.Input + `"}]}`)
		for ctx.Err() == nil {
			_, _ = post(ctx, env, env.BaseURL+"/messages", body)
		}
		return "never enough", nil
	})
	in := rollout(0, 0)
	_, err := do[activities.RunAgentResult](t, runner.RunAgent, in)
	require.NoError(t, err)
	require.Equal(t, "call_limit", w.attempt(at(in, 1)).Failure)
}
