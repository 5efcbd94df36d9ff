package testsuite_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/sashabaranov/go-openai"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"

	"github.com/fulgurite/fulgurite/agent"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/runstate"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/workers/stack"
	"github.com/fulgurite/fulgurite/workflows"
)

// sortByPrompt is an agent that makes its request from a prompt that it asks for. It sorts a
// word right if the prompt names its kind.
func sortByPrompt(ctx context.Context, task agent.Task, env agent.Env) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, env.BaseURL+"/prompts/sorter", nil)
	if err != nil {
		return "", err
	}
	request.Header.Set("Authorization", "Bearer "+env.Key)
	reply, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer func() { _ = reply.Body.Close() }()
	prompt, err := io.ReadAll(reply.Body)
	if err != nil || reply.StatusCode != http.StatusOK {
		return "", fmt.Errorf("read the prompt: status %d, %w", reply.StatusCode, err)
	}
	config := openai.DefaultConfig(env.Key)
	config.BaseURL = env.BaseURL
	_, err = openai.NewClientWithConfig(config).CreateChatCompletion(ctx, openai.ChatCompletionRequest{
		Model: env.Model, Messages: []openai.ChatCompletionMessage{{Role: "user", Content: task.Input}},
	})
	kind, _, _ := strings.Cut(task.Input, " ")
	if !strings.Contains(string(prompt), kind) && kind != "animals" {
		kind = "unknown"
	}
	return kind, err
}

// knowingReflector is a server that writes at once what a prompt of the sorter needs.
func knowingReflector(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		writeReply(w, "writer-1", fmt.Sprintf("```\nSort the word: %s, %s, %s or animals.\n```", hint1, hint2, hint3))
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// inPhases returns the spec of a search and a training of one step, which starts from its
// prompts.
func inPhases(t *testing.T) spec.Spec {
	t.Helper()
	s := optimizing(t, spec.AlgorithmGEPA, knowingReflector(t))
	s.Agent.Func, s.Prompts.Rules, s.Tasks.Test = "asker", nil, ""
	s.Model, s.Sampling = spec.Model{}, spec.Sampling{MaxTokens: 2}
	s.Training = spec.Training{TasksPerStep: 2, SamplesPerTask: 2}
	s.Phases = []spec.Phase{{Type: spec.PhasePrompts, Budget: &spec.PhaseBudget{Reflections: 5}}, {Type: spec.PhaseWeights, Steps: 1}}
	return s.WithDefaults()
}

func runPhases(ctx context.Context, st *stack.Stack, name string, s spec.Spec) (workflows.PhasesProgress, error) {
	var out workflows.PhasesProgress
	data, err := json.Marshal(s)
	if err != nil {
		return out, err
	}
	run, err := st.Client.ExecuteWorkflow(ctx, client.StartWorkflowOptions{
		ID: name, TaskQueue: workflows.QueueTraining, WorkflowIDReusePolicy: enums.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE,
	}, workflows.TypePhases, workflows.PhasesInput{Spec: data})
	if err != nil {
		return out, err
	}
	return out, run.Get(ctx, &out)
}

func TestWeightsAreTrainedUnderThePromptsThatAnEarlierPhasePromoted(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	st := sharedStack(t)
	s := inPhases(t)
	result, err := runPhases(ctx, st, "phases", s)
	require.NoError(t, err)
	require.Equal(t, []record.Status{record.Completed, record.Completed}, []record.Status{result.Phases[0].Status, result.Phases[1].Status})
	search, training := result.Phases[0], result.Phases[1]
	require.Equal(t, []string{"phases-1-prompts", "phases-2-weights"}, []string{search.Run, training.Run})
	require.Equal(t, 1, *search.Promoted)
	require.InDelta(t, 0.25, *search.Gate.Before, 1e-9)
	require.InDelta(t, 1, *search.Gate.After, 1e-9)
	require.InDelta(t, 1, *training.Gate.Before, 1e-9, "it begins with what was promoted")

	version, err := st.Store.PromptVersion(ctx, search.Run, 1)
	require.NoError(t, err)
	for kind, step := range map[record.Kind]int{record.Gate: 0, record.Train: 1} {
		attempts, err := st.Store.Attempts(ctx, training.Run, kind, step)
		require.NoError(t, err)
		require.NotEmpty(t, attempts)
		for _, a := range attempts {
			require.Equal(t, version.Prompts, a.Terms.Prompts, "attempts are served the promoted texts")
		}
	}
	_, err = st.Store.Batch(ctx, training.Run, "main", 1)
	require.NoError(t, err, "and their calls are trained")

	first := firstExecution(ctx, t, st.Client, "phases")
	ids, kinds := points(eventsOf(ctx, t, st.Client, "phases"))
	var seen []string
	for _, event := range ids {
		seen = append(seen, kinds[event])
		run, err := reset(ctx, st.Client, "phases", first, event)
		require.NoError(t, err)
		var got workflows.PhasesProgress
		require.NoError(t, st.Client.GetWorkflow(ctx, "phases", run).Get(ctx, &got), "reset to event %d: %s", event, kinds[event])
		require.Equal(t, result, got, "reset to event %d: %s", event, kinds[event])
	}
	require.Equal(t, []string{"PreparePhases", "StartPhase", "AwaitPhase", "StartPhase", "AwaitPhase", "end"}, seen)

	again, err := runPhases(ctx, st, "phases", s)
	require.NoError(t, err)
	require.Equal(t, result, again, "completed phases are not run again")
	runs, err := st.Store.Attempts(ctx, training.Run, record.Train, 1)
	require.NoError(t, err)
	require.Len(t, runs, 4)
}

func TestPhasesThatFailedGoOnByOneRetry(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	st := sharedStack(t)
	var mended atomic.Bool
	knows := knowingReflector(t)
	broken := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !mended.Load() {
			http.Error(w, "no such model", http.StatusBadRequest)
			return
		}
		http.Redirect(w, r, knows, http.StatusTemporaryRedirect)
	}))
	t.Cleanup(broken.Close)
	s := inPhases(t)
	s.Optimizer.Reflector.URL = broken.URL + "/v1"
	s.Optimizer.Reflector.Model = "broken-1" // replies to a question that another test asked of the same model are on record
	s.Phases, s.Training = s.Phases[:1], spec.Training{}
	_, err := runPhases(ctx, st, "phases-retry", s)
	require.ErrorContains(t, err, "`fulgurite retry phases-retry` lets it go on with this phase")

	retrier := runstate.Retrier{Client: st.Client, Namespace: "default", Store: st.Store}
	var retried []string
	retry := func(name string) error {
		retried = append(retried, name)
		run, err := st.Store.Run(ctx, name)
		require.NoError(t, err)
		_, err = retrier.Retry(ctx, run, "a test")
		return err
	}
	mended.Store(true)
	execution, err := retrier.RetryPhases(ctx, "phases-retry", "a test", retry)
	require.NoError(t, err)
	require.Equal(t, []string{"phases-retry-1-prompts"}, retried)
	var got workflows.PhasesProgress
	require.NoError(t, st.Client.GetWorkflow(ctx, "phases-retry", execution).Get(ctx, &got))
	require.Equal(t, record.Completed, got.Phases[0].Status)
	require.Equal(t, 1, *got.Phases[0].Promoted)
	require.Empty(t, got.Phases[0].Error)

	_, err = retrier.RetryPhases(ctx, "phases-retry", "a test", retry)
	require.ErrorContains(t, err, "all phases have completed")
	_, err = retrier.RetryPhases(ctx, "phases-retry-1-prompts", "a test", retry)
	require.ErrorIs(t, err, record.ErrNotFound, "it is a run")
	require.Len(t, retried, 1)
}

func TestAPhaseIsUnderWayAsLongAsItsPhasesAre(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	st := sharedStack(t)
	_, err := st.Client.ExecuteWorkflow(ctx, client.StartWorkflowOptions{ID: "waiting", TaskQueue: "nobody takes from it"}, workflows.TypePhases)
	require.NoError(t, err)
	histories := runstate.Histories{Client: st.Client, Namespace: client.DefaultNamespace}
	open := func(run string) string {
		id, err := histories.Open(ctx, record.Run{Name: run, WorkflowID: run, Status: record.Completed})
		require.NoError(t, err)
		return id
	}
	require.Equal(t, "waiting", open("waiting-2-weights"))
	require.Equal(t, "waiting", open("waiting-10-prompts"))
	require.Empty(t, open("waiting-2-other"))
	require.Empty(t, open("another-2-weights"))
	require.NoError(t, st.Client.TerminateWorkflow(ctx, "waiting", "", "enough"))
	require.Empty(t, open("waiting-2-weights"))
}
