package upstream_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/model/sampler/upstream"
)

// sleepingServer is an adapterServer that sleeps as vLLM 0.32 does (its routes of
// entrypoints/serve/dev/sleep, and the scheduler of v1/engine/core.py). With mode=wait,
// current calls end first, and calls that arrive later wait until it is awake. To sleep
// or to wake a second time does nothing.
type sleepingServer struct {
	*adapterServer
	front *httptest.Server

	mu      sync.Mutex
	changed *sync.Cond
	paused  bool // new calls wait
	asleep  bool // its memory is gone
	running int  // completions
	looked  chan struct{}
	posts   []string
	wrong   []string // requests that must not be made while it sleeps
	dead    atomic.Bool
}

func newSleepingServer(t *testing.T) *sleepingServer {
	t.Helper()
	s := &sleepingServer{adapterServer: newAdapterServer(t), looked: make(chan struct{}, 100)}
	s.changed = sync.NewCond(&s.mu)
	s.front = httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(s.front.Close)
	t.Cleanup(func() { s.set(false) })
	return s
}

func (s *sleepingServer) serve(w http.ResponseWriter, r *http.Request) {
	if s.dead.Load() {
		panic(http.ErrAbortHandler) // the connection ends
	}
	if !strings.HasPrefix(r.URL.Path, "/v1") {
		w.Header().Set("Content-Type", "application/json")
	}
	switch r.URL.Path {
	case "/sleep":
		if r.Method != http.MethodPost || r.URL.Query().Get("level") != "1" || r.URL.Query().Get("mode") != "wait" {
			refuse(w, http.StatusBadRequest, "not expected: "+r.Method+" "+r.URL.String())
			return
		}
		s.mu.Lock()
		s.posts, s.paused = append(s.posts, "sleep"), true
		for s.running > 0 {
			s.changed.Wait()
		}
		s.asleep = true
		s.mu.Unlock()
		fmt.Fprint(w, `{"status": "sleeping", "level": 1}`)
	case "/wake_up":
		s.mu.Lock()
		s.posts = append(s.posts, "wake")
		s.mu.Unlock()
		s.set(false)
		fmt.Fprint(w, `{"status": "awake", "tags": null}`)
	case "/is_sleeping":
		s.mu.Lock()
		fmt.Fprintf(w, `{"is_sleeping": %t}`, s.paused)
		s.mu.Unlock()
		select {
		case s.looked <- struct{}{}:
		default:
		}
	case "/v1/completions":
		s.mu.Lock()
		for s.paused {
			s.changed.Wait()
		}
		s.running++
		s.mu.Unlock()
		s.adapterServer.Config.Handler.ServeHTTP(w, r)
		s.mu.Lock()
		s.running--
		s.changed.Broadcast()
		s.mu.Unlock()
	default:
		s.mu.Lock()
		if s.asleep && strings.Contains(r.URL.Path, "lora") {
			s.wrong = append(s.wrong, r.URL.Path)
		}
		s.mu.Unlock()
		s.adapterServer.Config.Handler.ServeHTTP(w, r)
	}
}

func (s *sleepingServer) set(asleep bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.paused, s.asleep = asleep, asleep
	s.changed.Broadcast()
}

func (s *sleepingServer) state() (asleep bool, posts, wrong []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asleep, append([]string(nil), s.posts...), append([]string(nil), s.wrong...)
}

// sharing returns the sampler of a separate process.
func sharing(t *testing.T, servers ...*sleepingServer) *upstream.Sampler {
	t.Helper()
	directory := t.TempDir()
	var plain []*adapterServer
	for _, s := range servers {
		plain = append(plain, s.adapterServer)
	}
	return connectAdapters(t, learned(), func(o *upstream.Options) {
		o.ShareGPU, o.Directory = true, directory
		for i, s := range servers {
			o.URLs[i] = s.front.URL
		}
	}, plain...)
}

func TestServersSleepWhileATrainerComputesAndCallsWait(t *testing.T) {
	t.Parallel()
	at, other := newSleepingServer(t), newSleepingServer(t)
	trainer, gateway := sharing(t, at, other), sharing(t, at, other)
	require.NoError(t, gateway.Publish(t.Context(), numbered(1)))
	for range 2 { // also when it is asked again
		require.NoError(t, trainer.Sleep(t.Context()))
		for _, s := range []*sleepingServer{at, other} {
			asleep, _, _ := s.state()
			require.True(t, asleep)
			for len(s.looked) > 0 {
				<-s.looked
			}
		}
	}
	done := make(chan error, 1)
	go func() {
		_, _, err := gateway.Sample(context.WithoutCancel(t.Context()), numbered(1), lengthRequest())
		done <- err
	}()
	select { // the call checks, and checks again
	case <-at.looked:
		<-at.looked
	case <-other.looked:
		<-other.looked
	}
	select {
	case err := <-done:
		t.Fatal("answered by a server that sleeps", err)
	default:
	}
	_, before := at.seen()
	_, beforeOther := other.seen()
	for range 2 {
		require.NoError(t, trainer.Wake(t.Context()))
	}
	require.NoError(t, <-done, "the call was not lost")
	_, asked := at.seen()
	_, askedOther := other.seen()
	require.Greater(t, len(asked)+len(askedOther), len(before)+len(beforeOther)+2, "the adapter was checked again by its canary before it sampled")
	for _, s := range []*sleepingServer{at, other} {
		asleep, posts, wrong := s.state()
		require.False(t, asleep)
		require.Equal(t, []string{"sleep", "sleep", "wake"}, posts, "one that is awake is not woken")
		require.Empty(t, wrong, "no adapter is loaded while it sleeps")
	}
}

// The process that put them to sleep was killed.
func TestWhoPublishesWakesServersThatNobodyWoke(t *testing.T) {
	t.Parallel()
	at := newSleepingServer(t)
	require.NoError(t, sharing(t, at).Sleep(t.Context()))
	next := sharing(t, at)
	require.NoError(t, next.Publish(t.Context(), numbered(2)))
	asleep, _, wrong := at.state()
	require.False(t, asleep)
	require.Empty(t, wrong)
	_, _, err := next.Sample(t.Context(), numbered(2), lengthRequest())
	require.NoError(t, err)
}

func TestCallsUnderWayEndBeforeTheServerSleeps(t *testing.T) {
	t.Parallel()
	at := newSleepingServer(t)
	s := sharing(t, at)
	require.NoError(t, s.Publish(t.Context(), numbered(1)))
	sampling, finish := make(chan struct{}), make(chan struct{})
	at.adapterServer.mu.Lock()
	at.during = sync.OnceFunc(func() {
		close(sampling)
		<-finish
	})
	at.adapterServer.mu.Unlock()
	called, slept := make(chan error, 1), make(chan error, 1)
	go func() {
		_, _, err := s.Sample(context.WithoutCancel(t.Context()), numbered(1), lengthRequest())
		called <- err
	}()
	<-sampling
	go func() { slept <- s.Sleep(context.WithoutCancel(t.Context())) }()
	close(finish)
	require.NoError(t, <-called)
	require.NoError(t, <-slept)
	asleep, _, _ := at.state()
	require.True(t, asleep)
}

func TestAServerThatCannotSleepIsNamedAndOthersAreWoken(t *testing.T) {
	t.Parallel()
	at, plain := newSleepingServer(t), newAdapterServer(t)
	s := connectAdapters(t, learned(), func(o *upstream.Options) {
		o.ShareGPU, o.URLs = true, []string{at.front.URL, plain.URL}
	}, at.adapterServer, plain)
	err := s.Sleep(t.Context())
	require.ErrorContains(t, err, plain.URL+" has no /sleep: start vLLM with --enable-sleep-mode and VLLM_SERVER_DEV_MODE=1")
	asleep, _, _ := at.state()
	require.False(t, asleep)

	alone := connectAdapters(t, learned(), nil, plain)
	require.NoError(t, alone.Sleep(t.Context()), "servers with a GPU of their own are left alone")
	require.NoError(t, alone.Publish(t.Context(), numbered(1)))
}

func TestOneOfSeveralServersDiesAndComesBack(t *testing.T) {
	t.Parallel()
	at, other := newSleepingServer(t), newSleepingServer(t)
	s := connectAdapters(t, learned(), func(o *upstream.Options) { o.URLs = []string{at.front.URL, other.front.URL} }, at.adapterServer, other.adapterServer)
	require.NoError(t, s.Publish(t.Context(), numbered(1)))
	at.dead.Store(true)
	require.ErrorContains(t, s.Publish(t.Context(), numbered(2)), at.front.URL, "no version is published that one of them lacks")

	at.restart() // without any adapter
	at.dead.Store(false)
	require.NoError(t, s.Publish(t.Context(), numbered(2)))
	for _, server := range []*sleepingServer{at, other} {
		order, _ := server.seen()
		require.Contains(t, order, "load "+nameOf(2))
	}
	for first := range int32(40) { // prompts that belong to either
		r := lengthRequest()
		r.Prompt = append([]int32{first % 7}, r.Prompt...)
		_, _, err := s.Sample(t.Context(), numbered(2), r)
		require.NoError(t, err)
	}
	_, asked := at.seen()
	require.Contains(t, asked, nameOf(2), "the one that came back is asked again")
}
