package main

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/internal/health"
)

// A forwarder probes a gateway that takes longer than two seconds for a reply.
func TestProbesAreNoExchanges(t *testing.T) {
	t.Parallel()
	h := recorder{gateway: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })}
	for _, path := range []string{"/v1/models", health.Path, "/v1/models"} {
		reply := httptest.NewRecorder()
		h.ServeHTTP(reply, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody))
		require.Equal(t, http.StatusNoContent, reply.Code, path)
	}
	seen := h.exchanges()
	require.Len(t, seen, 2)
	for _, x := range seen {
		require.Equal(t, "/v1/models", x.path)
	}
}
