package activities_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"
	"go.uber.org/zap"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/agent"
	"github.com/fulgurite/fulgurite/agent/forwarder"
	"github.com/fulgurite/fulgurite/internal/certtest"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
)

// workersOf says what Temporal knows about users' workers.
type workersOf struct {
	polled bool
	stuck  string
}

func (w workersOf) Polled(_ context.Context, queue string, workflows bool) (bool, error) {
	return w.polled && queue == "theirs" && workflows, nil
}

func (w workersOf) Stuck(context.Context, string) (string, error) { return w.stuck, nil }

func (w *testEnv) externalSpec() spec.Spec {
	s := w.spec()
	s.Agent = spec.Agent{Temporal: &spec.Temporal{Workflow: "MyAgent", Queue: "theirs"}, FailureReward: -0.5}
	return s
}

// beginAttempt begins an attempt and returns the input that ends it.
func (w *testEnv) beginAttempt(runner *activities.Runner, in activities.RunAgentInput) (activities.BeginAttemptResult, activities.EndAttemptInput) {
	w.t.Helper()
	b, err := do[activities.BeginAttemptResult](w.t, runner.BeginAttempt, activities.BeginAttemptInput{RunAgentInput: in})
	require.NoError(w.t, err)
	require.Nil(w.t, b.Ended)
	return b, activities.EndAttemptInput{
		Address: at(in, b.Attempt), Index: in.Index, BaseURL: b.Brief.BaseURL, Key: b.Brief.APIKey, Workflow: at(in, b.Attempt).String(),
	}
}

// askAs makes a model call as the agent that got the brief.
func askAs(ctx context.Context, b agent.Invocation) error {
	_, err := ask(ctx, agent.Env{BaseURL: b.BaseURL, Key: b.APIKey, Model: b.Model}, b.Input)
	return err
}

func TestAnAttemptElsewhereIsRecordedGradedAndEndedOnce(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	w.start(w.externalSpec())
	url := w.serve(w.gateway())
	runner, in := w.runner(url, nil), rollout(0, 0)
	runner.Workers = workersOf{polled: true}
	b, end := w.beginAttempt(runner, in)
	require.Equal(t, "6*7", b.Brief.Input)
	require.NoError(t, askAs(t.Context(), b.Brief))
	end.Reply = `{"result": "42"}`
	another := w.runner(url, nil) // another worker
	got, err := do[activities.EndAttemptResult](t, another.EndAttempt, end)
	require.NoError(t, err)
	require.Empty(t, got.Fault)
	require.Equal(t, record.OutcomeCompleted, got.Outcome)
	require.InDelta(t, 1, *got.Reward, 0)
	require.Equal(t, 1, got.Calls)
	require.Equal(t, "42", w.attempt(at(in, 1)).Result)
	require.Error(t, askAs(t.Context(), b.Brief), "it is over")

	again, err := do[activities.EndAttemptResult](t, runner.EndAttempt, end)
	require.NoError(t, err, "who is late hears the same")
	require.Equal(t, got, again)
	hidesVersion, err := do[activities.BeginAttemptResult](t, runner.BeginAttempt, activities.BeginAttemptInput{RunAgentInput: in})
	require.NoError(t, err)
	require.Equal(t, activities.BeginAttemptResult{Ended: &got.RunAgentResult}, hidesVersion)
}

func TestNoAttemptBeginsWhileNobodyWorksOnItsQueue(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	w.prepare(w.externalSpec())
	runner := w.runner("", nil)
	runner.Workers = workersOf{}
	_, err := do[activities.BeginAttemptResult](t, runner.BeginAttempt, activities.BeginAttemptInput{RunAgentInput: rollout(0, 0)})
	requireRetryable(t, err, `no worker polls the task queue "theirs"`)
	_, err = w.store.CurrentAttempt(t.Context(), rollout(0, 0).Rollout)
	require.ErrorIs(t, err, record.ErrNotFound)
}

func TestATaskTooLargeForTemporalIsRefusedBeforeTheRunBegins(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	w.write("tasks.jsonl", `{"id":"a","input":"`+strings.Repeat("x", 1<<20)+`","answer":"42"}`+"\n"+`{"id":"b","input":"2-5","answer":"-3"}`+"\n")
	_, err := do[activities.PrepareRunResult](t, w.coordinator.PrepareRun, w.request(w.externalSpec()))
	requireRefused(t, err, "tasks.train: task a has 1048", "agent.temporal takes at most 1048576")
	_, err = do[activities.PrepareRunResult](t, w.coordinator.PrepareRun, w.request(w.spec()))
	require.NoError(t, err, "other agents are given theirs by a worker")
}

func TestTemporalIsShownTheBeginningOfATask(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	w.write("tasks.jsonl", `{"id":"a","input":"two\u001b[31m `+"`lines`"+`\n\n and `+strings.Repeat("é", 200)+`","answer":"42"}`+"\n"+`{"id":"b","input":"2-5","answer":"-3"}`+"\n")
	w.prepare(w.spec())
	runner := w.runner("", answers("42"))
	for range 2 { // the second time it is on record
		first, err := do[activities.RunAgentResult](t, runner.RunAgent, rollout(0, 0))
		require.NoError(t, err)
		require.Regexp(t, `^a: two\[31m lines and é+…$`, first.Title)
		require.LessOrEqual(t, len(first.Title), 123)
	}
	second, err := do[activities.RunAgentResult](t, runner.RunAgent, rollout(0, 1))
	require.NoError(t, err)
	require.Empty(t, second.Title, "once for a group is enough")
}

// A person who cancels an agent means its task. The answer stays the same, however often
// EndAttempt is called.
func TestAnAgentElsewhereThatIsCancelledIsNotTriedAgain(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	w.prepare(w.externalSpec())
	runner, in := w.runner("", nil), rollout(0, 0)
	runner.Workers = workersOf{polled: true}
	_, end := w.beginAttempt(runner, in)
	end.Ending, end.Message = activities.Cancelled, "it was cancelled in Temporal"
	for range 2 {
		got, err := do[activities.EndAttemptResult](t, runner.EndAttempt, end)
		require.NoError(t, err)
		require.Equal(t, "it was cancelled in Temporal", got.TaskFault)
		require.Empty(t, got.Fault)
		require.Nil(t, got.Reward)
		w.requireFault(at(in, 1))
	}
}

func TestHowAnAgentElsewhereEnds(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		end     activities.EndAttemptInput
		stuck   string
		failure string
		fault   string
	}{
		"returns":               {end: activities.EndAttemptInput{Reply: `"42"`}},
		"fails":                 {end: activities.EndAttemptInput{Ending: activities.Raised, Message: "lost the thread"}, failure: "error"},
		"panics":                {end: activities.EndAttemptInput{Ending: activities.Panicked, Message: "a bug"}, failure: "panic"},
		"can't be started":      {end: activities.EndAttemptInput{Ending: activities.Missing, Message: "taken"}, fault: "missing: taken"},
		"is terminated":         {end: activities.EndAttemptInput{Ending: activities.Terminated, Message: "it was terminated"}, fault: "may not be the agent's fault"},
		"gives no result":       {end: activities.EndAttemptInput{Ending: activities.TimedOut, Message: "no result"}, fault: "may not be the agent's fault"},
		"waits for its workers": {end: activities.EndAttemptInput{Ending: activities.TimedOut, Message: "no result"}, stuck: "it waited for a worker", fault: "waited for a worker"},
		"fails in its code":     {end: activities.EndAttemptInput{Ending: activities.TimedOut, Message: "no result"}, stuck: "its code fails: KeyError", fault: "KeyError"},
		"loses its worker":      {end: activities.EndAttemptInput{Ending: activities.Lost, Message: "Worker is shutting down"}, fault: "Worker is shutting down"},
		"is encrypted":          {end: activities.EndAttemptInput{Ending: activities.Unreadable, Message: "binary/encrypted"}, fault: "binary/encrypted"},
		"returns too much":      {end: activities.EndAttemptInput{Ending: activities.TooLong, Message: "2000000 bytes"}, failure: "output_limit"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newTestEnv(t)
			w.prepare(w.externalSpec())
			runner, in := w.runner("", nil), rollout(0, 0)
			runner.Workers = workersOf{polled: true, stuck: c.stuck}
			_, end := w.beginAttempt(runner, in)
			end.Ending, end.Message, end.Reply = c.end.Ending, c.end.Message, c.end.Reply
			got, err := do[activities.EndAttemptResult](t, runner.EndAttempt, end)
			require.NoError(t, err)
			sealed := w.attempt(at(in, 1))
			switch {
			case c.fault != "":
				require.Contains(t, got.Fault, c.fault)
				w.requireFault(at(in, 1))
			case c.failure != "":
				require.Empty(t, got.Fault)
				require.Equal(t, record.AgentFailed, got.Outcome)
				require.InDelta(t, -0.5, *got.Reward, 0)
				require.Equal(t, c.failure, sealed.Failure)
				require.Contains(t, sealed.Error, c.end.Message)
			default:
				require.InDelta(t, 1, *got.Reward, 0)
			}
		})
	}
}

func TestAnAgentElsewhereThatHangsAtTheSamePlaceHasFailed(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	w.prepare(w.externalSpec())
	runner, in := w.runner("", nil), rollout(0, 0)
	for i, fault := range []bool{true, false} {
		_, end := w.beginAttempt(runner, in)
		end.Ending, end.Message = activities.TimedOut, "no result"
		got, err := do[activities.EndAttemptResult](t, runner.EndAttempt, end)
		require.NoError(t, err)
		require.Equal(t, fault, got.Fault != "")
		require.Equal(t, "hang", w.attempt(at(in, i+1)).Failure)
	}
}

func TestAnAgentElsewhereCanAskForAnotherAttemptButNotForEver(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	w.prepare(w.externalSpec())
	runner, in := w.runner("", nil), rollout(0, 0)
	for attempt := 1; attempt <= activities.RetryTries; attempt++ {
		_, end := w.beginAttempt(runner, in)
		end.Reply = `{"retry": "the search is down"}`
		got, err := do[activities.EndAttemptResult](t, runner.EndAttempt, end)
		require.NoError(t, err)
		require.Nil(t, got.Reward)
		w.requireFault(at(in, attempt))
		require.Equal(t, "retry", w.attempt(at(in, attempt)).Failure)
		why := map[bool]string{true: got.TaskFault, false: got.Fault}[attempt == activities.RetryTries]
		require.Contains(t, why, "the agent asks for another attempt: the search is down")
		require.Equal(t, attempt == activities.RetryTries, got.Fault == "")
	}
}

func TestAnAttemptElsewhereThatSawAFaultDoesNotCount(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	w.start(w.externalSpec())
	door := &outage{Handler: w.gateway(), again: make(chan struct{})}
	door.down.Store(true)
	runner, in := w.runner(w.serve(door), nil), rollout(0, 0)
	b, end := w.beginAttempt(runner, in)
	client, leave := context.WithCancel(t.Context())
	go func() {
		<-door.again
		leave()
	}()
	require.Error(t, askAs(client, b.Brief)) // the agent gives up and guesses
	end.Reply = `"42"`
	got, err := do[activities.EndAttemptResult](t, runner.EndAttempt, end)
	require.NoError(t, err)
	require.Contains(t, got.Fault, "fault in sight")
	w.requireFault(at(in, 1))
}

func TestAnAttemptElsewhereThatWasHeldUpIsNotTooSlow(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	w.start(w.externalSpec())
	door := &outage{Handler: w.gateway(), again: make(chan struct{})}
	door.down.Store(true)
	go func() {
		<-door.again
		door.down.Store(false)
	}()
	runner, in := w.runner(w.serve(door), nil), rollout(0, 0)
	b, end := w.beginAttempt(runner, in)
	require.NoError(t, askAs(t.Context(), b.Brief))
	end.Ending, end.Message = activities.TimedOut, "no result"
	got, err := do[activities.EndAttemptResult](t, runner.EndAttempt, end)
	require.NoError(t, err)
	require.Contains(t, got.Fault, "for faults of Fulgurite")
	require.Empty(t, w.attempt(at(in, 1)).Failure, "it doesn't count towards the hangs")
}

func TestAnAttemptWhoseWorkerIsGoneDoesNotCount(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	w.prepare(w.externalSpec())
	f, err := forwarder.New(t.Context(), func() string { return "" }, zap.NewNop())
	require.NoError(t, err)
	gone, in := w.runner("", nil), rollout(0, 0)
	gone.Forwarder = f
	_, end := w.beginAttempt(gone, in)
	require.NoError(t, f.Close(t.Context()))
	end.Reply = `"42"`
	got, err := do[activities.EndAttemptResult](t, w.runner("", nil).EndAttempt, end)
	require.NoError(t, err)
	require.Contains(t, got.Fault, "settle session")
	w.requireFault(at(in, 1))
}

func TestAReplacedAttemptElsewhereIsMadeAgain(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	w.prepare(w.externalSpec())
	runner, in := w.runner("", nil), rollout(0, 0)
	_, end := w.beginAttempt(runner, in)
	w.begin(in)
	end.Reply = `"42"`
	got, err := do[activities.EndAttemptResult](t, runner.EndAttempt, end)
	require.NoError(t, err)
	require.Contains(t, got.Fault, "fenced")
	w.requireLost(at(in, 1), 0)
}

func TestPostedIsBeforeReturnedIsBeforeTheLastLine(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		post   string
		reply  string
		reward float64
		fails  string
	}{
		"posted":               {post: `{"reward": 0.25}`, reply: `{"result": "0.75", "reward": 0.5}`, reward: 0.25},
		"returned":             {reply: `{"result": "0.75", "reward": 0.5}`, reward: 0.5},
		"last line":            {reply: "thoughts\n0.75", reward: 0.75},
		"last line as JSON":    {reply: `{"result": "{\"reward\": 0.75}"}`, reward: 0.75},
		"none":                 {reply: `"42 is it"`, fails: "no_reward"},
		"no number":            {reply: `{"result": "1", "reward": "high"}`, fails: "bad_reward"},
		"beyond the limit":     {reply: "7", fails: "bad_reward"},
		"posted, none returns": {post: `{"reward": 0.25}`, reply: `"x"`, reward: 0.25},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newTestEnv(t)
			s := w.externalSpec()
			s.Grader = spec.Grader{Type: "agent", Reward: "last_line", Limit: 5}
			w.start(s)
			runner, in := w.runner(w.serve(w.gateway()), nil), rollout(0, 0)
			b, end := w.beginAttempt(runner, in)
			if c.post != "" {
				_, err := post(t.Context(), agent.Env{Key: b.Brief.APIKey}, b.Brief.RewardURL, []byte(c.post))
				require.NoError(t, err)
			}
			end.Reply = c.reply
			got, err := do[activities.EndAttemptResult](t, runner.EndAttempt, end)
			require.NoError(t, err)
			if c.fails != "" {
				require.Equal(t, c.fails, w.attempt(at(in, 1)).Failure)
				require.InDelta(t, -0.5, *got.Reward, 0)
				return
			}
			require.Equal(t, record.OutcomeCompleted, got.Outcome)
			require.InDelta(t, c.reward, *got.Reward, 0)
		})
	}
}

// only returns one launcher for every spec.
type only struct{ launcher agent.Launcher }

func (o only) Launcher(spec.Spec) (agent.Launcher, error) { return o.launcher, nil }

func TestAServiceIsAnAgentAsAnyOther(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	w.start(w.spec())
	asked := 0
	url := w.serve(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		var b agent.Invocation
		require.NoError(t, json.NewDecoder(r.Body).Decode(&b))
		if asked++; asked == 1 {
			rw.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		require.NoError(t, askAs(r.Context(), b))
		_, _ = rw.Write([]byte(`{"result": "42"}`))
	}))
	runner, in := w.runner(w.serve(w.gateway()), nil), rollout(0, 0)
	runner.Launchers = only{agent.Service{URL: url}}
	_, err := do[activities.RunAgentResult](t, runner.RunAgent, in)
	requireRetryable(t, err, "service answered 503")
	w.requireFault(at(in, 1))
	got, err := do[activities.RunAgentResult](t, runner.RunAgent, in)
	require.NoError(t, err)
	require.Equal(t, 2, got.Attempt)
	require.Equal(t, 1, got.Calls)
	require.InDelta(t, 1, *got.Reward, 0)
}

// launched returns the job that it was launched with.
type launched struct{ job *agent.Job }

func (l launched) Launch(_ context.Context, job agent.Job) (agent.Result, error) {
	*l.job = job
	return agent.Result{Text: "42"}, nil
}

func TestOnlyAServiceGetsTheAddressForOtherMachines(t *testing.T) {
	t.Parallel()
	certificate, _ := certtest.Open(t)
	for want, where := range map[string]func(*spec.Agent){
		`^http://127\.0\.0\.1:\d+/r/`: func(*spec.Agent) {},
		`^https://localhost:\d+/r/`:   func(a *spec.Agent) { a.Func, a.Service = "", &spec.Service{URL: "http://127.0.0.1:1"} },
	} {
		w := newTestEnv(t)
		s := w.spec()
		where(&s.Agent)
		w.start(s)
		runner := w.runner("", nil)
		f, err := forwarder.New(t.Context(), func() string { return "" }, zap.NewNop(), forwarder.At("localhost"), forwarder.Over(certificate))
		require.NoError(t, err)
		defer func() { require.NoError(t, f.Close(context.Background())) }()
		var job agent.Job
		runner.Forwarder, runner.Launchers = f, only{launched{&job}}
		_, err = do[activities.RunAgentResult](t, runner.RunAgent, rollout(0, 0))
		require.NoError(t, err)
		require.Regexp(t, want, job.BaseURL)
	}
}

func TestACommandBeforeTheAttemptThatAlwaysFailsIsAFaultOfTheTask(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	w.prepare(w.spec())
	runner, in := w.runner("", nil), rollout(0, 0)
	broken := agent.HookCommands([]string{"sh", "-c", "echo no room >&2; exit 4"}, nil)
	runner.Launchers = only{agent.Around(answers("42"), broken, filepath.Join(w.dir, "scratch"))}
	for try := 1; try < activities.GraderTries; try++ {
		_, err := do[activities.RunAgentResult](t, runner.RunAgent, in)
		requireRetryable(t, err, "before the attempt", "no room")
		w.requireFault(at(in, try))
	}
	got, err := do[activities.RunAgentResult](t, runner.RunAgent, in)
	require.NoError(t, err)
	require.Nil(t, got.Reward)
	require.Contains(t, got.TaskFault, "no room")
	w.requireFault(at(in, activities.GraderTries))
}

func TestWhatFailsAfterTheAttemptIsNotedAndChangesNothing(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	w.prepare(w.spec())
	runner, in := w.runner("", nil), rollout(0, 0)
	untidy := agent.Hooks{After: func(context.Context, agent.Job, record.Outcome) error { return errors.New("can't clear up") }}
	runner.Launchers = only{agent.Around(answers("42"), untidy, filepath.Join(w.dir, "scratch"))}
	got, err := do[activities.RunAgentResult](t, runner.RunAgent, in)
	require.NoError(t, err)
	require.InDelta(t, 1, *got.Reward, 0)
	sealed := w.attempt(at(in, 1))
	require.Equal(t, record.OutcomeCompleted, sealed.Outcome)
	require.Equal(t, "after the attempt: can't clear up", sealed.Error)
	left, err := os.ReadDir(filepath.Join(w.dir, "scratch"))
	require.NoError(t, err)
	require.Empty(t, left)
}

// Temporal shows a fault as the last failure of BeginAttempt, which waits before the next
// attempt.
func TestTheFaultOfTheAttemptBeforeIsShownUntilTheNextBegins(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	w.prepare(w.externalSpec())
	runner := w.runner("", nil)
	runner.Workers = workersOf{polled: true}
	in := activities.BeginAttemptInput{RunAgentInput: rollout(0, 0), Fault: "a fault", Faults: 1, Wait: time.Minute}
	_, err := do[activities.BeginAttemptResult](t, runner.BeginAttempt, in)
	requireRetryable(t, err, "a fault")
	var failure *temporal.ApplicationError
	require.ErrorAs(t, err, &failure)
	require.Equal(t, time.Minute, failure.NextRetryDelay())
	_, err = w.store.CurrentAttempt(t.Context(), in.Rollout)
	require.ErrorIs(t, err, record.ErrNotFound)
}
