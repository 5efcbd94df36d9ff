package page_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
)

func TestAnAttemptSaysWhyItFailedAndWhichCallGotTheBlame(t *testing.T) {
	t.Parallel()
	shown := goldenOf(t, "attempt_blame")
	r := newRecorded(t, "plain")
	r.criticRun()
	server := r.serve(nil)
	body := shown.get(server.URL, criticAttempt)
	text := texts(t, body)
	for _, want := range []string{"Returned 3", "call 0, −0.900", "call 2, +0.529", "advantage −0.900", "advantage +0.300"} {
		require.Contains(t, text, want)
	}
	require.NotRegexp(t, `agent-[0-9a-f]{8}`, text, "a digest says nothing to people")
	require.Contains(t, links(t, body), "#call-0")
	body = shown.get(server.URL, criticAttempt+"?call=2")
	require.Contains(t, links(t, body), "?call=0#call-0", "it is on another page")
	require.Contains(t, links(t, body), "#call-2")
	body = shown.get(server.URL, "/runs/demo/train-1/0/0/2")
	require.NotContains(t, body, "most blamed", "all calls got the same")
}

func TestAGroupSaysWhyItsSamplesFailed(t *testing.T) {
	t.Parallel()
	shown := goldenOf(t, "group_failed")
	r := newRecorded(t, "plain")
	a := r.begin(record.RolloutID{Run: "demo", Kind: record.Try, Step: 1, Sample: 1})
	require.NoError(t, r.store.SealAttempt(t.Context(), record.Attempt{
		Address: a, Outcome: record.AgentFailed, Failure: "exit", Reward: new(float64), Error: "exit: exit code 3\nTraceback (most recent call last):\n  File \"agent\"\nValueError: no <b>such</b> tool",
	}))
	server := r.serve(nil)
	body := shown.get(server.URL, "/runs/demo/try-1/0")
	text := texts(t, body)
	require.Contains(t, text, "counts as 0. ValueError: no <b>such</b> tool")
	require.NotContains(t, text, "Traceback")
	body = shown.get(server.URL, "/runs/demo/try-1/0/1/1")
	require.Contains(t, texts(t, body), "counts as 0. ValueError: no <b>such</b> tool")
	for _, path := range []string{"/runs/demo/try-1", "/runs/demo/try-1?failure=exit"} {
		body = shown.get(server.URL, path)
		require.NotContains(t, texts(t, body), "exit code 3", path)
	}
	body = shown.get(server.URL, "/runs/demo/try-1")
	require.Contains(t, texts(t, body), "ValueError: no <b>such</b> tool 1")
	body = shown.get(server.URL, "/runs/demo/try-1?failure=exit")
	require.Contains(t, texts(t, body), "ValueError: no <b>such</b> tool")
}

func TestARunOfNothingButFailuresIsNoSuccess(t *testing.T) {
	t.Parallel()
	r := newEmpty(t, "plain")
	r.createRun()
	for step := 1; step <= 2; step++ {
		require.NoError(t, r.store.PutStep(t.Context(), record.Step{Run: "demo", Policy: model.DefaultPolicy, Step: step, Metrics: map[string]float64{"batch/rollouts": 8, "batch/failed": 8}, At: r.at(step)}))
	}
	require.NoError(t, r.store.FinishRun(t.Context(), "demo", record.Completed, nil))
	_, _, err := r.store.CreateRun(t.Context(), record.Run{Name: "judged", WorkflowID: "judged", ExecutionID: "j", Spec: []byte(`{"seed":1}`)})
	require.NoError(t, err)
	for sample := range 2 {
		a, err := r.store.BeginAttempt(t.Context(), record.RolloutID{Run: "judged", Kind: record.Test, Sample: sample}, "t", record.Terms{Policy: model.DefaultPolicy, Codec: dialog.CompactName}, "c0ffee")
		require.NoError(t, err)
		require.NoError(t, r.store.SealAttempt(t.Context(), record.Attempt{Address: a, Outcome: record.AgentFailed, Failure: "exit", Reward: new(float64)}))
	}
	require.NoError(t, r.store.PutEvaluation(t.Context(), record.Evaluation{Run: "judged", Policy: model.DefaultPolicy, EvaluationResult: record.EvaluationResult{Kind: record.Test, Tasks: 1, Rollouts: 2}}))
	require.NoError(t, r.store.FinishRun(t.Context(), "judged", record.Completed, nil))
	server := r.serve(nil)
	for _, path := range []string{"/", "/runs/demo", "/runs/judged", "/compare?run=demo&run=judged"} {
		body, _ := get(t, server.URL+path)
		require.Contains(t, body, `<span class="status failed">completed, every attempt failed</span>`, path)
		require.NotContains(t, body, "status completed", path)
	}
}

func TestFailuresAndOutcomesLeadToTheirAttempts(t *testing.T) {
	t.Parallel()
	shown := goldenOf(t, "failures")
	server := newRecorded(t, hostile).serve(nil)
	body := shown.get(server.URL, "/runs/demo/train-1")
	require.Contains(t, texts(t, body), "timeout <script>", "the cause follows")
	for query, want := range map[string][]string{
		"?failure=timeout#picked":      {"/runs/demo/train-1/0/1/1"},
		"?outcome=lost#picked":         {"/runs/demo/train-1/0/0/1"},
		"?outcome=agent+failed#picked": {"/runs/demo/train-1/0/1/1"},
	} {
		require.Contains(t, links(t, body), query)
		picked, reply := get(t, server.URL+"/runs/demo/train-1"+query)
		require.Equal(t, http.StatusOK, reply.StatusCode)
		for _, path := range want {
			require.Contains(t, links(t, picked), path, query)
			require.NotContains(t, links(t, body), path)
		}
	}
	body = shown.get(server.URL, "/runs/demo/train-1?failure=%3Cscript%3E")
	require.Contains(t, texts(t, body), "<script>")
}

func TestSamplesAndGroupsLeadToThoseBesideThem(t *testing.T) {
	t.Parallel()
	server := newRecorded(t, "plain").serve(nil)
	for path, want := range map[string][]string{
		"/runs/demo/train-1/0/0/2": {"All samples", "Next: sample 1"},
		"/runs/demo/train-1/0/1/1": {"Previous: sample 0", "All samples", "Next: sample 2"},
		"/runs/demo/train-1/0":     {"All groups", "Next group"},
		"/runs/demo/train-1/1":     {"Previous group", "All groups"},
	} {
		body, _ := get(t, server.URL+path)
		for _, text := range want {
			require.Contains(t, texts(t, body), text, path)
		}
	}
	body, _ := get(t, server.URL+"/runs/demo/train-1/0/1/1")
	require.Contains(t, links(t, body), "/runs/demo/train-1/0/0/2", "the last attempt of the sample before")
	require.NotContains(t, links(t, body), "/runs/demo/train-1/0/0/1")
}

func TestTheLagOfAStepIsShown(t *testing.T) {
	t.Parallel()
	shown := goldenOf(t, "lag")
	server := newRecorded(t, "plain").serve(nil)
	body := shown.get(server.URL, "/runs/demo/train-2")
	require.Contains(t, texts(t, body), "Lag 0.000 steps")
	body = shown.get(server.URL, "/runs/demo/steps")
	require.Contains(t, texts(t, body), "2 0.500 0.500 – 0.500 1.000 0.000 64")
	body = shown.get(server.URL, "/runs/demo/gate-1")
	require.NotContains(t, texts(t, body), "Lag")
}
