package activities_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"
	"go.uber.org/zap"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/agent"
	"github.com/fulgurite/fulgurite/agent/forwarder"
	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/gateway"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/engine/native"
	"github.com/fulgurite/fulgurite/model/files/hf"
	"github.com/fulgurite/fulgurite/model/sampler/serve"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/catalog"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/store"
	"github.com/fulgurite/fulgurite/store/blob"
)

// testEnv has everything that activities work with. All of it is real except for
// Temporal.
type testEnv struct {
	t           testing.TB
	dir         string
	store       *store.Store
	blobs       *blob.Store
	coordinator *activities.Coordinator
	catalog     catalog.Catalog
}

func newTestEnv(t testing.TB) *testEnv {
	t.Helper()
	w := &testEnv{t: t, dir: t.TempDir()}
	var err error
	w.store, err = store.Open(t.Context(), filepath.Join(w.dir, "store.db"), nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, w.store.Close()) })
	require.NoError(t, w.store.Migrate(t.Context()))
	w.blobs, err = blob.Open(filepath.Join(w.dir, "blobs"))
	require.NoError(t, err)
	w.catalog = catalog.Catalog{Store: w.store, Blobs: w.blobs}
	w.coordinator = &activities.Coordinator{
		Runs: w.store, Ledger: w.store, Attempts: w.store, Blobs: w.blobs, Cluster: cluster(true), Codecs: dialog.Named, Directory: w.dir,
		WhyNotIsolated: func(context.Context, spec.Agent) (string, error) { return "", nil },
	}
	w.write("tasks.jsonl", `{"id":"a","input":"6*7","answer":"42"}`+"\n"+`{"id":"b","input":"2-5","answer":"-3"}`+"\n")
	small := model.Architecture{
		VocabSize: dialog.Compact().VocabSize(), HiddenSize: 16, Layers: 1, Heads: 2, KVHeads: 1, HeadDim: 8,
		FeedForward: 16, MaxPositions: 64, RopeTheta: 10000, NormEpsilon: 1e-6, Tied: true,
	}
	require.NoError(t, os.Mkdir(filepath.Join(w.dir, "base"), 0o755))
	require.NoError(t, hf.WriteDirectory(filepath.Join(w.dir, "base"), small, small.Init(1)))
	return w
}

// cluster is true if the search attributes are registered.
type cluster bool

func (c cluster) HasSearchAttributes(context.Context) (bool, error) { return bool(c), nil }

func (w *testEnv) write(name, content string) {
	w.t.Helper()
	require.NoError(w.t, os.WriteFile(filepath.Join(w.dir, name), []byte(content), 0o600))
}

// spec returns the spec of a run of a very small model.
func (w *testEnv) spec() spec.Spec {
	return spec.Spec{
		Model:    spec.Model{Base: "base"},
		Agent:    spec.Agent{Func: "agent", FailureReward: -0.5},
		Tasks:    spec.Tasks{Train: "tasks.jsonl"},
		Grader:   spec.Grader{Type: "exact"},
		Sampling: spec.Sampling{MaxTokens: 8},
		Training: spec.Training{Steps: 3, TasksPerStep: 2, SamplesPerTask: 2},
	}
}

func (w *testEnv) trainer() *activities.Trainer {
	t := &activities.Trainer{Runs: w.store, Versions: w.store, Attempts: w.store, Blobs: w.blobs, Codecs: dialog.Named, Engines: engines}
	w.t.Cleanup(t.Close)
	return t
}

func engines(string) (model.Engine, error) { return native.New(native.Options{Threads: 1}), nil }

// runner returns a Runner whose agents use a forwarder to the gateway at url.
func (w *testEnv) runner(url string, a agent.Func) *activities.Runner {
	f, err := forwarder.New(w.t.Context(), func() string { return url }, zap.NewNop())
	require.NoError(w.t, err)
	w.t.Cleanup(func() { require.NoError(w.t, f.Close(context.Background())) })
	return &activities.Runner{
		Runs: w.store, Attempts: w.store, Blobs: w.blobs, Forwarder: f, Launchers: launchers{"agent": a},
	}
}

type launchers agent.Registry

func (l launchers) Launcher(s spec.Spec) (agent.Launcher, error) {
	return agent.Registry(l).Launcher(s.Agent.Func)
}

// gateway answers model calls from the versions of the store.
func (w *testEnv) gateway() http.Handler {
	engine, err := engines("native")
	require.NoError(w.t, err)
	sampler := serve.New(engine, w.catalog, 2)
	w.t.Cleanup(sampler.Close)
	return gateway.New(gateway.Config{Journal: w.store, Sampler: sampler})
}

func (w *testEnv) serve(h http.Handler) string {
	server := httptest.NewServer(h)
	w.t.Cleanup(server.Close)
	return server.URL
}

const execution = "execution-1"

// prepare prepares the run "demo" with the spec s.
func (w *testEnv) prepare(s spec.Spec) activities.PrepareRunResult {
	w.t.Helper()
	r, err := do[activities.PrepareRunResult](w.t, w.coordinator.PrepareRun, w.request(s))
	require.NoError(w.t, err)
	return r
}

func (w *testEnv) request(s spec.Spec) activities.PrepareRunInput {
	w.t.Helper()
	text, err := json.Marshal(s.Resolve(w.dir))
	require.NoError(w.t, err)
	workflow := "TrainingWorkflow"
	if s.Optimizer != nil {
		workflow = "PromptWorkflow"
	}
	return activities.PrepareRunInput{Spec: text, Run: "demo", WorkflowID: "demo", ExecutionID: execution, Workflow: workflow}
}

// start prepares the run and makes its version 0.
func (w *testEnv) start(s spec.Spec) activities.VersionResult {
	w.t.Helper()
	w.prepare(s)
	v, err := do[activities.VersionResult](w.t, w.trainer().InitPolicy, initPolicy())
	require.NoError(w.t, err)
	return v
}

func initPolicy() activities.InitPolicyInput {
	return activities.InitPolicyInput{Run: "demo", Policy: model.DefaultPolicy}
}

// rollout returns the input for an attempt at a sample of the task at index task.
func rollout(task, sample int) activities.RunAgentInput {
	return activities.RunAgentInput{
		Rollout: record.RolloutID{Run: "demo", Kind: record.Train, Step: 1, Task: task, Sample: sample}, Index: task, Policy: model.DefaultPolicy,
	}
}

func at(in activities.RunAgentInput, attempt int) record.Address {
	return record.Address{RolloutID: in.Rollout, Attempt: attempt}
}

// ask makes one model call.
func ask(ctx context.Context, env agent.Env, content string) (string, error) {
	body, err := json.Marshal(map[string]any{"model": env.Model, "messages": []dialog.Message{{Role: dialog.User, Content: content}}})
	if err != nil {
		return "", err
	}
	return post(ctx, env, env.BaseURL+"/chat/completions", body)
}

func post(ctx context.Context, env agent.Env, url string, body []byte) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
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
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %d: %s", response.StatusCode, text)
	}
	return string(text), err
}

// setup changes the environment that an activity runs in.
type setup func(*testsuite.TestActivityEnvironment)

// under runs an activity with ctx.
func under(ctx context.Context) setup {
	return func(env *testsuite.TestActivityEnvironment) {
		env.SetWorkerOptions(worker.Options{BackgroundActivityContext: ctx})
	}
}

// do executes an activity the way a worker does.
func do[Result, Input any](t testing.TB, activity func(context.Context, Input) (Result, error), in Input, setups ...setup) (Result, error) {
	t.Helper()
	v, err := environment(activity, setups).ExecuteActivity(activity, in)
	var out Result
	if err != nil {
		return out, err
	}
	return out, v.Get(&out)
}

func environment(activity any, setups []setup) *testsuite.TestActivityEnvironment {
	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(log.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	env := suite.NewTestActivityEnvironment()
	env.RegisterActivity(activity)
	for _, s := range setups {
		s(env)
	}
	return env
}

// requireFinal requires that Temporal does not try again after err. The outermost failure
// decides that, not its causes.
func requireFinal(t testing.TB, err error, words ...string) {
	t.Helper()
	failure := applicationError(t, err)
	require.True(t, failure.NonRetryable(), "%v", err)
	require.Contains(t, []string{activities.ErrTypeInvalid, activities.ErrTypeFinal}, failure.Type())
	for _, word := range words {
		require.ErrorContains(t, err, word)
	}
}

// requireNoRetry requires, in addition, that people are not told to retry the run.
func requireNoRetry(t testing.TB, err error, words ...string) {
	t.Helper()
	requireFinal(t, err, words...)
	require.Equal(t, activities.ErrTypeFinal, applicationError(t, err).Type())
}

// requireRetryable requires that Temporal tries again after err.
func requireRetryable(t testing.TB, err error, words ...string) {
	t.Helper()
	failure := applicationError(t, err)
	require.False(t, failure.NonRetryable(), "%v", err)
	require.NotEqual(t, activities.ErrTypeInvalid, failure.Type())
	for _, word := range words {
		require.ErrorContains(t, err, word)
	}
}

// applicationError returns the outermost application error, which errors.As finds first.
func applicationError(t testing.TB, err error) *temporal.ApplicationError {
	t.Helper()
	require.Error(t, err)
	var failure *temporal.ApplicationError
	require.ErrorAs(t, err, &failure)
	return failure
}
