package agent_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/fulgurite/fulgurite/agent"
)

// service returns an agent behind HTTP that answers with handler.
func service(t *testing.T, handler http.HandlerFunc) agent.Service {
	t.Helper()
	s := httptest.NewUnstartedServer(handler)
	s.Config.ErrorLog = zap.NewStdLog(zap.NewNop())
	s.Start()
	t.Cleanup(s.Close)
	return agent.Service{URL: s.URL + "/run", Headers: map[string]string{"X-Any": "thing"}}
}

func TestServiceIsToldAllThatItsAgentNeeds(t *testing.T) {
	t.Parallel()
	got := make(chan asked, 1)
	s := service(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- asked{request: r, body: string(body)}
		says(http.StatusOK, "42\n")(w, r)
	})
	result, err := s.Launch(t.Context(), job("demo"))
	require.NoError(t, err)
	require.Equal(t, agent.Result{Text: "42"}, result)
	a := within(t, got)
	require.Equal(t, "/run", a.request.URL.Path)
	require.Equal(t, "thing", a.request.Header.Get("X-Any"))
	require.Equal(t, "demo/train-3/17/2/1", a.request.Header.Get("Idempotency-Key"))
	var invocation map[string]any
	require.NoError(t, json.Unmarshal([]byte(a.body), &invocation))
	base := "http://127.0.0.1:1/r/demo/train-3/17/2/1"
	require.Empty(t, cmp.Diff(map[string]any{
		"id": "t17", "input": "6*7", "metadata": map[string]any{"level": "easy"}, "rollout": "demo/train-3/17/2",
		"base_url": base + "/v1", "api_key": "secret-of-the-attempt", "model": "fulgurite",
		"reward_url": base + "/rewards", "event_url": base + "/events", "otlp_url": base + "/otlp",
	}, invocation))
}

func TestWhatAServiceAnswersIsItsResult(t *testing.T) {
	t.Parallel()
	half := 0.5
	for body, want := range map[string]agent.Result{
		`{"result": "42", "reward": 0.5}`:   {Text: "42", Reward: &half},
		`{"result": {"a": 1}}`:              {Text: `{"a": 1}`},
		`{"reward": 0.5}`:                   {Reward: &half},
		`{"result": "42", "reward": null}`:  {Text: "42"},
		`{"result": "42", "reward": "low"}`: {Text: "42", RewardError: `report reward: "low" is not a number`},
		`{"result": "42", "reward": 3}`:     {Text: "42", RewardError: "report reward: 3 is beyond the limit of 2"},
		`{"result": "42", "reward": 1e999}`: {Text: "42", RewardError: "report reward: 1e999 is not a number"},
		`{"answer": 42}`:                    {Text: `{"answer": 42}`},
		`"42"`:                              {Text: "42"},
		`null`:                              {},
		``:                                  {},
		`six times seven`:                   {Text: "six times seven"},
		"4\xff2":                            {Text: "4\uFFFD2"},
		strings.Repeat("x", 70<<10):         {Text: strings.Repeat("x", 64<<10)},
	} {
		j := job("demo")
		j.Limits.Reward = 2
		got, err := service(t, says(http.StatusOK, body)).Launch(t.Context(), j)
		require.NoError(t, err)
		require.Empty(t, cmp.Diff(want, got), "%.40s", body)
	}
}

func TestServiceThatIsNotThereIsAFault(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]agent.Service{
		"refused":    {URL: refusing(t)},
		"no address": {URL: "http://\x00"},
		"429":        service(t, says(http.StatusTooManyRequests, "")),
		"502":        service(t, says(http.StatusBadGateway, "")),
		"503":        service(t, says(http.StatusServiceUnavailable, "busy")),
		"504":        service(t, says(http.StatusGatewayTimeout, "")),
		"breaks off": service(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }),
		"halfway": service(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			says(http.StatusOK, "only half of wh")(w, nil)
		}),
	} {
		_, err := s.Launch(t.Context(), job("demo"))
		require.ErrorContains(t, err, "run agent demo/train-3/17/2/1", name)
	}
}

func TestServiceThatAnswersAnErrorHasFailed(t *testing.T) {
	t.Parallel()
	for status, message := range map[int]string{
		http.StatusInternalServerError: "service answered 500 Internal Server Error: lost the thread",
		http.StatusBadRequest:          "service answered 400 Bad Request: lost the thread",
		http.StatusFound:               "service answered 302 Found: lost the thread",
	} {
		got, err := service(t, says(status, "lost the thread\n")).Launch(t.Context(), job("demo"))
		require.NoError(t, err)
		require.Equal(t, agent.Result{Failure: agent.Error, Message: message}, got)
	}
	got, err := service(t, says(http.StatusInternalServerError, strings.Repeat("x", 1<<20))).Launch(t.Context(), job("demo"))
	require.NoError(t, err)
	require.Less(t, len(got.Message), 3<<10, "it is shortened")
	got, err = service(t, says(http.StatusOK, strings.Repeat("x", 9<<20))).Launch(t.Context(), job("demo"))
	require.NoError(t, err)
	require.Equal(t, agent.OutputLimit, got.Failure)
}

func TestLimitsEndTheRequestToAService(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		limits  agent.Limits
		failure agent.Failure
	}{
		"time": {agent.Limits{Time: 50 * time.Millisecond}, agent.Timeout},
		"idle": {agent.Limits{Idle: 50 * time.Millisecond}, agent.Hang},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			left := make(chan struct{})
			s := service(t, func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				silent(w, r)
				close(left)
			})
			j := job("demo")
			j.Limits = c.limits
			got, err := s.Launch(t.Context(), j)
			require.NoError(t, err)
			require.Equal(t, c.failure, got.Failure)
			within(t, left) // it notices
		})
	}
	s := service(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		silent(w, r)
	})
	ctx, cancel := context.WithCancel(t.Context())
	end := start(ctx, s, job("demo"))
	cancel()
	require.ErrorIs(t, within(t, end).err, context.Canceled, "who ends its context hears of no failure")
}

func TestTheLastLineMayClaimAReward(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]any{
		"0.5": 0.5, "-1": -1.0, "thinking\n 1e-1 \n": 0.1, `{"reward": 0.25}`: 0.25, `{"reward": 0.25, "why": "so"}`: 0.25,
		"": nil, "forty-two": nil, "1\nforty-two": nil, "NaN": nil, "0x10": nil, "1 2": nil, `{"score": 1}`: nil, "null": nil, "[1]": nil, `"1"`: nil,
		`{"reward": "high"}`: "is not a number", "3": "beyond the limit", `{"reward": -3}`: "beyond the limit",
	} {
		reward, refusal := agent.LastReward(line, 2)
		switch want := want.(type) {
		case float64:
			require.Empty(t, refusal, line)
			require.NotNil(t, reward, line)
			require.InDelta(t, want, *reward, 0)
		case string:
			require.Contains(t, refusal, want, line)
			require.Nil(t, reward)
		default:
			require.Empty(t, refusal, line)
			require.Nil(t, reward, line)
		}
	}
}

func FuzzReply(f *testing.F) {
	for _, seed := range []string{`{"result":"42","reward":1}`, `{"reward":{}}`, "null", `"x"`, "1", "{", "\xff"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		r := agent.ReadReply(body, 2)
		require.False(t, r.Failed())
		require.LessOrEqual(t, len(r.Text), 64<<10)
		require.False(t, r.Reward != nil && (*r.Reward > 2 || *r.Reward < -2 || r.RewardError != ""))
		reward, refusal := agent.LastReward(string(body), 2)
		require.False(t, reward != nil && (*reward > 2 || *reward < -2 || refusal != ""))
	})
}

// asked is a request as the service got it.
type asked struct {
	request *http.Request
	body    string
}

// within returns what c receives, and fails a test that would hang.
func within[T any](t *testing.T, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(testTimeout):
		require.FailNow(t, "nothing came")
		panic("unreachable")
	}
}

// silent gives no answer, and waits until its client leaves.
func silent(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

// says answers with a status and a body.
func says(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// refusing returns an address at which no server listens.
func refusing(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(http.NotFoundHandler())
	s.Close()
	return s.URL
}
