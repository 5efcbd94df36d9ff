package testsuite_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
)

// theirService runs the example's agent as a service that is sometimes busy.
func theirService(t *testing.T, asked *atomic.Int64) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var b jobEnvironment
		if err := json.NewDecoder(r.Body).Decode(&b); err != nil || r.Header.Get("X-Team") != "ours" {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		if asked.Add(1)%3 == 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
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
