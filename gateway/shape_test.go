package gateway_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"
	"weak"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/gateway"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/tokenizer"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/wire"
)

// requireShape requires an error in the shape of the API that says nothing about our
// internals.
func requireShape(t *testing.T, api wire.API, a answer, status int, kind string) {
	t.Helper()
	require.Equal(t, status, a.status, a.body)
	require.Equal(t, "application/json", a.header.Get("Content-Type"))
	body := object(t, a.body)
	message := fmt.Sprint(textAt(body, "error", "message"))
	require.NotEmpty(t, message)
	for _, internal := range []string{"/r/", "demo/train", "train-3", "decode:", "sample ", "sampler bug"} {
		require.NotContains(t, message, internal)
	}
	if api == wire.Messages {
		require.Equal(t, "error", body["type"], a.body)
		require.Equal(t, kind, textAt(body, "error", "type"))
		return
	}
	require.NotContains(t, body, "type", a.body)
	require.Contains(t, body["error"], "param")
	require.NotEmpty(t, textAt(body, "error", "code"))
}

func TestEveryErrorHasTheShapeOfTheAPIThatWasAsked(t *testing.T) {
	t.Parallel()
	onProtocols(t, func(t *testing.T, p protocol) {
		s := newTestEnv(t, nil, serveVersions, small, func(c *gateway.Config) { c.ServingKey = "sk-serving" })
		anthropic := []string{}
		if p.api == wire.Messages {
			anthropic = []string{"Anthropic-Version", "2023-06-01"}
		}
		post := func(url, body string, headers ...string) answer {
			return s.post(t, url, body, append(headers, anthropic...)...)
		}
		good := p.asking("q", "")
		for _, base := range []string{s.base(), s.base() + "/n/writer", s.url} {
			serving := []string{"Authorization", "Bearer sk-serving"}
			if base != s.url {
				serving = []string{"Authorization", "Bearer " + key}
			}
			requireShape(t, p.api, post(base+p.path, good, "Authorization", ""), http.StatusUnauthorized, "authentication_error")
			requireShape(t, p.api, post(base+p.path, good, "Authorization", "Bearer wrong"), http.StatusUnauthorized, "authentication_error")
			requireShape(t, p.api, post(base+p.path, p.asking(strings.Repeat("a", 1000), ""), serving...), http.StatusRequestEntityTooLarge, "request_too_large")
			requireShape(t, p.api, post(base+p.path, "{", serving...), http.StatusBadRequest, "invalid_request_error")
			requireShape(t, p.api, post(base+p.path, strings.Replace(good, "q", "\xff", 1), serving...), http.StatusBadRequest, "invalid_request_error")
			requireShape(t, p.api, post(base+p.path+"/batches", good, serving...), http.StatusNotFound, "not_found_error")
			requireShape(t, p.api, post(base+p.path[len("/v1"):], good, serving...), http.StatusNotFound, "not_found_error")
			wrong := s.do(t, http.MethodPut, base+p.path, append(serving, anthropic...)...)
			requireShape(t, p.api, wrong, http.StatusMethodNotAllowed, "invalid_request_error")
			require.Equal(t, "POST", wrong.header.Get("Allow"))
		}
		requireShape(t, p.api, post(s.url+"/r/demo/train-3/17/2/9"+p.path, good), http.StatusNotFound, "not_found_error")
		requireShape(t, p.api, post(s.url+"/r/demo/nap-3/17/2/1"+p.path, good), http.StatusNotFound, "not_found_error")

		s.gate = func(context.Context) error { return errors.New("sampler bug") }
		requireShape(t, p.api, post(s.base()+p.path, good), http.StatusServiceUnavailable, "overloaded_error")
		requireShape(t, p.api, post(s.base()+p.path, p.streaming("q")), http.StatusServiceUnavailable, "overloaded_error")
		s.gate = func(context.Context) error { panic("sampler bug") }
		requireShape(t, p.api, post(s.base()+p.path, good), http.StatusServiceUnavailable, "overloaded_error")
	})
}

func TestAPromptThatIsTooLongIsToldWithItsNumbers(t *testing.T) {
	t.Parallel()
	onProtocols(t, func(t *testing.T, p protocol) {
		s := newTestEnv(t, nil)
		s.gate = func(context.Context) error {
			return fmt.Errorf("sample demo@2: decode: %w", &model.PromptTooLong{Tokens: 70, Positions: 64})
		}
		a := s.send(t, p, p.asking("q", ""))
		requireShape(t, p.api, a, http.StatusBadRequest, "invalid_request_error")
		require.Equal(t, "context_length_exceeded", a.header.Get("X-Fulgurite-Code"))
		want := "maximum context length is 64 tokens"
		if p.api == wire.Messages {
			want = "prompt is too long: 70 tokens > 64 maximum"
		}
		require.Contains(t, a.body, strings.ReplaceAll(want, ">", `\u003e`))
		require.Contains(t, a.body, "70 tokens")
		require.Contains(t, strings.ToLower(a.body), "reduce the length of the ")

		s.gate = func(context.Context) error {
			return fmt.Errorf("sample demo@2: %w: %w", model.ErrPromptTooLong, errors.New("the server answered 400: too much"))
		}
		a = s.send(t, p, p.asking("r", ""))
		requireShape(t, p.api, a, http.StatusBadRequest, "invalid_request_error")
		require.Contains(t, a.body, "the server answered 400: too much")
	})
}

func TestMessagesNameTheFieldOnce(t *testing.T) {
	t.Parallel()
	s := newTestEnv(t, nil)
	for field, body := range map[string]string{
		"max_tokens":                  `{"max_tokens":0,"messages":[{"role":"user","content":"hi"}]}`,
		"messages":                    `{"max_tokens":1,"messages":{}}`,
		"messages[0].content[0].type": `{"max_tokens":1,"messages":[{"role":"user","content":[{"type":"image"}]}]}`,
		"messages[0].role":            `{"max_tokens":1,"messages":[{"role":"x","content":"hi"}]}`,
	} {
		var f struct{ Error struct{ Message string } }
		require.NoError(t, json.Unmarshal([]byte(s.post(t, s.base()+"/v1/messages", body).body), &f))
		require.Equal(t, 1, strings.Count(f.Error.Message, field), f.Error.Message)
	}
}

// The error names the path below the attempt's base URL, and not the attempt.
func TestABaseURLWithoutItsEndIsExplained(t *testing.T) {
	t.Parallel()
	s := newTestEnv(t, nil)
	a := s.post(t, s.base()+"/chat/completions", ask("a"))
	requireRefusal(t, a, http.StatusNotFound, "unknown_url", "")
	require.Contains(t, a.body, "POST /chat/completions is not served here: base URLs of OpenAI's clients end in /v1")
	require.Equal(t, map[string]int{"unknown_url": 1}, s.refused(t))
}

// unretained is a journal that keeps no calls, and a sampler that remembers a part of
// one weakly.
type unretained struct {
	forgetful
	model.Sampler
	logprob weak.Pointer[float32]
}

func (u *unretained) Sample(context.Context, model.VersionID, model.DecodeRequest) (model.Completion, string, error) {
	logprobs := make([]float32, 2, 64) // an allocation of its own
	u.logprob = weak.Make(&logprobs[0])
	return model.Completion{Tokens: say("1", tokenizer.End), Logprobs: logprobs, Finish: "stop"}, "w", nil
}

func TestAnAttemptThatIsOverIsNotHeldInMemory(t *testing.T) {
	t.Parallel()
	s := newUnservedEnv(nil)
	u := &unretained{forgetful: forgetful{s.memory}}
	s.config.Journal, s.config.Sampler = u, u
	g := gateway.New(s.config)
	s.serve(t, g)
	w := httptest.NewRecorder()
	g.ServeHTTP(w, chatRequest(t.Context(), ask(strings.Repeat("a", 1<<16))))
	require.Equal(t, http.StatusOK, w.Code)
	runtime.GC()
	require.NotNil(t, u.logprob.Value(), "retries are answered with it")
	bytes, _ := g.Memory()
	require.Greater(t, bytes, int64(4<<16), "the prompt's tokens are kept: dialogs go on from them")

	s.Seal(address, record.OutcomeCompleted)
	require.Equal(t, http.StatusConflict, s.post(t, s.base()+"/rewards", `{"reward":1}`).status)
	require.Eventually(t, func() bool {
		runtime.GC()
		bytes, _ := g.Memory()
		return u.logprob.Value() == nil && bytes < 1<<16
	}, 30*time.Second, time.Millisecond)
	runtime.KeepAlive(g)
}
