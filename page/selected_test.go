package page_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPagesSayWhichCallsOfASelectedAgentAreTrained(t *testing.T) {
	t.Parallel()
	shown := goldenOf(t, "agent_selected")
	r := newEmpty(t, "plain")
	r.turns, r.agents, r.trained = 3, []string{"planner", "writer"}, "wri.*"
	r.whole()
	server := r.serve(nil)
	const untrained = `<span class="tag">not trained</span>`
	body := shown.get(server.URL, "/runs/demo")
	require.Contains(t, texts(t, body), "wri.*")
	body = shown.get(server.URL, "/runs/demo/train-1/0/1/1")
	text := texts(t, body)
	require.Contains(t, text, "Tokens 20 10 trained")
	require.Contains(t, text, "Call 0 planner not trained")
	require.Contains(t, text, "Call 2 planner not trained")
	require.Equal(t, 2, strings.Count(body, untrained), "the writer's calls are")
	require.Equal(t, 2, strings.Count(text, " · advantage "), "only what is trained has one")

	// Calls that are not trained have no credit, which is not the same as none.
	body = shown.get(server.URL, "/runs/demo/train-1/0/1/1/credit")
	text = texts(t, body)
	require.Contains(t, text, "planner not trained 5")
	require.Regexp(t, `planner not trained 5 \S+ 0\.000 – `, text)
	require.Regexp(t, `writer 5 \S+ 0\.000 0\.500 `, text)
	require.NotContains(t, text, "from 0.000", "the curve begins with the first call that is trained")
	require.Regexp(t, `Advantage: .*at call 1 .*at call 3`, body)

	whole := newRecorded(t, "plain").serve(nil)
	body = shown.get(whole.URL, "/runs/demo")
	require.NotContains(t, texts(t, body), "Only calls of agents")
	body = shown.get(whole.URL, "/runs/demo/train-1/0/1/1")
	require.NotContains(t, body, untrained)
	body = shown.get(whole.URL, "/runs/demo/gate-1/0/0/1")
	require.NotContains(t, body, untrained, "an evaluation trains nothing")
}
