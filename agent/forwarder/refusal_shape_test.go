package forwarder_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWhatTheForwarderRefusesHasTheShapeOfTheAPI(t *testing.T) {
	t.Parallel()
	g := newGateway(t, says(http.StatusOK, "fine"))
	f := newForwarder(t, g.at)
	s := open(t, f)
	post := func(url, body string) (status int, said map[string]any) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
		require.NoError(t, err)
		r.Header.Set("Authorization", "Bearer key")
		response, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(text, &said), "%s", text)
		require.NotContains(t, string(text), "train-")
		return response.StatusCode, said
	}
	large := strings.Repeat("x", 32<<20+1)
	status, said := post(s.BaseURL()+"/messages", large)
	require.Equal(t, http.StatusRequestEntityTooLarge, status)
	require.Equal(t, "error", said["type"])
	require.Equal(t, "request_too_large", said["error"].(map[string]any)["type"])
	status, said = post(s.BaseURL()+"/chat/completions", large)
	require.Equal(t, http.StatusRequestEntityTooLarge, status)
	require.Equal(t, "request_too_large", said["error"].(map[string]any)["code"])
	require.NotContains(t, said, "type")

	s.Close()
	status, said = post(s.BaseURL()+"/messages", "{}")
	require.Equal(t, http.StatusGone, status)
	require.Equal(t, "error", said["type"])
	status, said = post(f.URL()+"/r/nowhere/v1/messages", "{}")
	require.Equal(t, http.StatusNotFound, status)
	require.Equal(t, "not_found_error", said["error"].(map[string]any)["type"])
}
