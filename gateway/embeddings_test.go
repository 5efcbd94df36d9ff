package gateway_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/gateway"
)

func TestEmbeddingsArePassedThroughUnchanged(t *testing.T) {
	t.Parallel()
	var path, got, authorization string
	status := http.StatusOK
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		path, got, authorization = r.URL.Path, string(b), r.Header.Get("Authorization")
		w.Header().Set("Retry-After", "3")
		w.WriteHeader(status)
		_, _ = w.Write([]byte(`{"object":"list"}`))
	}))
	t.Cleanup(server.Close)
	const body = `{"model": "any", "input": ["a"], "odd": 1.0}`
	to := func(model string) func(*gateway.Config) {
		return func(c *gateway.Config) {
			c.Embeddings = gateway.Embeddings{URL: server.URL + "/v1/", Key: "sk-e", Model: model}
		}
	}
	s := newTestEnv(t, nil, to(""), serveVersions)
	for _, url := range []string{s.base(), s.base() + "/n/writer", s.url} {
		a := s.post(t, url+"/v1/embeddings", body)
		require.Equal(t, http.StatusOK, a.status, a.body)
		require.JSONEq(t, `{"object":"list"}`, a.body)
		require.Equal(t, "/v1/embeddings", path)
		require.Equal(t, "Bearer sk-e", authorization, "not the attempt's key")
		require.Equal(t, body, got)
	}
	require.Empty(t, s.recorded(t), "it is no call of the policy")

	renamed := newTestEnv(t, nil, to("bge"))
	renamed.post(t, renamed.base()+"/v1/embeddings", body)
	require.JSONEq(t, `{"model": "bge", "input": ["a"], "odd": 1.0}`, got)
	require.Contains(t, got, "1.0")

	status = http.StatusTooManyRequests
	a := s.post(t, s.base()+"/v1/embeddings", body)
	require.Equal(t, status, a.status, "it is between the agent and that server")
	require.Equal(t, "3", a.header.Get("Retry-After"))
	status = http.StatusInternalServerError
	a = s.post(t, s.base()+"/v1/embeddings", body)
	require.Equal(t, http.StatusServiceUnavailable, a.status)
	require.NotEmpty(t, a.header.Get("X-Fulgurite-Fault"))
	server.Close()
	a = s.post(t, s.base()+"/v1/embeddings", body)
	require.Equal(t, http.StatusServiceUnavailable, a.status)
	require.NotContains(t, a.body, server.URL)
}

func TestWithoutAServerOfEmbeddingsThereAreNone(t *testing.T) {
	t.Parallel()
	s := newTestEnv(t, nil)
	a := s.post(t, s.base()+"/v1/embeddings", `{"input":"a"}`)
	requireRefusal(t, a, http.StatusNotFound, "unknown_url", "")
	require.Contains(t, a.body, "no embeddings are served here: give the agent the address of a server of embeddings\"")
	s = newTestEnv(t, nil, func(c *gateway.Config) { c.Embeddings.Option = "--embeddings URL" })
	require.Contains(t, s.post(t, s.base()+"/v1/embeddings", `{"input":"a"}`).body, "a server of embeddings, or start this gateway with --embeddings URL")
	s = newTestEnv(t, nil, func(c *gateway.Config) { c.Embeddings.URL = "http://127.0.0.1:1" })
	requireRefusal(t, s.post(t, s.base()+"/v1/embeddings", `[]`), http.StatusBadRequest, "invalid_body", "")
	requireRefusal(t, s.post(t, s.base()+"/v1/embeddings", `{"input":"a"}`, "Authorization", "Bearer wrong"), http.StatusUnauthorized, "invalid_api_key", "")
}

// Whatever the server of embeddings does, the gateway holds a bounded part of it.
func TestEmbeddingsWithoutEndAreAFault(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		chunk := make([]byte, 1<<20)
		for r.Context().Err() == nil {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	}))
	t.Cleanup(server.Close)
	s := newTestEnv(t, nil, func(c *gateway.Config) { c.Embeddings.URL = server.URL })
	a := s.post(t, s.base()+"/v1/embeddings", `{"input":"a"}`)
	require.Equal(t, http.StatusServiceUnavailable, a.status)
	require.NotEmpty(t, a.header.Get("X-Fulgurite-Fault"))
}
