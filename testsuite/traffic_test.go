package testsuite_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.uber.org/zap"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/agent"
	"github.com/fulgurite/fulgurite/internal/pgtest"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/hf"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/report"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/workers/stack"
	"github.com/fulgurite/fulgurite/workflows"
)

// learningSpec returns the spec of a run that learns from conversations with the tiny model.
func learningSpec(objective string) spec.Spec {
	return spec.Spec{
		Seed:       7,
		Agent:      spec.Agent{Func: "calculator"},
		Tasks:      spec.Tasks{Gate: "arithmetic:gate:2"},
		Grader:     spec.Grader{Type: "exact"},
		Training:   spec.Training{Passes: 2},
		Evaluation: spec.Evaluation{Every: 1},
		Traffic:    &spec.Traffic{Record: spec.RecordAll, IdleMinutes: 0.001, Train: &spec.TrafficTraining{Objective: objective, MinReplies: 6}},
	}.WithDefaults()
}

// post posts JSON to the gateway, and decodes the answer.
func post(ctx context.Context, t *testing.T, url string, in, out any) {
	t.Helper()
	body, err := json.Marshal(in)
	require.NoError(t, err)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	require.NoError(t, err)
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer func() { require.NoError(t, response.Body.Close()) }()
	text, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.Equal(t, 2, response.StatusCode/100, "%s: %s", response.Status, text)
	require.NoError(t, json.Unmarshal(text, out))
}

// reply is what a version said.
type reply struct {
	ID      string `json:"id"`
	Choices []struct {
		Message struct {
			Content string `json:"content"`
		} `json:"message"`
	} `json:"choices"`
}

// ask asks the promoted version of a run. Each seed is another user, and so another
// conversation.
func ask(ctx context.Context, t *testing.T, st *stack.Stack, run string, seed int) (r reply) {
	t.Helper()
	post(ctx, t, st.GatewayURL()+"/chat/completions", map[string]any{
		"model": run + "@promoted", "user": fmt.Sprint("user ", seed), "seed": seed, "max_tokens": 6,
		"messages": []map[string]string{{"role": "user", "content": "hello"}},
	}, &r)
	require.Len(t, r.Choices, 1)
	return r
}

// judge says what a run of the objective learns from, of six replies.
func judge(ctx context.Context, t *testing.T, st *stack.Stack, run, objective string) {
	t.Helper()
	for i := range 6 {
		one := ask(ctx, t, st, run, 2*i)
		said := map[string]any{"reply": one.ID}
		switch objective {
		case spec.ObjectiveReward:
			said["reward"] = float64(i%2) - 0.25
		case spec.ObjectiveSupervised:
			said["corrected_text"] = fmt.Sprint("hello ", i)
		case spec.ObjectivePreference:
			said["preferred_over"] = ask(ctx, t, st, run, 2*i+1).ID
		}
		post(ctx, t, st.GatewayURL()+"/feedback", said, &struct{}{})
	}
}

// segment has a TrafficWorkflow ask a run for a segment, and returns what came of it.
func segment(ctx context.Context, t *testing.T, st *stack.Stack, run string) (r activities.RequestSegmentResult) {
	t.Helper()
	asks, err := st.Client.ExecuteWorkflow(ctx, client.StartWorkflowOptions{TaskQueue: workflows.QueueTraining}, "TrafficWorkflow", workflows.TrafficInput{Run: run})
	require.NoError(t, err)
	require.NoError(t, asks.Get(ctx, &r))
	return r
}

// stopLearning stops a run, and waits for its end.
func stopLearning(ctx context.Context, t *testing.T, st *stack.Stack, name string) {
	t.Helper()
	handle, err := st.Client.UpdateWorkflow(ctx, client.UpdateWorkflowOptions{
		WorkflowID: name, UpdateName: workflows.UpdateStop, UpdateID: "stop", Args: []any{workflows.ControlInput{By: "a test"}}, WaitForStage: client.WorkflowUpdateStageCompleted,
	})
	require.NoError(t, err)
	require.NoError(t, handle.Get(ctx, nil))
	require.NoError(t, st.Client.GetWorkflow(ctx, name, "").Get(ctx, nil))
}

// requireLearned checks that step 1 of a run is made of six replies or pairs, in rows of an
// objective, and that the same feedback makes no second step.
func requireLearned(ctx context.Context, t *testing.T, st *stack.Stack, run string, objective model.RowObjective) {
	t.Helper()
	var got activities.RequestSegmentResult
	require.Eventually(t, func() bool { // the last conversation has to be idle for a while
		got = segment(ctx, t, st, run)
		return got.Step != 0
	}, 30*time.Second, 20*time.Millisecond, got.Message)
	require.Equal(t, 1, got.Step)
	again := segment(ctx, t, st, run)
	require.Zero(t, again.Step)
	require.Contains(t, again.Message, "from 0 new judgments")
	of, err := st.Store.Segment(ctx, run, model.DefaultPolicy, 1)
	require.NoError(t, err)
	require.Equal(t, 6, of.Replies)
	require.Len(t, of.Feedback, 6)
	batch, err := st.Store.Batch(ctx, run, model.DefaultPolicy, 1)
	require.NoError(t, err)
	data, err := st.Blobs.Get(ctx, batch.Digest)
	require.NoError(t, err)
	b, err := hf.DecodeBatch(data)
	require.NoError(t, err)
	require.Equal(t, objective, b.Objective())
	made, err := st.Store.Version(ctx, model.VersionID{Run: run, Policy: model.DefaultPolicy, Number: 1})
	require.NoError(t, err)
	first, err := st.Store.Version(ctx, model.VersionID{Run: run, Policy: model.DefaultPolicy})
	require.NoError(t, err)
	require.NotEqual(t, first.Weights, made.Weights)
	require.Zero(t, made.Parent)
}

func TestRunsLearnFromUseOnPostgreSQL(t *testing.T) {
	t.Parallel()
	skipShort(t, "starts a stack and a PostgreSQL")
	st, err := stack.Start(t.Context(), stack.Options{
		Dir: t.TempDir(), Store: pgtest.URL(t), Agents: agent.Registry{"calculator": calculate}, Log: zap.NewNop(), Reconcile: 100 * time.Millisecond,
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, st.Close()) })
	for objective, rows := range map[string]model.RowObjective{
		spec.ObjectiveReward: model.PolicyGradient, spec.ObjectiveSupervised: model.Supervised, spec.ObjectivePreference: model.Preference,
	} {
		t.Run(objective, func(t *testing.T) {
			t.Parallel()
			ctx, run := t.Context(), "postgres-"+objective
			startTraffic(t, st, run, learningSpec(objective))
			judge(ctx, t, st, run, objective)
			requireLearned(ctx, t, st, run, rows)
			stopLearning(ctx, t, st, run)
			recorded, err := st.Store.Run(ctx, run)
			require.NoError(t, err)
			require.Equal(t, record.Stopped, recorded.Status)
			r, err := report.Of(ctx, st.Store, st.Blobs, run, model.DefaultPolicy)
			require.NoError(t, err)
			require.True(t, r.OK(), r.Faults)
		})
	}
}
