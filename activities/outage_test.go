package activities_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/agent"
	"github.com/fulgurite/fulgurite/credit"
	"github.com/fulgurite/fulgurite/credit/judge"
	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/sampler/serve"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/store"
	"github.com/fulgurite/fulgurite/workflows"
)

// outageTries is how often each activity is tried during an outage: more often than the
// number of tries of a task. Activities that are tried without limit are tried ten times
// by the test environment.
const outageTries = 9

// errRefused is the error of every call during an outage.
var errRefused = errors.New("connect: connection refused")

type noBlobs struct{}

func (noBlobs) Put(context.Context, []byte) (string, error)                { return "", errRefused }
func (noBlobs) Get(context.Context, string) ([]byte, error)                { return nil, errRefused }
func (noBlobs) Beside(string, string) string                               { return "" }
func (noBlobs) PutFrom(context.Context, io.Reader) (string, error)         { return "", errRefused }
func (noBlobs) Open(context.Context, string) (io.ReadCloser, int64, error) { return nil, 0, errRefused }

type noCluster struct{}

func (noCluster) HasSearchAttributes(context.Context) (bool, error)  { return false, errRefused }
func (noCluster) Polled(context.Context, string, bool) (bool, error) { return false, errRefused }
func (noCluster) Stuck(context.Context, string) (string, error)      { return "", errRefused }
func (noCluster) Publish(context.Context, model.VersionID) error     { return errRefused }
func noCodecs(string) (dialog.Codec, error)                          { return nil, errRefused }

// processActivities are the activities of one process.
type processActivities struct {
	*activities.Coordinator
	*activities.Runner
	*activities.Trainer
}

func (w *testEnv) processActivities(url string, a agent.Func) processActivities {
	c := processActivities{w.coordinator, w.runner(url, a), w.trainer()}
	engine, err := engines("native")
	require.NoError(w.t, err)
	sampler := serve.New(engine, w.catalog, 2)
	w.t.Cleanup(sampler.Close)
	c.Publisher = sampler
	return c
}

// without returns activities like c during an outage of one collaborator.
func (w *testEnv) without(c processActivities, what string) processActivities {
	coordinator := activities.Coordinator{
		Runs: c.Coordinator.Runs, Ledger: c.Ledger, Attempts: c.Coordinator.Attempts, Blobs: c.Coordinator.Blobs, Publisher: c.Publisher, Cluster: c.Cluster,
		Codecs: c.Coordinator.Codecs, Directory: c.Directory, WhyNotIsolated: c.WhyNotIsolated,
	}
	runner := &activities.Runner{Runs: c.Runner.Runs, Attempts: c.Runner.Attempts, Blobs: c.Runner.Blobs, Forwarder: c.Runner.Forwarder, Launchers: c.Runner.Launchers, Workers: c.Runner.Workers}
	trainer := w.trainer()
	switch what {
	case "store":
		// Every request to a closed store is an error of its driver.
		away, err := store.Open(w.t.Context(), filepath.Join(w.t.TempDir(), "away.db"), nil)
		require.NoError(w.t, err)
		require.NoError(w.t, away.Close())
		coordinator.Runs, coordinator.Ledger, coordinator.Attempts = away, away, away
		runner.Runs, runner.Attempts = away, away
		trainer.Runs, trainer.Versions, trainer.Attempts = away, away, away
	case "blobs":
		coordinator.Blobs, runner.Blobs, trainer.Blobs = noBlobs{}, noBlobs{}, noBlobs{}
		coordinator.Codecs, trainer.Codecs = noCodecs, noCodecs
	case "services":
		coordinator.Cluster, coordinator.Publisher, runner.Workers = noCluster{}, noCluster{}, noCluster{}
	}
	return processActivities{&coordinator, runner, trainer}
}

// downtime sends the executions of each activity to one process during an outage, and to
// another one after it. It counts the executions that failed during the outage.
type downtime struct {
	mu     sync.Mutex
	failed map[string]int
}

func (o *downtime) register(env *testsuite.TestWorkflowEnvironment, before, after processActivities) {
	healthy, broken := reflect.ValueOf(after), reflect.ValueOf(before)
	for i := range healthy.NumField() {
		of := healthy.Field(i)
		for m := range of.NumMethod() {
			name, do := of.Type().Method(m).Name, of.Method(m)
			if do.Type().NumIn() != 2 {
				continue // not an activity
			}
			fail := broken.Field(i).Method(m)
			env.RegisterActivityWithOptions(reflect.MakeFunc(do.Type(), func(args []reflect.Value) []reflect.Value {
				if activity.GetInfo(args[0].Interface().(context.Context)).Attempt > outageTries {
					return do.Call(args)
				}
				out := fail.Call(args)
				if !out[len(out)-1].IsNil() {
					o.mu.Lock()
					defer o.mu.Unlock()
					o.failed[name]++
				}
				return out
			}).Interface(), activity.RegisterOptions{Name: name})
		}
	}
}

// A fault of the infrastructure uses up no tries, however long it lasts: each activity of
// a run is tried many times during an outage, and the run continues as if there had been
// none.
func TestAnOutageOfAnyLengthEndsNoRunAndQuarantinesNoTask(t *testing.T) {
	t.Parallel()
	for kind, of := range map[string]struct {
		spec func(w *testEnv) spec.Spec
		also []string // activities that only this kind of run has
	}{
		"graded by command": {func(w *testEnv) spec.Spec {
			s := w.spec()
			self, err := os.Executable()
			require.NoError(t, err)
			s.Grader = spec.Grader{Type: "command", Command: []string{self, "grade", filepath.Join(w.dir, "asked")}}
			w.write("gate.jsonl", `{"id":"c","input":"1+1","answer":"2"}`+"\n")
			s.Tasks.Gate = "gate.jsonl"
			return s
		}, []string{"GradeRollout", "RecordEvaluation", "DecidePromotion", "PromoteVersion"}},
		"with a critic": {func(w *testEnv) spec.Spec { return w.critical() }, []string{"ScoreBatch", "TrainCritic"}},
		"judged": {func(w *testEnv) spec.Spec {
			s := w.spec()
			b := newJudgeServer(t, func(judge.Attempt) (int, string) { return http.StatusOK, "[5]" })
			s.Credit = spec.Credit{Assignment: credit.Judge, Judge: &spec.Judge{URL: b.url, Model: "judge"}}
			return s
		}, []string{"JudgeCalls"}},
		"external agent": {func(w *testEnv) spec.Spec { return w.externalSpec() }, []string{"BeginAttempt", "EndAttempt"}},
	} {
		for _, away := range []string{"store", "blobs", "services"} {
			t.Run(kind+", without "+away, func(t *testing.T) {
				t.Parallel()
				w := newTestEnv(t)
				s := of.spec(w)
				s.Training.Steps, s.Training.Epochs = 1, 0
				solve := func(ctx context.Context, task agent.Task, env agent.Env) (string, error) {
					_, err := ask(ctx, env, task.Input)
					return "42", err
				}
				c := w.processActivities(w.serve(w.gateway()), solve)
				c.Workers = workersOf{polled: true}
				o := downtime{failed: map[string]int{}}
				env := w.temporal()
				o.register(env, w.without(c, away), c)
				env.ExecuteWorkflow(workflows.TrainingWorkflow, workflows.TrainingInput{Spec: w.request(s).Spec})
				require.NoError(t, env.GetWorkflowError())

				excluded, err := w.store.Quarantines(t.Context(), "demo", model.DefaultPolicy)
				require.NoError(t, err)
				require.Empty(t, excluded)
				attempts, err := w.store.Attempts(t.Context(), "demo", record.Train, 1)
				require.NoError(t, err)
				require.NotEmpty(t, attempts)
				for _, a := range attempts {
					require.Contains(t, []record.Outcome{record.OutcomeCompleted, record.InfraFault}, a.Outcome)
				}
				if away == "store" {
					for _, name := range append(of.also, "PrepareRun", "InitPolicy", "AssignCredit", "TrainStep", "RecordStep", "FinishRun") {
						require.GreaterOrEqual(t, o.failed[name], outageTries, name)
					}
				}
			})
		}
	}
}

// temporal returns a test environment of Temporal, with a clock that skips every wait.
func (w *testEnv) temporal() *testsuite.TestWorkflowEnvironment {
	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(log.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	env := suite.NewTestWorkflowEnvironment()
	env.SetTestTimeout(2 * testTimeout)
	env.SetStartWorkflowOptions(client.StartWorkflowOptions{ID: "demo", TaskQueue: workflows.QueueTraining})
	env.RegisterWorkflow(workflows.RolloutWorkflow)
	env.RegisterWorkflow(workflows.EvaluationWorkflow)
	env.RegisterWorkflow(workflows.TrainingWorkflow)
	env.RegisterWorkflowWithOptions(func(ctx workflow.Context, b agent.Invocation) (string, error) {
		ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: time.Minute})
		var answer string
		return answer, workflow.ExecuteActivity(ctx, "my_call", b).Get(ctx, &answer)
	}, workflow.RegisterOptions{Name: "MyAgent"})
	env.RegisterActivityWithOptions(func(ctx context.Context, b agent.Invocation) (string, error) {
		_, err := ask(ctx, agent.Env{BaseURL: b.BaseURL, Key: b.APIKey, Model: b.Model}, b.Input)
		return "42", err
	}, activity.RegisterOptions{Name: "my_call"})
	return env
}
