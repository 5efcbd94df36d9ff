package agent_test

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
	"unicode/utf16"

	gocmp "github.com/google/go-cmp/cmp"
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
	require.Empty(t, gocmp.Diff(map[string]any{
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
		`{"result": {"answer": [42]}}`:      {Text: `{"answer": [42]}`},
		`{"result": "42", "reward": NaN}`:   {Text: "42", RewardError: `report reward: "NaN" is not a number`},
		"\xEF\xBB\xBF{\"result\": \"42\"}":  {Text: "42"},
		`"42"`:                              {Text: "42"},
		`null`:                              {},
		`""`:                                {},
		`six times seven`:                   {Text: "six times seven"},
		strings.Repeat("x", 1<<20):          {Text: strings.Repeat("x", 1<<20)},
	} {
		j := job("demo")
		j.Limits.Reward = 2
		got, err := service(t, says(http.StatusOK, body)).Launch(t.Context(), j)
		require.NoError(t, err)
		require.Empty(t, gocmp.Diff(want, got), "%.40s", body)
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

// packed returns text in gzip.
func packed(t *testing.T, text string) string {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err := io.WriteString(w, text)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return b.String()
}

// wide returns text in UTF-16, big endian, without a byte order mark.
func wide(text string) string {
	var b strings.Builder
	for _, unit := range utf16.Encode([]rune(text)) {
		b.Write([]byte{byte(unit >> 8), byte(unit)})
	}
	return b.String()
}

func TestOnlyAnAnswerOfTheServiceIsItsResult(t *testing.T) {
	t.Parallel()
	const page = "<!doctype html><title>Sign in</title>"
	for name, c := range map[string]struct {
		status                int
		kind, encoding, other string // headers; other is a Location
		body                  string
		result                string // the text of the result, else
		fault                 string // the error has this
	}{
		"object":             {kind: "application/json", body: `{"result": "42"}`, result: "42"},
		"created":            {status: 201, kind: "application/json", body: `"42"`, result: "42"},
		"charset":            {kind: "text/plain; charset=ISO-8859-1", body: "na\xefve", result: "naïve"},
		"utf-16":             {kind: "application/json; charset=utf-16", body: wide(`{"result": "é"}`), result: "é"},
		"utf-16 with a mark": {kind: "application/json", body: "\xFE\xFF" + wide(`{"result": "é"}`), result: "é"},
		"gzip":               {kind: "application/json", encoding: "gzip", body: packed(t, `{"result": "42"}`), result: "42"},
		"a page as a result": {kind: "application/json", body: `{"result": "` + page + `"}`, result: page},
		"a text as markdown": {kind: "text/markdown", body: "*42*", result: "*42*"},

		"page":               {kind: "text/html; charset=utf-8", body: page, fault: "text/html"},
		"undeclared page":    {kind: "-", body: page, fault: "HTML page"},
		"page as text":       {kind: "text/plain", body: "\n" + page, fault: "HTML page"},
		"page as JSON":       {kind: "application/json", body: page, fault: "is not JSON"},
		"flask":              {kind: "text/html", body: "42", fault: "want JSON"},
		"empty":              {kind: "application/json", body: " \n", fault: "empty"},
		"no content":         {status: 204, fault: "204 No Content"},
		"reset":              {status: 205, fault: "205 Reset Content"},
		"partial":            {status: 206, kind: "text/plain", body: "4", fault: "206 Partial Content"},
		"by a proxy":         {status: 203, kind: "text/plain", body: "4", fault: "203"},
		"accepted":           {status: 202, kind: "application/json", body: `{"status":"accepted"}`, fault: "when its agent is done"},
		"accepted with 200":  {kind: "application/json", body: `{"status":"accepted"}`, fault: `without "result"`},
		"error":              {kind: "application/json", body: `{"error":{"message":"overloaded"}}`, fault: "overloaded"},
		"problem":            {kind: "application/problem+json", body: `{"title":"overloaded"}`, fault: "overloaded"},
		"error as text":      {kind: "text/plain", body: `{"detail":"Not Found"}`, fault: "Not Found"},
		"list":               {kind: "application/json", body: `[{"result":"42"},200]`, fault: "a list"},
		"events":             {kind: "text/event-stream", body: "data: 42\n\n", fault: "text/event-stream"},
		"undeclared events":  {kind: "-", body: "event: message\ndata: 42\n\n", fault: "stream of events"},
		"lines":              {kind: "application/x-ndjson", body: "1\n2\n", fault: "application/x-ndjson"},
		"several values":     {kind: "application/json", body: "1\n2\n", fault: "is not JSON"},
		"bytes":              {kind: "application/octet-stream", body: "42", fault: "application/octet-stream"},
		"picture":            {kind: "-", body: "\x89PNG\r\n\x1a\n", fault: "not UTF-8"},
		"control characters": {kind: "text/plain", body: "4\x002", fault: "binary"},
		"no UTF-8":           {kind: "text/plain", body: "4\xff2", fault: "not UTF-8"},
		"unsaid gzip":        {kind: "text/plain", body: packed(t, "42"), fault: "not UTF-8"},
		"brotli":             {kind: "application/json", encoding: "br", body: "\x0b\x02\x8042\x03", fault: `"br"`},
		"broken gzip":        {kind: "application/json", encoding: "gzip", body: packed(t, `{"result": "42"}`)[:20], fault: "gzip"},
		"other charset":      {kind: "text/plain; charset=koi8-r", body: "\xc1", fault: "koi8-r"},
		"login":              {status: 302, other: "https://login.example/?next=run", fault: "https://login.example/?next=run"},
		"moved":              {status: 308, other: "/run/", fault: `"/run/"`},
		"not modified":       {status: 304, fault: "304"},
	} {
		s := service(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["Content-Type"] = nil
			for header, value := range map[string]string{"Content-Type": c.kind, "Content-Encoding": c.encoding, "Location": c.other} {
				if value != "" && value != "-" {
					w.Header().Set(header, value)
				}
			}
			w.WriteHeader(cmp.Or(c.status, http.StatusOK))
			_, _ = io.WriteString(w, c.body)
		})
		got, err := s.Launch(t.Context(), job("demo"))
		if c.fault != "" {
			require.ErrorContains(t, err, c.fault, name)
			require.Less(t, len(err.Error()), 1000, name)
			continue
		}
		require.NoError(t, err, name)
		require.Equal(t, agent.Result{Text: c.result}, got, name)
	}
}

func TestStatusesOfProxiesAreFaults(t *testing.T) {
	t.Parallel()
	for status := 401; status <= 599; status++ {
		if status == http.StatusUnprocessableEntity || status == http.StatusInternalServerError {
			continue
		}
		_, err := service(t, says(status, "from elsewhere")).Launch(t.Context(), job("demo"))
		require.ErrorContains(t, err, "from elsewhere", status)
	}
}

func TestServiceGetsItsHeaders(t *testing.T) {
	t.Setenv("TOKEN_OF_SERVICE", "Bearer hush\n")
	got := make(chan asked, 1)
	s := service(t, func(w http.ResponseWriter, r *http.Request) {
		got <- asked{request: r}
		says(http.StatusOK, "42")(w, r)
	})
	s.Headers, s.SecretHeaders = map[string]string{"host": "agents.example"}, map[string]string{"Authorization": "TOKEN_OF_SERVICE"}
	_, err := s.Launch(t.Context(), job("demo"))
	require.NoError(t, err)
	r := within(t, got).request
	require.Equal(t, "agents.example", r.Host)
	require.Equal(t, "Bearer hush", r.Header.Get("Authorization"))

	s.SecretHeaders = map[string]string{"Authorization": "TOKEN_THAT_IS_NOT_SET"}
	_, err = s.Launch(t.Context(), job("demo"))
	require.ErrorContains(t, err, "agent.service.secret_headers.Authorization: the environment variable TOKEN_THAT_IS_NOT_SET is not set")

	s.SecretHeaders, s.URL = nil, strings.Replace(s.URL, "http://", "http://ada:hush@", 1)
	_, err = s.Launch(t.Context(), job("demo"))
	require.NoError(t, err)
	_, password, _ := within(t, got).request.BasicAuth()
	require.Equal(t, "hush", password)
}

func TestServiceThatAnswersAnErrorHasFailed(t *testing.T) {
	t.Parallel()
	for status, message := range map[int]string{
		http.StatusInternalServerError: "service answered 500 Internal Server Error: lost the thread",
		http.StatusBadRequest:          "service answered 400 Bad Request: lost the thread",
		http.StatusUnprocessableEntity: "service answered 422 Unprocessable Entity: lost the thread",
	} {
		got, err := service(t, says(status, "lost the thread\n")).Launch(t.Context(), job("demo"))
		require.NoError(t, err)
		require.Equal(t, agent.Result{Failure: agent.Error, Message: message}, got)
	}
	got, err := service(t, says(http.StatusInternalServerError, strings.Repeat("x", 1<<20))).Launch(t.Context(), job("demo"))
	require.NoError(t, err)
	require.Less(t, len(got.Message), 3<<10, "it is shortened")
	for name, long := range map[string]string{
		"answer": strings.Repeat("x", 9<<20), "text": strings.Repeat("x", 1<<20+1), "result": `{"reward": 1, "result": "` + strings.Repeat("é", 1<<19) + `x"}`,
	} {
		got, err = service(t, says(http.StatusOK, long)).Launch(t.Context(), job("demo"))
		require.NoError(t, err)
		require.Equal(t, agent.OutputLimit, got.Failure, name)
		require.Nil(t, got.Reward)
	}
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
		reward, refusal := agent.LastReward(line, 2, true)
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

func TestABareNumberIsAnAnswerUnlessItMayBeAReward(t *testing.T) {
	t.Parallel()
	for _, line := range []string{"41", "-0.5", "the answer:\n 7 ", "1e3"} {
		reward, refusal := agent.LastReward(line, 1, false)
		require.Nil(t, reward, line)
		require.Empty(t, refusal, line)
		require.True(t, agent.EndsWithNumber(line), line)
	}
	reward, _ := agent.LastReward(`{"reward": 0.5}`, 1, false)
	require.InDelta(t, 0.5, *reward, 0)
	for _, line := range []string{"", "41 apples", "null", `"41"`, "NaN"} {
		require.False(t, agent.EndsWithNumber(line), line)
	}
}

func FuzzReply(f *testing.F) {
	for _, seed := range []string{`{"result":"42","reward":1}`, `{"reward":{}}`, "null", `"x"`, "1", "{", "\xff"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		r := agent.ReadReply(body, 2)
		require.Equal(t, r.Failed(), r.Failure == agent.OutputLimit)
		require.LessOrEqual(t, len(r.Text), 1<<20)
		require.False(t, r.Reward != nil && (*r.Reward > 2 || *r.Reward < -2 || r.RewardError != ""))
		reward, refusal := agent.LastReward(string(body), 2, true)
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
