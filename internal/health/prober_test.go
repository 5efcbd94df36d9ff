package health_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/internal/health"
)

var errGone = errors.New("gone")

// proberLimit is longer than any delay of an answer on a busy machine.
const proberLimit = 3 * time.Second

func prober(t *testing.T, handler http.HandlerFunc, healthy func(int) bool) *health.Prober {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return health.New(health.Config{URL: server.URL + "/", Every: 50 * time.Millisecond, Patience: proberLimit, Gone: errGone, Healthy: healthy})
}

func TestAPeerThatFallsSilentEndsEveryRequest(t *testing.T) {
	t.Parallel()
	p := prober(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, nil)
	require.False(t, p.Answers())
	began := time.Now()
	first, release := p.Guard(t.Context())
	defer release()
	second, releaseSecond := p.Guard(t.Context())
	defer releaseSecond()
	for _, guarded := range []context.Context{first, second} {
		<-guarded.Done()
		require.ErrorIs(t, context.Cause(guarded), errGone)
	}
	require.GreaterOrEqual(t, time.Since(began), proberLimit, "not before its limit")
}

func TestAPeerThatAnswersIsWaitedFor(t *testing.T) {
	t.Parallel()
	probes := make(chan struct{})
	var probed atomic.Int64
	p := prober(t, func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path != health.Path {
			t.Errorf("asked at %s", r.URL.Path)
		}
		if probed.Add(1) == 70 {
			close(probes)
		}
	}, nil)
	guarded, release := p.Guard(t.Context())
	<-probes // for longer than its limit
	require.NoError(t, guarded.Err())
	release()
	require.ErrorIs(t, context.Cause(guarded), context.Canceled)
	require.True(t, p.Answers())
}

func TestAStatusMayCountAsSilence(t *testing.T) {
	t.Parallel()
	standby := func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }
	require.True(t, prober(t, standby, nil).Answers())
	strict := prober(t, standby, func(status int) bool { return status < 500 })
	require.False(t, strict.Answers())
	guarded, release := strict.Guard(t.Context())
	defer release()
	<-guarded.Done()
	require.ErrorIs(t, context.Cause(guarded), errGone)
}

func TestWhereNobodyListensThereIsNoAnswer(t *testing.T) {
	t.Parallel()
	require.False(t, health.New(health.Config{Patience: time.Second}).Answers())
}
