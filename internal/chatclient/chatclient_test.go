package chatclient_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/internal/chatclient"
)

const secret = "sk-very-secret"

// server records requests, and replies with what the function writes.
type server struct {
	url    string
	client *chatclient.Client

	mu       sync.Mutex
	requests []seen
}

// seen is a request as it came.
type seen struct {
	path   string
	header http.Header
	body   map[string]any
}

func newServer(t *testing.T, api chatclient.API, reply func(n int, w http.ResponseWriter, r *http.Request)) *server {
	t.Helper()
	s := &server{}
	served := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		one := seen{path: r.URL.Path, header: r.Header}
		_ = json.NewDecoder(r.Body).Decode(&one.body)
		s.mu.Lock()
		s.requests = append(s.requests, one)
		n := len(s.requests)
		s.mu.Unlock()
		reply(n, w, r)
	}))
	t.Cleanup(served.Close)
	s.url = served.URL + "/v1"
	s.client = chatclient.New(chatclient.Options{API: api, URL: s.url + "/", Model: "m", Key: secret, Timeout: time.Minute, Connections: 1})
	t.Cleanup(s.client.Close)
	return s
}

func says(texts ...string) func(int, http.ResponseWriter, *http.Request) {
	return func(n int, w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, texts[min(n, len(texts))-1])
	}
}

func fails(status int, text string) func(int, http.ResponseWriter, *http.Request) {
	return func(_ int, w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "0")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, text)
	}
}

var question = chatclient.Request{
	Messages:  []chatclient.Message{{Role: chatclient.System, Content: "Be brief."}, {Role: chatclient.User, Content: "Why?"}},
	MaxTokens: 50,
}

const (
	completion = `{"model":"m-2","choices":[{"finish_reason":"stop","message":{"role":"assistant","content":"Because."}}],"usage":{"prompt_tokens":7,"completion_tokens":2}}`
	message    = `{"type":"message","model":"m-2","content":[{"type":"thinking","thinking":"Hm."},{"type":"text","text":"Beca"},{"type":"text","text":"use."}],"stop_reason":"end_turn","usage":{"input_tokens":3,"cache_read_input_tokens":4,"output_tokens":2}}`
)

var because = chatclient.Reply{Text: "Because.", Usage: chatclient.Usage{Input: 7, Output: 2}, Model: "m-2"}

func TestAReplyOfOpenAIsAPI(t *testing.T) {
	t.Parallel()
	s := newServer(t, chatclient.OpenAI, says(completion, strings.Replace(completion, `"stop"`, `"length"`, 1)))
	got, err := s.client.Ask(t.Context(), question)
	require.NoError(t, err)
	require.Equal(t, because, got)
	require.Equal(t, "/v1/chat/completions", s.requests[0].path)
	require.Equal(t, "Bearer "+secret, s.requests[0].header.Get("Authorization"))
	require.Equal(t, "none", s.requests[0].header.Get("X-Fulgurite-Prompts"), "a version that reflects is asked what is asked")
	require.Empty(t, cmp.Diff(map[string]any{
		"model": "m", "max_tokens": 50.0, "stream": false,
		"messages": []any{map[string]any{"role": "system", "content": "Be brief."}, map[string]any{"role": "user", "content": "Why?"}},
	}, s.requests[0].body))

	again := question
	again.Repeat = 2
	got, err = s.client.Ask(t.Context(), again)
	require.NoError(t, err)
	require.True(t, got.CutOff)
	require.Equal(t, 2.0, s.requests[1].body["seed"])
}

func TestAReplyOfAnthropicsAPI(t *testing.T) {
	t.Parallel()
	s := newServer(t, chatclient.Anthropic, says(message, strings.Replace(message, "end_turn", "max_tokens", 1), strings.Replace(message, "end_turn", "model_context_window_exceeded", 1)))
	got, err := s.client.Ask(t.Context(), question)
	require.NoError(t, err)
	require.Equal(t, because, got)
	require.Equal(t, "/v1/messages", s.requests[0].path)
	require.Equal(t, secret, s.requests[0].header.Get("X-Api-Key"))
	require.Equal(t, "2023-06-01", s.requests[0].header.Get("Anthropic-Version"))
	require.Empty(t, cmp.Diff(map[string]any{
		"model": "m", "max_tokens": 50.0, "system": "Be brief.",
		"messages": []any{map[string]any{"role": "user", "content": "Why?"}},
	}, s.requests[0].body))

	got, err = s.client.Ask(t.Context(), chatclient.Request{Messages: question.Messages, Repeat: 2})
	require.NoError(t, err)
	require.True(t, got.CutOff)
	require.Equal(t, 4096.0, s.requests[1].body["max_tokens"], "the API requires a number")
	require.Equal(t, map[string]any{"user_id": "repeat-2"}, s.requests[1].body["metadata"])
	got, err = s.client.Ask(t.Context(), question)
	require.NoError(t, err)
	require.True(t, got.CutOff)

	bare := chatclient.New(chatclient.Options{API: chatclient.Anthropic, URL: strings.TrimSuffix(s.url, "/v1"), Model: "m", Timeout: time.Minute})
	defer bare.Close()
	_, err = bare.Ask(t.Context(), question)
	require.NoError(t, err)
	require.Equal(t, "/v1/messages", s.requests[3].path)
	require.Empty(t, s.requests[3].header.Values("X-Api-Key"))
}

func TestAParameterThatTheServerDoesNotKnowIsLeftOut(t *testing.T) {
	t.Parallel()
	s := newServer(t, chatclient.OpenAI, func(n int, w http.ResponseWriter, r *http.Request) {
		switch n {
		case 1:
			fails(400, `{"error":{"message":"Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."}}`)(n, w, r)
		case 2:
			fails(422, `{"detail":[{"type":"extra_forbidden","loc":["body","seed"]}]}`)(n, w, r)
		default:
			says(completion)(1, w, r)
		}
	})
	q := question
	q.Repeat = 1
	for range 2 {
		_, err := s.client.Ask(t.Context(), q)
		require.NoError(t, err)
	}
	require.Len(t, s.requests, 4, "what was learned is remembered")
	for _, one := range s.requests[2:] {
		require.Equal(t, 50.0, one.body["max_completion_tokens"])
		require.NotContains(t, one.body, "max_tokens")
		require.NotContains(t, one.body, "seed")
	}

	// The library knows of some models that they want the other parameter.
	reasons := chatclient.New(chatclient.Options{URL: s.url, Model: "o3-mini", Timeout: time.Minute})
	defer reasons.Close()
	_, err := reasons.Ask(t.Context(), question)
	require.NoError(t, err)
}

func apis() []chatclient.API { return []chatclient.API{chatclient.OpenAI, chatclient.Anthropic} }

func TestRefusalsAreFinal(t *testing.T) {
	t.Parallel()
	for _, api := range apis() {
		for status, ofRequest := range map[int]bool{400: true, 413: true, 422: true, 401: false, 403: false, 404: false} {
			s := newServer(t, api, fails(status, `{"type":"error","error":{"type":"bad","message":"Not with `+secret+`"}}`))
			_, err := s.client.Ask(t.Context(), question)
			var refusal *chatclient.Refusal
			require.ErrorAs(t, err, &refusal, "%s %d", api, status)
			require.Equal(t, status, refusal.Status)
			require.Equal(t, ofRequest, refusal.OfRequest())
			require.ErrorContains(t, err, "Not with [the key]")
			for e := err; e != nil; e = errors.Unwrap(e) {
				require.NotContains(t, e.Error(), secret)
			}
			require.Len(t, s.requests, 1)
		}
	}
}

// requireTemporary asks once, and requires an error that is no refusal.
func requireTemporary(t *testing.T, s *server, contains string) {
	t.Helper()
	_, err := s.client.Ask(t.Context(), question)
	require.ErrorContains(t, err, contains)
	require.NotErrorAs(t, err, new(*chatclient.Refusal))
	require.NotContains(t, err.Error(), secret)
	require.Less(t, len(err.Error()), 3000)
}

func TestTroubleIsTemporary(t *testing.T) {
	t.Parallel()
	page := "\n <!DOCTYPE html><html>Sign in" + strings.Repeat(" please", 1000) + "</html>"
	for _, api := range apis() {
		for name, c := range map[string]struct {
			reply    func(int, http.ResponseWriter, *http.Request)
			contains string
		}{
			"a fault":               {fails(503, `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`), "Overloaded"},
			"a timeout":             {fails(408, `{"type":"error","error":{"type":"t","message":"too slow"}}`), "too slow"},
			"a page":                {says(page), "the reply with status 200 is a web page, perhaps that of a proxy"},
			"a page of a fault":     {fails(502, page), "the reply with status 502 is a web page"},
			"a page about a login":  {fails(403, page), "the reply with status 403 is a web page"},
			"an error as a success": {says(`{"error":{"type":"api_error","message":"try later"}}`), ""},
			"something else":        {says(`{"status":"accepted"}`), ""},
			"nothing":               {says(""), "the server's reply is empty or ends too early"},
			"half of it":            {says(completion[:40]), ""},
			"too much":              {says(`{"x":"` + strings.Repeat("x", 5<<20)), "too large"},
			"a long error":          {fails(500, strings.Repeat(secret, 5000)), "500"},
		} {
			t.Run(string(api)+" "+name, func(t *testing.T) {
				t.Parallel()
				requireTemporary(t, newServer(t, api, c.reply), c.contains)
			})
		}
	}
}

func TestAPageAboutTheRequestIsARefusal(t *testing.T) {
	t.Parallel()
	s := newServer(t, chatclient.OpenAI, fails(413, "<html>413 Request Entity Too Large</html>"))
	_, err := s.client.Ask(t.Context(), question)
	var refusal *chatclient.Refusal
	require.ErrorAs(t, err, &refusal)
	require.True(t, refusal.OfRequest())
}

func TestTooManyRequestsAndFaultsAreSentAgain(t *testing.T) {
	t.Parallel()
	for api, reply := range map[chatclient.API]string{chatclient.OpenAI: completion, chatclient.Anthropic: message} {
		s := newServer(t, api, func(n int, w http.ResponseWriter, r *http.Request) {
			switch {
			case n < 5:
				fails(429, "slow down")(n, w, r)
			case n == 5:
				fails(529, "overloaded")(n, w, r)
			default:
				says(reply)(1, w, r)
			}
		})
		got, err := s.client.Ask(t.Context(), question)
		require.NoError(t, err)
		require.Equal(t, because, got)
		require.Len(t, s.requests, 6)
		require.Equal(t, s.requests[0].body, s.requests[5].body)
	}
}

func TestNobodyWaitsForEver(t *testing.T) {
	t.Parallel()
	for _, api := range apis() {
		s := newServer(t, api, func(_ int, _ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
		c := chatclient.New(chatclient.Options{API: api, URL: s.url, Timeout: 20 * time.Millisecond})
		_, err := c.Ask(t.Context(), question)
		c.Close()
		require.ErrorContains(t, err, "no answer within 20ms")
		require.NotErrorAs(t, err, new(*chatclient.Refusal))

		busy := newServer(t, api, func(_ int, w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "10")
			w.WriteHeader(http.StatusTooManyRequests)
		})
		c = chatclient.New(chatclient.Options{API: api, URL: busy.url, Timeout: time.Second}) // within which it answers once
		_, err = c.Ask(t.Context(), question)
		c.Close()
		require.ErrorContains(t, err, "after status 429")
	}
}

func TestAServerThatIsNotThereIsTemporary(t *testing.T) {
	t.Parallel()
	for _, api := range apis() {
		s := newServer(t, api, says(""))
		c := chatclient.New(chatclient.Options{API: api, URL: "http://127.0.0.1:1", Key: secret, Timeout: time.Minute})
		s.client = c
		requireTemporary(t, s, "127.0.0.1:1")
		c.Close()
	}
}

func TestAKeyIsNotSentToAnotherHost(t *testing.T) {
	t.Parallel()
	for _, api := range apis() {
		other := newServer(t, api, fails(401, "{}"))
		s := newServer(t, api, func(_ int, w http.ResponseWriter, r *http.Request) {
			// A host of another name, and not only of another port: Go compares names.
			http.Redirect(w, r, strings.Replace(other.url, "127.0.0.1", "localhost", 1), http.StatusTemporaryRedirect)
		})
		_, err := s.client.Ask(t.Context(), question)
		require.ErrorAs(t, err, new(*chatclient.Refusal))
		for _, one := range other.requests {
			require.Empty(t, one.header.Values("Authorization"))
			require.Empty(t, one.header.Values("X-Api-Key"))
		}
	}
}
