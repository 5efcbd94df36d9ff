package serve_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/serve"
)

// engine answers each request with the version's own number, from its weights.
type engine struct{ open atomic.Int32 }

func (*engine) Name() string                                       { return "echo" }
func (*engine) Fingerprint() string                                { return "echo" }
func (*engine) Deterministic() bool                                { return true }
func (*engine) NewTrainer(model.Checkpoint) (model.Trainer, error) { return nil, errors.ErrUnsupported }
func (*engine) NewCritic(model.Checkpoint) (model.Critic, error)   { return nil, errors.ErrUnsupported }

func (e *engine) NewDecoder(_ model.Architecture, w model.Weights) (model.Decoder, error) {
	e.open.Add(1)
	return &decoder{engine: e, token: int32(w[0].Data[0])}, nil
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

func (s *source) Load(_ context.Context, v model.VersionID) (model.Architecture, model.Weights, string, error) {
	s.loads.Add(1)
	if v.Number == 13 {
		return model.Architecture{}, nil, "", errUnlucky
	}
	return model.Architecture{}, model.Weights{{Data: []float32{float32(v.Number)}}}, "sha256:x", nil
}

// Canary has nothing to say: the engine of these tests can't score.
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

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
