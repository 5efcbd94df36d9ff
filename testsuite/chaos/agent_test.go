package main

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const answers = `{"id":"chatcmpl-2","object":"chat.completion","created":1,"model":"any","choices":[{"index":0,"finish_reason":"stop",
	"message":{"role":"assistant","content":"33"}}]}`

func TestTheAgentAsksTheSameTwiceOnPurpose(t *testing.T) {
	first, second := asked(t, agentOptions{think: time.Millisecond})
	require.Equal(t, first, second)
}

func TestTheAgentAsksTwoThingsAtOnce(t *testing.T) {
	first, second := asked(t, agentOptions{parallel: true})
	require.NotEqual(t, first, second)
}

// asked returns the two requests that the agent makes to a model that answers at once.
func asked(t *testing.T, m agentOptions) (first, second string) {
	t.Helper()
	requests := make(chan string, 9)
	gateway := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		requests <- string(body)
		_, _ = io.WriteString(w, answers)
	}))
	defer gateway.Close()
	t.Setenv("OPENAI_BASE_URL", gateway.URL+"/v1")
	var out bytes.Buffer
	require.NoError(t, solve(t.Context(), m, strings.NewReader(`{"input":"12+7*3"}`), &out))
	require.Equal(t, "33\n", out.String())
	require.Len(t, requests, 2)
	return <-requests, <-requests
}

func TestTheAgentSaysWhatItLacks(t *testing.T) {
	t.Parallel()
	require.ErrorContains(t, solve(t.Context(), agentOptions{}, strings.NewReader("12"), io.Discard), "read task")
	m := agentOptions{think: time.Second, parallel: true, named: true}
	back, err := parseAgentOptions(m.arguments()[1:])
	require.NoError(t, err)
	require.Equal(t, m, back)
	for _, bad := range [][]string{nil, {"long", "true", "true"}, {"1s", "perhaps", "true"}, {"1s", "true", "perhaps"}, {"1s", "true"}} {
		_, err := parseAgentOptions(bad)
		require.Error(t, err, "%v", bad)
	}
}
