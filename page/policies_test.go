package page_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
)

func TestThePagesOfARunWithPoliciesNameThem(t *testing.T) {
	t.Parallel()
	r := newRecorded(t, "plain")
	ctx := t.Context()
	demo, err := r.store.Run(ctx, "demo")
	require.NoError(t, err)
	_, _, err = r.store.CreateRun(ctx, record.Run{
		Name: "pair", Spec: json.RawMessage(`{"policies":{"checker":{},"writer":{"match":[{"agent":"w"}]},"helper":{"match":[{"agent":"h"}],"frozen":true}}}`), Splits: demo.Splits,
	})
	require.NoError(t, err)
	a, err := r.store.BeginAttempt(ctx, record.RolloutID{Run: "pair", Kind: record.Train, Step: 1}, r.tasks[0].ID, record.Terms{Policy: model.DefaultPolicy, Codec: dialog.CompactName, Temperature: 1}, "c")
	require.NoError(t, err)
	for seq, policy := range []string{"writer", "checker"} {
		call := r.call(a, seq, -1, nil)
		call.Policy = policy
		require.NoError(t, r.store.AppendCall(ctx, &call))
	}
	server := r.serve(nil)
	body, reply := get(t, server.URL+"/runs/pair/train-1/0/0/1")
	require.Equal(t, http.StatusOK, reply.StatusCode)
	seen := strings.Join(view(t, body), "\n")
	require.Regexp(t, `(?s)Call 0.*policy writer.*Call 1.*policy checker`, seen)
	require.Contains(t, seen, "solo, writer", "the lanes of a policy")

	body, _ = get(t, server.URL+"/runs/pair")
	require.Regexp(t, `Policies\s+checker, writer, helper\s+frozen`, strings.Join(view(t, body), "\n"))
	for number, policy := range []string{model.DefaultPolicy, "checker", "writer"} {
		_, _, err := r.store.PutVersion(ctx, model.Version{VersionID: model.VersionID{Run: "pair", Policy: policy}, Parent: -1, Manifest: fmt.Sprint("m", number), Weights: "w"})
		require.NoError(t, err)
	}
	for step := range 2 {
		require.NoError(t, r.store.PutStep(ctx, record.Step{Run: "pair", Policy: model.DefaultPolicy, Step: step + 1, At: demo.Created, Metrics: map[string]float64{
			"policy/writer/train/entropy": 1.25, "policy/checker/train/entropy": 0.5, "policy/helper/train/entropy": 7,
			"policy/writer/train/kl": 0.125, "batch/trained_tokens": 90, "policy/writer/batch/trained_tokens": 60, "batch/rollouts": 10,
		}}))
	}
	body, _ = get(t, server.URL+"/runs/pair")
	for _, line := range []string{"entropy of checker", "entropy of writer", "KL of the update of writer", "trained tokens", "of writer"} {
		require.Contains(t, body, line)
	}
	require.NotContains(t, body, "entropy of helper", "it is frozen")
	body, _ = get(t, server.URL+"/compare?run=pair&run=demo")
	require.NotContains(t, body, "entropy of writer", "a run has one line there")
	body, reply = get(t, server.URL+"/playground?run=pair")
	require.Equal(t, http.StatusOK, reply.StatusCode)
	require.Contains(t, body, `value="pair:checker@0"`, "a joint version has no weights that could be asked")
	require.Contains(t, body, `<option selected>checker</option><option>writer</option></select>`)
	body, _ = get(t, server.URL+"/playground?run=pair&policy=writer&version=0")
	require.Equal(t, 2, strings.Count(body, `value="pair:writer@0"`))
	body, _ = get(t, server.URL+"/playground?run=demo&policy=writer")
	require.NotContains(t, body, `name="policy"`)
	body, _ = get(t, server.URL+"/runs/demo")
	require.NotContains(t, body, "<dt>Policies</dt>")
	body, _ = get(t, server.URL+"/runs/demo/train-1/0/0/2")
	require.NotContains(t, body, `<span class="tag">policy`)
}
