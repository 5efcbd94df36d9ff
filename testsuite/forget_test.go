package testsuite_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sashabaranov/go-openai"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/common/v1"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"google.golang.org/protobuf/proto"

	"github.com/fulgurite/fulgurite/agent"
	"github.com/fulgurite/fulgurite/examples/calc/calculator"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/report"
	"github.com/fulgurite/fulgurite/run/retention"
	"github.com/fulgurite/fulgurite/run/runstate"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/workers/stack"
)

// plantingAgent is the value of agentVariable for an agent that leaves the last word of its
// task's input wherever an agent can leave a text.
const plantingAgent = "planting"

// The places in which plantingAgent leaves texts.
var plantedIn = []string{"input", "tool", "stdout", "stderr", "span", "result"}

// plant runs plantingAgent.
func plant(task agent.Task) error {
	words := strings.Fields(task.Input)
	secret := strings.TrimPrefix(words[len(words)-1], "input-")
	_, err := calculator.Connect(os.Getenv("OPENAI_BASE_URL"), os.Getenv("OPENAI_API_KEY")).CreateChatCompletion(context.Background(), openai.ChatCompletionRequest{
		Messages: []openai.ChatCompletionMessage{
			{Role: openai.ChatMessageRoleUser, Content: task.Input},
			{Role: openai.ChatMessageRoleAssistant, ToolCalls: []openai.ToolCall{{ID: "1", Type: openai.ToolTypeFunction, Function: openai.FunctionCall{Name: "calculator", Arguments: `{"expression":"1"}`}}}},
			{Role: openai.ChatMessageRoleTool, ToolCallID: "1", Content: "tool-" + secret},
		},
	})
	if err != nil {
		return err
	}
	body := fmt.Sprintf(`{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"0123456789abcdef0123456789abcdef","spanId":"0123456789abcdef","name":"span-%s","startTimeUnixNano":"1","endTimeUnixNano":"2"}]}]}]}`, secret)
	request, err := http.NewRequest(http.MethodPost, os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"), strings.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Authorization", "Bearer "+os.Getenv("OPENAI_API_KEY"))
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	fmt.Fprintln(os.Stderr, "stderr-"+secret)
	fmt.Printf("stdout-%s\nresult-%s\n", secret, secret)
	return errors.Join(response.Body.Close())
}

// plantedRun trains two steps on tasks that leave their secrets everywhere.
func plantedRun(ctx context.Context, t *testing.T, st *stack.Stack, name, source string, secrets ...string) {
	t.Helper()
	var lines bytes.Buffer
	for _, secret := range secrets {
		require.NoError(t, json.NewEncoder(&lines).Encode(map[string]string{"id": "task-" + secret, "input": "add one to input-" + secret, "answer": "answer-" + secret}))
	}
	path := filepath.Join(t.TempDir(), "train.jsonl")
	require.NoError(t, os.WriteFile(path, lines.Bytes(), 0o600))
	program, err := os.Executable()
	require.NoError(t, err)
	s := spec.Spec{
		Seed: 7, Agent: spec.Agent{Command: []string{program}, Environment: map[string]string{agentVariable: plantingAgent}}, Tasks: spec.Tasks{Train: path},
		Grader: spec.Grader{Type: "exact"}, Training: spec.Training{Steps: 2, TasksPerStep: 1, SamplesPerTask: 2}, Sampling: spec.Sampling{MaxTokens: 4},
		Model: spec.Model{Version: source},
	}
	if source == "" {
		s.Model.Context = 256
	}
	_, err = train(ctx, st, name, s)
	require.NoError(t, err)
}

// deleted reports whether Temporal has deleted an execution.
func deleted(ctx context.Context, c client.Client, e *common.WorkflowExecution) bool {
	_, err := c.DescribeWorkflowExecution(ctx, e.WorkflowId, e.RunId)
	var unknown *serviceerror.NotFound
	return errors.As(err, &unknown)
}

// found returns where a text is: in files below the directories, and in the histories that
// Temporal has.
func found(ctx context.Context, t *testing.T, c client.Client, text string, paths ...string) (places []string) {
	t.Helper()
	for _, path := range paths {
		require.NoError(t, filepath.WalkDir(path, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return err
			}
			data, err := os.ReadFile(path)
			if bytes.Contains(data, []byte(text)) {
				places = append(places, path)
			}
			return err
		}))
	}
	request := &workflowservice.ListWorkflowExecutionsRequest{PageSize: 1000}
	page, err := c.ListWorkflow(ctx, request)
	require.NoError(t, err)
	require.Empty(t, page.NextPageToken)
	for _, e := range page.Executions {
		for it := c.GetWorkflowHistory(ctx, e.Execution.WorkflowId, e.Execution.RunId, false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT); it.HasNext(); {
			event, err := it.Next()
			if err != nil && deleted(ctx, c, e.Execution) {
				break // Temporal listed it a moment longer than it had it
			}
			require.NoError(t, err)
			data, err := proto.Marshal(event)
			require.NoError(t, err)
			if bytes.Contains(data, []byte(text)) {
				places = append(places, e.Execution.WorkflowId)
				break
			}
		}
	}
	return places
}

func TestNoTextOfAForgottenTaskOrRunIsLeft(t *testing.T) {
	t.Parallel()
	skipShort(t, "starts a Temporal server")
	ctx := t.Context()
	dir := t.TempDir()
	st := start(ctx, t, dir)
	defer func() { require.NoError(t, st.Close()) }()
	const gone, kept = "zanzibar7931", "quokkas4410"
	plantedRun(ctx, t, st, "demo", "", gone, kept)
	plantedRun(ctx, t, st, "later", "demo@2", kept)
	layout := stack.Layout(dir)
	f := &retention.Forgetter{Store: st.Store, Blobs: st.Blobs, Histories: runstate.Histories{Client: st.Client, Namespace: client.DefaultNamespace}}
	for _, place := range plantedIn {
		require.NotEmpty(t, found(ctx, t, st.Client, place+"-"+gone, layout.Blobs(), layout.Database(), layout.Database()+"-wal"), place)
	}

	plan, err := f.ForgetTask(ctx, "task-"+gone, "", "me", "", true)
	require.NoError(t, err)
	done, err := f.ForgetTask(ctx, "task-"+gone, "", "me", "asked to", false)
	require.NoError(t, err)
	plan.DryRun = false
	require.Equal(t, plan, done)
	require.Len(t, done.Runs, 1)
	require.Equal(t, "demo", done.Runs[0].Run)
	require.Len(t, done.Runs[0].Steps, 1, "each step has one of the two tasks")
	require.Contains(t, strings.Join(done.Runs[0].Versions, " "), "later@0")
	require.NoError(t, st.Store.Scrub(ctx, true))
	for _, place := range append(plantedIn, "answer") {
		require.Empty(t, found(ctx, t, st.Client, place+"-"+gone, layout.Blobs(), layout.Database(), layout.Database()+"-wal"), place)
		if place != "result" && place != "answer" {
			require.NotEmpty(t, found(ctx, t, st.Client, place+"-"+kept, layout.Blobs(), layout.Database(), layout.Database()+"-wal"), place)
		}
	}
	r, err := report.Of(ctx, st.Store, st.Blobs, "demo", "main")
	require.NoError(t, err)
	require.Empty(t, r.Faults)

	// A workflow that somebody resets could only do its work without the records that are gone.
	ids, _ := points(eventsOf(ctx, t, st.Client, "demo"))
	again, err := reset(ctx, st.Client, "demo", "", ids[0])
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		d, err := st.Client.DescribeWorkflowExecution(ctx, "demo", again)
		return err == nil && d.WorkflowExecutionInfo.Status == enums.WORKFLOW_EXECUTION_STATUS_TERMINATED
	}, time.Minute, 50*time.Millisecond)
	last := eventsOf(ctx, t, st.Client, "demo")
	require.Contains(t, last[len(last)-1].GetWorkflowExecutionTerminatedEventAttributes().GetReason(), "forgotten")
	stored, err := st.Store.Run(ctx, "demo")
	require.NoError(t, err)
	require.Equal(t, record.Completed, stored.Status)

	for _, run := range []string{"demo", "later"} {
		_, err = f.ForgetRun(ctx, run, "me", "")
		require.NoError(t, err)
		_, err = st.Store.Run(ctx, run)
		require.ErrorIs(t, err, record.ErrForgotten)
		page, err := st.Client.ListWorkflow(ctx, &workflowservice.ListWorkflowExecutionsRequest{PageSize: 10, Query: fmt.Sprintf("RootWorkflowId = '%s'", run)})
		require.NoError(t, err)
		require.Empty(t, page.Executions)
	}
	require.NoError(t, st.Store.Scrub(ctx, true))
	for _, place := range append(plantedIn, "answer") {
		require.Empty(t, found(ctx, t, st.Client, place+"-"+kept, layout.Blobs(), layout.Database(), layout.Database()+"-wal"), place)
	}
	_, err = train(ctx, st, "demo", spec.Spec{
		Agent: spec.Agent{Func: "calculator"}, Tasks: spec.Tasks{Train: "arithmetic:train:8"}, Grader: spec.Grader{Type: "exact"}, Training: spec.Training{Steps: 1},
	})
	require.ErrorContains(t, err, "forgotten")
}
