package testsuite_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
)

// theirService runs the example's agent as a service behind a proxy, which answers each
// third request itself.
func theirService(t *testing.T, asked *atomic.Int64) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var b jobEnvironment
		if err := json.NewDecoder(r.Body).Decode(&b); err != nil || r.Header.Get("X-Team") != "ours" {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		if n := asked.Add(1); n%3 == 0 {
			answerAsProxy(w, n/3)
			return
		}
		result, err := theirActivity(r.Context(), b)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"result": result, "steps": 1})
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// answerAsProxy writes one of the answers that proxies give in the place of a service.
func answerAsProxy(w http.ResponseWriter, n int64) {
	switch n % 5 {
	case 0:
		w.WriteHeader(http.StatusServiceUnavailable)
	case 1:
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, "<html><title>Sign in</title></html>")
	case 2:
		w.Header().Set("Location", "https://login.example/")
		w.WriteHeader(http.StatusFound)
	case 3:
		w.WriteHeader(524)
	case 4:
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"status": "accepted"}`)
	}
}
