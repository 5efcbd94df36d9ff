package fleet_test

import (
	"context"
	"errors"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/fulgurite/fulgurite/internal/trust"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/sampler/remote"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/workers/fleet"
)

// sampler is behind HTTP and holds a lease. It answers with its own token.
type sampler struct {
	token     int32
	ill       atomic.Bool
	absent    atomic.Bool // it has no version
	requested atomic.Int32
	published atomic.Int32
	arrived   chan struct{} // takes a token for each request, if it is not nil
	goOn      chan struct{} // which then waits until this is closed
	lease     record.Lease
}

var errIll = errors.New("ill")

func (s *sampler) fault() error {
	if s.absent.Load() {
		return record.ErrNotFound
	}
	if s.ill.Load() {
		return errIll
	}
	return nil
}

func (s *sampler) Sample(context.Context, model.VersionID, model.DecodeRequest) (model.Completion, string, error) {
	s.requested.Add(1)
	if s.arrived != nil {
		s.arrived <- struct{}{}
		<-s.goOn
	}
	return model.Completion{Tokens: []int32{s.token}, Logprobs: []float32{0}}, "w", s.fault()
}

func (s *sampler) Publish(context.Context, model.VersionID) error {
	s.published.Add(1)
	return s.fault()
}

func serve(t *testing.T, l *leases, name string, token int32) *sampler {
	t.Helper()
	s := &sampler{token: token}
	server := httptest.NewServer(remote.NewServer(s, nil))
	t.Cleanup(server.Close)
	var err error
	s.lease, err = l.AcquireLease(t.Context(), record.Lease{Role: record.Sampler, Name: name, URL: server.URL}, time.Hour, false)
	require.NoError(t, err)
	return s
}

func newSamplers(t *testing.T, l fleet.Lister) *fleet.Samplers {
	t.Helper()
	all := fleet.NewSamplers(l, trust.Peers{}, zap.NewNop())
	t.Cleanup(all.Close)
	return all
}

func sample(t *testing.T, all *fleet.Samplers) (int32, error) {
	t.Helper()
	c, _, err := all.Sample(t.Context(), model.VersionID{Run: "demo", Policy: "main"}, model.DecodeRequest{Prompt: []int32{1}})
	if err != nil {
		return 0, err
	}
	return c.Tokens[0], nil
}

func TestSamplersTakeTurns(t *testing.T) {
	t.Parallel()
	l := newLeases(t)
	a, b := serve(t, l, "a", 1), serve(t, l, "b", 2)
	all := newSamplers(t, l)
	for range 10 {
		_, err := sample(t, all)
		require.NoError(t, err)
	}
	require.Equal(t, int32(5), a.requested.Load())
	require.Equal(t, int32(5), b.requested.Load())
}

// dialogOf returns a prompt of that many tokens, which begins with those of a shorter
// one.
func dialogOf(number int32, tokens int) []int32 {
	prompt := make([]int32, tokens)
	for i := range prompt {
		prompt[i] = number + int32(i*i)%7
	}
	return prompt
}

func TestADialogStaysWithItsSampler(t *testing.T) {
	t.Parallel()
	l := newLeases(t)
	a, b := serve(t, l, "a", 1), serve(t, l, "b", 2)
	all := newSamplers(t, l)
	turn := func(version, number int32, tokens int) int32 {
		c, _, err := all.Sample(t.Context(), model.VersionID{Run: "demo", Number: int(version)}, model.DecodeRequest{Prompt: dialogOf(number, tokens)})
		require.NoError(t, err)
		return c.Tokens[0]
	}
	var with []int32
	for number := range int32(4) {
		with = append(with, turn(1, number*10, 100))
	}
	require.ElementsMatch(t, []int32{1, 1, 2, 2}, with, "those that begin take turns")
	for tokens := 100; tokens < 130; tokens += 10 {
		for number := range int32(4) {
			require.Equal(t, with[number], turn(1, number*10, tokens))
		}
	}
	require.NotEqual(t, turn(2, 0, 130), turn(3, 0, 130), "other versions have computed nothing of it")

	// One that fails loses its dialogs to the other.
	a.ill.Store(true)
	for number := range int32(4) {
		eventually(t, func() bool {
			c, _, err := all.Sample(t.Context(), model.VersionID{Run: "demo", Number: 1}, model.DecodeRequest{Prompt: dialogOf(number*10, 140)})
			require.True(t, err == nil || remote.IsFault(err))
			return err == nil && c.Tokens[0] == b.token
		}, "the other one answers")
	}
}

// A group that is too large for one sampler is spread.
func TestABusySamplerSharesItsGroup(t *testing.T) {
	t.Parallel()
	l := newLeases(t)
	a, b := serve(t, l, "a", 1), serve(t, l, "b", 2)
	a.arrived, a.goOn = make(chan struct{}), make(chan struct{})
	b.arrived, b.goOn = a.arrived, a.goOn
	all := newSamplers(t, l)
	var done sync.WaitGroup
	for range 40 {
		done.Go(func() {
			_, _, err := all.Sample(t.Context(), model.VersionID{Run: "demo"}, model.DecodeRequest{Prompt: dialogOf(1, 100)})
			if err != nil {
				t.Error(err)
			}
		})
		<-a.arrived
	}
	most, least := max(a.requested.Load(), b.requested.Load()), min(a.requested.Load(), b.requested.Load())
	require.GreaterOrEqual(t, most, int32(9), "the group began at one of them")
	require.LessOrEqual(t, most, 2*least+9)
	close(a.goOn)
	done.Wait()
}

func TestASamplerThatFailedIsLeftAloneUntilItComesBack(t *testing.T) {
	t.Parallel()
	l := newLeases(t)
	a, b := serve(t, l, "a", 1), serve(t, l, "b", 2)
	all := newSamplers(t, l)
	a.ill.Store(true)
	failures := 0
	for range 10 {
		if _, err := sample(t, all); err != nil {
			require.True(t, remote.IsFault(err))
			failures++
		}
	}
	require.Equal(t, 1, failures)
	require.Equal(t, int32(9), b.requested.Load())

	// If it is the only one, it is asked although it failed.
	require.NoError(t, l.ReleaseLease(t.Context(), b.lease))
	a.ill.Store(false)
	eventually(t, func() bool {
		token, err := sample(t, all)
		return err == nil && token == 1
	}, "a sampler that recovered answers")
}

func TestAQuestionWithoutAnAnswerIsNoFailureOfTheSampler(t *testing.T) {
	t.Parallel()
	l := newLeases(t)
	a := serve(t, l, "a", 1)
	serve(t, l, "b", 2)
	all := newSamplers(t, l)
	a.absent.Store(true)
	for range 10 {
		if _, err := sample(t, all); err != nil {
			require.ErrorIs(t, err, record.ErrNotFound)
		}
	}
	require.Equal(t, int32(5), a.requested.Load())
}

func TestAVersionIsPublishedAtEverySampler(t *testing.T) {
	t.Parallel()
	l := newLeases(t)
	all := newSamplers(t, l)
	v := model.VersionID{Run: "demo", Policy: "main", Number: 3}
	require.ErrorIs(t, all.Publish(t.Context(), v), fleet.ErrNoSampler)
	_, err := sample(t, all)
	require.ErrorIs(t, err, fleet.ErrNoSampler)

	a, b := serve(t, l, "a", 1), serve(t, l, "b", 2)
	require.NoError(t, all.Publish(t.Context(), v))
	require.Equal(t, []int32{1, 1}, []int32{a.published.Load(), b.published.Load()})
	b.absent.Store(true)
	require.ErrorIs(t, all.Publish(t.Context(), v), record.ErrNotFound, "every sampler would say so")
}

// One sampler that nobody can reach stops no run.
func TestASamplerThatCanNotBeReachedIsLeftOut(t *testing.T) {
	t.Parallel()
	l := newLeases(t)
	a := serve(t, l, "a", 1)
	gone := httptest.NewServer(nil)
	gone.Close()
	_, err := l.AcquireLease(t.Context(), record.Lease{Role: record.Sampler, Name: "lost", URL: gone.URL}, time.Hour, false)
	require.NoError(t, err)
	watched, logs := observer.New(zap.WarnLevel)
	all := fleet.NewSamplers(l, trust.Peers{}, zap.New(watched))
	t.Cleanup(all.Close)
	v := model.VersionID{Run: "demo", Policy: "main", Number: 3}
	require.NoError(t, all.Publish(t.Context(), v))
	require.Equal(t, int32(1), a.published.Load())
	require.Len(t, logs.All(), 1)
	require.Contains(t, logs.All()[0].ContextMap()["error"], "sampler lost at "+gone.URL)
	for range 5 {
		token, err := sample(t, all)
		require.NoError(t, err, "it gets no calls")
		require.Equal(t, int32(1), token)
	}
	a.ill.Store(true)
	err = all.Publish(t.Context(), v)
	require.ErrorContains(t, err, "sampler a at ")
	require.ErrorContains(t, err, "sampler lost at ")
}

func TestASamplerAtAKnownURLNeedsNoLease(t *testing.T) {
	t.Parallel()
	l := newLeases(t)
	a := serve(t, l, "a", 7)
	token, err := sample(t, newSamplers(t, fleet.Fixed(a.lease.URL)))
	require.NoError(t, err)
	require.Equal(t, int32(7), token)
}
