package gateway_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/gateway"
	"github.com/fulgurite/fulgurite/record"
)

// The key of an attempt opens nothing once the attempt has ended, whether this gateway has the
// attempt in memory, reads it anew, or is another one.
func TestTheKeyOfAnAttemptExpiresWithIt(t *testing.T) {
	t.Parallel()
	second := record.Attempt{Address: address, Terms: terms, KeyHash: hash("sk-2")}
	second.Attempt = 2
	for name, end := range map[string]func(*testEnv){
		"sealed":   func(s *testEnv) { s.Seal(address, record.OutcomeCompleted) },
		"replaced": func(s *testEnv) { s.Begin(second) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			paid := 0
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				paid++
				_, _ = w.Write([]byte(`{"object":"list"}`))
			}))
			t.Cleanup(server.Close)
			s := newTestEnv(t, nil, func(c *gateway.Config) { c.Embeddings = gateway.Embeddings{URL: server.URL} })
			require.Equal(t, http.StatusOK, s.chat(t, ask("a")).status)
			id := s.recorded(t)[0].ID
			requests := []struct{ method, path, body string }{
				{http.MethodPost, "/v1/embeddings", `{"input":["a"]}`},
				{http.MethodGet, "/v1/models", ""}, {http.MethodGet, "/v1/models/any", ""},
				{http.MethodPost, "/v1/messages/count_tokens", `{"model":"m","messages":[{"role":"user","content":"a"}]}`},
				{http.MethodGet, "/v1/responses/" + id, ""}, {http.MethodGet, "/v1/responses/" + id + "/input_items", ""}, {http.MethodDelete, "/v1/responses/" + id, ""},
				{http.MethodGet, "/prompts/writer", ""},
				{http.MethodPost, "/v1/chat/completions", ask("b")}, {http.MethodPost, "/rewards", `{"reward":1}`}, {http.MethodPost, "/events", `{"name":"x"}`},
			}
			send := func(method, path, body string) answer {
				t.Helper()
				a, err := s.try(t.Context(), method, s.base()+path, body)
				require.NoError(t, err)
				return a
			}
			require.Equal(t, http.StatusOK, send(http.MethodPost, "/v1/embeddings", `{"input":["a"]}`).status)
			require.Equal(t, 1, paid)
			end(s)
			for _, again := range []bool{false, true} {
				if again {
					s.restart(t)
				}
				sampled := len(s.requests())
				for _, r := range requests {
					a := send(r.method, r.path, r.body)
					require.Equal(t, http.StatusConflict, a.status, "%s %s: %s", r.method, r.path, a.body)
					require.Equal(t, "attempt_fenced", a.header.Get("X-Fulgurite-Code"), r.path)
				}
				require.Len(t, s.requests(), sampled, "nothing is sampled for it")
			}
			require.Equal(t, 1, paid, "nobody else's server is asked for it")
		})
	}
}

func TestSpansComeLateButNotForEver(t *testing.T) {
	t.Parallel()
	now := start
	s := newTestEnv(t, nil, func(c *gateway.Config) { c.Now = func() time.Time { return now } })
	s.Seal(address, record.OutcomeCompleted)
	send := func() int {
		return s.post(t, s.base()+"/v1/traces", exported(t, traceExport("x", 0, "")), "Content-Type", "application/x-protobuf").status
	}
	now = start.Add(14 * time.Minute)
	require.Equal(t, http.StatusOK, send())
	now = start.Add(16 * time.Minute)
	require.Equal(t, http.StatusConflict, send())
}
