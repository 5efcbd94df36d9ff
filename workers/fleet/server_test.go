package fleet_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/fulgurite/fulgurite/workers/fleet"
)

func TestAServerAnswersTheVersionsOfHTTPThatAgentsSpeak(t *testing.T) {
	t.Parallel()
	listener, err := fleet.Listen(t.Context(), "127.0.0.1:0")
	require.NoError(t, err)
	server := fleet.Serve(listener, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Proto) }), zap.NewNop())
	t.Cleanup(func() { require.NoError(t, server.Close(context.Background())) })
	for _, version := range []int{1, 2} {
		var only http.Protocols
		only.SetHTTP1(version == 1)
		only.SetUnencryptedHTTP2(version == 2)
		client := http.Client{Transport: &http.Transport{Protocols: &only}}
		defer client.CloseIdleConnections()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL(), nil)
		require.NoError(t, err)
		response, err := client.Do(r)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		require.Equal(t, version, response.ProtoMajor)
	}
}
