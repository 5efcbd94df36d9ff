package activities_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sashabaranov/go-openai"
	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/credit"
	"github.com/fulgurite/fulgurite/credit/judge"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/tasks/stream"
)

// judgeServer is an HTTP server that answers as a judge, with what the function says
// returns.
type judgeServer struct {
	url   string
	says  func(of judge.Attempt) (status int, text string)
	mu    sync.Mutex
	asked []judge.Attempt
	keys  map[string]bool
}

func newJudgeServer(t *testing.T, says func(judge.Attempt) (int, string)) *judgeServer {
	t.Helper()
	b := &judgeServer{says: says, keys: map[string]bool{}}
	server := httptest.NewServer(b)
	t.Cleanup(server.Close)
	b.url = server.URL + "/v1"
	return b
}

func (b *judgeServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var q openai.ChatCompletionRequest
	var a judge.Attempt
	if json.NewDecoder(r.Body).Decode(&q) == nil {
		_, document, _ := strings.Cut(q.Messages[1].Content, "\n")
		_ = json.Unmarshal([]byte(document), &a)
	}
	b.mu.Lock()
	b.asked = append(b.asked, a)
	b.keys[r.Header.Get("Authorization")] = true
	b.mu.Unlock()
	status, text := b.says(a)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Retry-After", "0")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(openai.ChatCompletionResponse{
		Choices: []openai.ChatCompletionChoice{{Message: openai.ChatCompletionMessage{Role: "assistant", Content: text}}},
	})
}

// judged prepares a run whose calls b judges, and returns its first step: a task of the
// stream and one of the reserve, with two samples each.
func (w *testEnv) judged(b *judgeServer, edit func(*spec.Judge)) activities.JudgeCallsInput {
	w.t.Helper()
	s := w.spec().WithDefaults()
	s.Credit.Assignment, s.Credit.Judge = credit.Judge, &spec.Judge{URL: b.url, Model: "m", Requests: 10}
	if edit != nil {
		edit(s.Credit.Judge)
	}
	w.start(s)
	const step, ordinal = 1, 1
	index, _ := stream.At(s.Seed, 2, ordinal)
	groups := []activities.Group{{Task: ordinal, Rewards: []float64{1, 0}}, {Kind: record.Reserve, Rewards: []float64{0.5, 0.25}}}
	runner := w.runner(w.serve(w.gateway()), twoCalls)
	for i, g := range groups {
		for sample := range g.Rewards {
			in := rollout(index, sample)
			in.Rollout.Step, in.Rollout.Task = step, g.Task
			if g.Kind == record.Reserve {
				in.Rollout.Kind, in.Index = record.Reserve, stream.Reserve(s.Seed, 2, step, g.Task)
			}
			r, err := do[activities.RunAgentResult](w.t, runner.RunAgent, in)
			require.NoError(w.t, err)
			groups[i].Attempts = append(groups[i].Attempts, r.Attempt)
		}
	}
	return activities.JudgeCallsInput{Run: "demo", Policy: model.DefaultPolicy, Step: step, Groups: groups}
}

// byReward gives the first call ten times the reward as its score, and the second call 3.
func byReward(a judge.Attempt) (int, string) {
	text, err := json.Marshal([]float64{10 * a.Reward, 3})
	if err != nil {
		panic(err)
	}
	return http.StatusOK, string(text)
}

func TestCallsAreJudgedAttemptByAttempt(t *testing.T) {
	t.Parallel()
	w, b := newTestEnv(t), newJudgeServer(t, byReward)
	in := w.judged(b, nil)
	got, err := do[activities.JudgeCallsResult](t, w.coordinator.JudgeCalls, in)
	require.NoError(t, err)
	data, err := w.blobs.Get(t.Context(), got.Judgments)
	require.NoError(t, err)
	var judgments record.Judgments
	require.NoError(t, json.Unmarshal(data, &judgments))
	require.Equal(t, [][]float64{{10, 3}, {0, 3}, {5, 3}, {2.5, 3}}, judgments.Scores, "in the order of groups and samples")
	require.InDelta(t, 29.5/8, got.Metrics["judge/score"], 1e-12)
	require.InDelta(t, 8, got.Metrics["judge/calls"], 0)
	require.InDelta(t, 4, got.Metrics["judge/requests"], 0)
	require.InDelta(t, 0, got.Metrics["judge/asked_again"], 0)

	answers := map[string]string{"6*7": "42", "2-5": "-3"}
	for _, a := range b.asked {
		require.Len(t, a.Calls, 2)
		require.Equal(t, answers[a.Task], a.Expected, "a judge is told the task that the attempt had")
		require.Equal(t, a.Task, a.Calls[0].Asked[0].Text)
		require.Equal(t, "again: "+a.Task, a.Calls[1].Asked[0].Text)
		require.Equal(t, "42", a.Result)
	}
	again, err := do[activities.JudgeCallsResult](t, w.coordinator.JudgeCalls, in)
	require.NoError(t, err)
	require.Equal(t, got, again)
	require.Len(t, b.asked, 4, "a judgment is made once")
	require.Equal(t, map[string]bool{"": true}, b.keys, "without a key none is sent")
}

func TestAJudgeThatIsAwayHoldsTheStepUp(t *testing.T) {
	t.Parallel()
	away := atomic.Bool{}
	away.Store(true)
	w, b := newTestEnv(t), newJudgeServer(t, func(a judge.Attempt) (int, string) {
		if away.Load() && a.Reward == 0.5 {
			return http.StatusBadGateway, ""
		}
		return byReward(a)
	})
	in := w.judged(b, func(j *spec.Judge) { j.Requests = 4 })
	for range 3 {
		_, err := do[activities.JudgeCallsResult](t, w.coordinator.JudgeCalls, in)
		requireRetryable(t, err, "judge attempt demo/reserve-1/0/0/1 by m", "502")
	}
	away.Store(false)
	got, err := do[activities.JudgeCallsResult](t, w.coordinator.JudgeCalls, in)
	require.NoError(t, err)
	require.InDelta(t, 4, got.Metrics["judge/requests"], 0, "what is not answered does not count")
}

func TestAJudgeThatCannotBeUsedEndsTheRun(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		says  func(judge.Attempt) (int, string)
		edit  func(*spec.Judge)
		words string
	}{
		"nonsense": {
			func(judge.Attempt) (int, string) { return http.StatusOK, "very good" }, func(j *spec.Judge) { j.Requests = 100 },
			"the judge's answers can't be read, 5 times; at last: it has no JSON array of numbers",
		},
		"too few requests": {
			func(judge.Attempt) (int, string) { return http.StatusOK, "very good" }, func(j *spec.Judge) { j.Requests = 4 },
			"no requests are left",
		},
		"a refusal": {func(judge.Attempt) (int, string) { return http.StatusBadRequest, "" }, nil, "the judge refuses what it is asked"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, b := newTestEnv(t), newJudgeServer(t, c.says)
			in := w.judged(b, c.edit)
			_, err := do[activities.JudgeCallsResult](t, w.coordinator.JudgeCalls, in)
			requireFinal(t, err, c.words, "step 1 of demo", "change credit.judge and start another run")
			require.Equal(t, name == "too few requests", applicationError(t, err).Type() == activities.ErrTypeFinal, "a retry helps if the judge can be mended")
		})
	}
}

func TestATaskThatTheStreamDoesNotHaveIsNotJudged(t *testing.T) {
	t.Parallel()
	w, b := newTestEnv(t), newJudgeServer(t, byReward)
	in := w.judged(b, nil)
	in.Groups[0].Task = 0 // where the stream has the other task
	for sample := range 2 {
		r := rollout(0, sample)
		index, _ := stream.At(w.spec().WithDefaults().Seed, 2, 1)
		r.Index = index
		_, err := do[activities.RunAgentResult](t, w.runner(w.serve(w.gateway()), twoCalls).RunAgent, r)
		require.NoError(t, err)
	}
	_, err := do[activities.JudgeCallsResult](t, w.coordinator.JudgeCalls, in)
	requireFinal(t, err, "demo/train-1/0/0/1 tried task")
	require.Empty(t, b.asked)
}

func TestTheKeyOfAJudgeIsThatOfTheWorker(t *testing.T) {
	w, b := newTestEnv(t), newJudgeServer(t, byReward)
	in := w.judged(b, func(j *spec.Judge) { j.Key = "FULGURITE_TEST_JUDGE_KEY" })
	_, err := do[activities.JudgeCallsResult](t, w.coordinator.JudgeCalls, in)
	requireRetryable(t, err, "the environment variable FULGURITE_TEST_JUDGE_KEY is not set for this worker")
	t.Setenv("FULGURITE_TEST_JUDGE_KEY", "secret")
	_, err = do[activities.JudgeCallsResult](t, w.coordinator.JudgeCalls, in)
	require.NoError(t, err)
	require.Equal(t, map[string]bool{"Bearer secret": true}, b.keys)
}

func TestARunWithoutAJudgeJudgesNothing(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	w.start(w.spec())
	_, err := do[activities.JudgeCallsResult](t, w.coordinator.JudgeCalls, activities.JudgeCallsInput{Run: "demo", Policy: model.DefaultPolicy, Step: 1})
	requireFinal(t, err, "the spec has no credit.judge")
}
