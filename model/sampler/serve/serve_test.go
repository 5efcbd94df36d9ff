package serve_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/sampler/serve"
)

// engine answers each request with the version's own number, from its weights.
type engine struct{ open atomic.Int32 }

func (*engine) Name() string                                       { return "echo" }
func (*engine) Fingerprint() string                                { return "echo" }
func (*engine) Deterministic() bool                                { return true }
func (*engine) NewTrainer(model.Checkpoint) (model.Trainer, error) { return nil, errors.ErrUnsupported }
func (*engine) NewCritic(model.Checkpoint) (model.Critic, error)   { return nil, errors.ErrUnsupported }

func (e *engine) NewDecoder(c model.Checkpoint) (model.Decoder, error) {
	e.open.Add(1)
	return &decoder{engine: e, token: int32(c.Weights[0].Data[0])}, nil
}

type decoder struct {
	engine *engine
	token  int32
	once   sync.Once
}

func (d *decoder) Decode(context.Context, model.DecodeRequest) (model.Completion, error) {
	return model.Completion{Tokens: []int32{d.token}, Logprobs: []float32{0}, Finish: "stop"}, nil
}

func (d *decoder) Close() { d.once.Do(func() { d.engine.open.Add(-1) }) }

// source counts loads and fails for version 13.
type source struct{ loads atomic.Int32 }

var errUnlucky = errors.New("unlucky")

func (s *source) Load(_ context.Context, v model.VersionID) (model.Checkpoint, string, error) {
	s.loads.Add(1)
	if v.Number == 13 {
		return model.Checkpoint{}, "", errUnlucky
	}
	return model.Checkpoint{Weights: model.Weights{{Data: []float32{float32(v.Number)}}}}, "sha256:x", nil
}

// Canary returns none, because the engine of these tests can't score.
func (*source) Canary(context.Context, model.VersionID) (*model.Canary, error) { return nil, nil }

func version(n int) model.VersionID { return model.VersionID{Run: "r", Policy: "main", Number: n} }

func TestEachRequestIsAnsweredByTheVersionItNames(t *testing.T) {
	t.Parallel()
	e, src := &engine{}, &source{}
	s := serve.New(e, src, 2)
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			c, _, err := s.Sample(t.Context(), version(i%5), model.DecodeRequest{})
			if err != nil || c.Tokens[0] != int32(i%5) {
				t.Errorf("version %d answered %v, %v", i%5, c.Tokens, err)
			}
		})
	}
	wg.Wait()
	require.LessOrEqual(t, e.open.Load(), int32(2), "versions beyond the limit are closed")
	s.Close()
	require.Zero(t, e.open.Load())
	_, _, err := s.Sample(t.Context(), version(1), model.DecodeRequest{})
	require.ErrorIs(t, err, serve.ErrClosed)
}

func TestResidentVersionsAreLoadedOnce(t *testing.T) {
	t.Parallel()
	src := &source{}
	s := serve.New(&engine{}, src, 2)
	defer s.Close()
	require.NoError(t, s.Publish(t.Context(), version(1)))
	for range 10 {
		_, digest, err := s.Sample(t.Context(), version(1), model.DecodeRequest{})
		require.NoError(t, err)
		require.Equal(t, "sha256:x", digest)
	}
	require.Equal(t, int32(1), src.loads.Load())
}

func TestPoliciesWithOneNumberCountAsOneResidentVersion(t *testing.T) {
	t.Parallel()
	src := &source{}
	s := serve.New(&engine{}, src, 2)
	defer s.Close()
	policy := func(name string, number int) model.VersionID {
		return model.VersionID{Run: "r", Policy: name, Number: number}
	}
	names := []string{"checker", "judge", "writer"}
	for range 2 {
		for number := range 2 {
			for _, name := range names {
				require.NoError(t, s.Publish(t.Context(), policy(name, number)))
			}
		}
	}
	require.Equal(t, int32(6), src.loads.Load(), "none was loaded twice")
	require.NoError(t, s.Publish(t.Context(), policy("writer", 2)))
	require.Equal(t, []model.VersionID{policy("writer", 2), policy("writer", 1), policy("judge", 1), policy("checker", 1)}, s.Loaded())
}

func TestAFailedLoadIsReportedAndTriedAgain(t *testing.T) {
	t.Parallel()
	src := &source{}
	s := serve.New(&engine{}, src, 2)
	defer s.Close()
	for range 2 {
		_, _, err := s.Sample(t.Context(), version(13), model.DecodeRequest{})
		require.ErrorIs(t, err, errUnlucky)
		require.ErrorContains(t, err, "r@13")
	}
	require.Equal(t, int32(2), src.loads.Load())
}

// slow is a source whose loads take until they are broken off. After that it must
// not be asked any more.
type slow struct {
	source
	loading chan struct{}
	closed  atomic.Bool
	late    atomic.Bool
}

func (s *slow) Load(ctx context.Context, v model.VersionID) (model.Checkpoint, string, error) {
	s.loading <- struct{}{}
	<-ctx.Done()
	s.late.Store(s.closed.Load())
	return model.Checkpoint{}, "", ctx.Err()
}

// lossy loses the decoder of a version once, at the second request for it.
type lossy struct {
	*decoder
	requests *atomic.Int32
}

func (d lossy) Decode(ctx context.Context, r model.DecodeRequest) (model.Completion, error) {
	if d.requests.Add(1) == 2 {
		return model.Completion{}, fmt.Errorf("decode: %w", model.ErrEngineLost)
	}
	return d.decoder.Decode(ctx, r)
}

type lossyEngine struct {
	*engine
	requests atomic.Int32
}

func (e *lossyEngine) NewDecoder(c model.Checkpoint) (model.Decoder, error) {
	d, err := e.engine.NewDecoder(c)
	return lossy{d.(*decoder), &e.requests}, err
}

func TestAVersionWhoseDecoderWasLostIsLoadedAgain(t *testing.T) {
	t.Parallel()
	e, src := &lossyEngine{engine: &engine{}}, &source{}
	s := serve.New(e, src, 2)
	t.Cleanup(s.Close)
	for i, want := range []error{nil, model.ErrEngineLost, nil, nil} {
		_, _, err := s.Sample(t.Context(), version(1), model.DecodeRequest{})
		require.ErrorIs(t, err, want, "request %d", i)
	}
	require.Equal(t, int32(2), src.loads.Load())
	require.Equal(t, int32(1), e.open.Load(), "the one that was lost is closed")
}

func TestCloseBreaksOffLoadsAndWaitsForThem(t *testing.T) {
	t.Parallel()
	src := &slow{loading: make(chan struct{}, 2)}
	s := serve.New(&engine{}, src, 1)
	asked := make(chan error, 2)
	for i := range 2 { // the second one evicts the first
		go func() { asked <- s.Publish(t.Context(), version(i)) }()
		<-src.loading
	}
	s.Close()
	src.closed.Store(true) // its store is closed next
	for range 2 {
		require.ErrorIs(t, <-asked, serve.ErrClosed)
	}
	require.False(t, src.late.Load(), "the source was in use after Close")
	require.ErrorIs(t, s.Publish(t.Context(), version(1)), serve.ErrClosed)
}

func TestALoadThatNobodyWaitsForEndsWithTheSampler(t *testing.T) {
	t.Parallel()
	src := &slow{loading: make(chan struct{}, 1)}
	s := serve.New(&engine{}, src, 1)
	ctx, cancel := context.WithCancel(t.Context())
	asked := make(chan error, 1)
	go func() { asked <- s.Publish(ctx, version(1)) }()
	<-src.loading
	cancel()
	require.ErrorIs(t, <-asked, context.Canceled)
	s.Close()
	src.closed.Store(true)
	require.False(t, src.late.Load())
}

// large is a source of versions of 200 MB, for which this test allocates nothing.
type large struct{ source }

func (l *large) Load(ctx context.Context, v model.VersionID) (model.Checkpoint, string, error) {
	c, digest, err := l.source.Load(ctx, v)
	c.Weights[0].Shape = []int{50_000, 1_000}
	return c, digest, err
}

func TestLargeVersionsThatNobodyAsksForMakeRoom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e, src := &engine{}, &large{}
		s := serve.New(e, src, 4)
		defer s.Close()
		for i := range 3 { // all asked for within seconds: rollouts and evaluations of three versions
			require.NoError(t, s.Publish(t.Context(), version(i)))
			time.Sleep(time.Second)
		}
		require.Equal(t, int32(3), e.open.Load())
		time.Sleep(time.Minute)
		require.NoError(t, s.Publish(t.Context(), version(2)))
		require.Equal(t, int32(1), e.open.Load(), "the newest is in use, the others are idle")
		require.NoError(t, s.Publish(t.Context(), version(0)))
		require.Equal(t, int32(4), src.loads.Load(), "what is asked for again is loaded again")
		require.Equal(t, int32(2), e.open.Load())
	})
}

func TestSmallVersionsStayHoweverLongNobodyAsks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e, src := &engine{}, &source{}
		s := serve.New(e, src, 4)
		defer s.Close()
		for i := range 4 {
			require.NoError(t, s.Publish(t.Context(), version(i)))
			time.Sleep(time.Hour)
		}
		require.NoError(t, s.Publish(t.Context(), version(0)))
		require.Equal(t, int32(4), src.loads.Load())
	})
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// busy is an engine whose decoders answer nothing until they are closed.
type busy struct {
	engine
	decoding chan struct{}
}

type busyDecoder struct {
	model.Decoder
	engine *busy
	closed chan struct{}
	once   sync.Once
}

var errDecoderClosed = errors.New("decoder closed")

func (b *busy) NewDecoder(c model.Checkpoint) (model.Decoder, error) {
	d, err := b.engine.NewDecoder(c)
	return &busyDecoder{Decoder: d, engine: b, closed: make(chan struct{})}, err
}

func (d *busyDecoder) Decode(context.Context, model.DecodeRequest) (model.Completion, error) {
	d.engine.decoding <- struct{}{}
	<-d.closed
	return model.Completion{}, errDecoderClosed
}

func (d *busyDecoder) Close() {
	d.Decoder.Close()
	d.once.Do(func() { close(d.closed) })
}

func TestCloseEndsRequestsUnderWay(t *testing.T) {
	t.Parallel()
	e := &busy{decoding: make(chan struct{}, 2)}
	s := serve.New(e, &source{}, 1)
	asked := make(chan error, 2)
	for i := range 2 { // the second one evicts the first, which goes on
		go func() {
			_, _, err := s.Sample(t.Context(), version(i), model.DecodeRequest{})
			asked <- err
		}()
		<-e.decoding
	}
	s.Close()
	for range 2 {
		require.ErrorIs(t, <-asked, errDecoderClosed)
	}
	require.Zero(t, e.open.Load())
}
