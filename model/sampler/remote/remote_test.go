package remote_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/checkpoint"
	"github.com/fulgurite/fulgurite/model/sampler/remote"
	"github.com/fulgurite/fulgurite/record"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// sampler answers with what a test has set, and keeps the last request.
type sampler struct {
	mu        sync.Mutex
	reply     model.Completion
	err       error
	version   model.VersionID
	request   model.DecodeRequest
	timing    model.Timing
	published []model.VersionID
}

func (s *sampler) Sample(_ context.Context, v model.VersionID, r model.DecodeRequest) (model.Completion, string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version, s.request = v, r
	if r.Timing != nil {
		*r.Timing, s.request.Timing = s.timing, nil
	}
	return s.reply, "sha256:weights", s.err
}

func (s *sampler) Publish(_ context.Context, v model.VersionID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.published = append(s.published, v)
	return s.err
}

// connect returns a client of a server with the given handler.
func connect(t *testing.T, handler http.Handler, o remote.Options) *remote.Client {
	t.Helper()
	server := httptest.NewServer(handler)
	c := remote.NewClient(server.URL, o)
	t.Cleanup(func() {
		c.Close()
		server.Close()
	})
	return c
}

func version() model.VersionID { return model.VersionID{Run: "demo", Policy: "main", Number: 12} }

// float32s generates any finite numbers, drawn by their bits.
func float32s() *rapid.Generator[float32] {
	return rapid.Map(rapid.Uint32(), math.Float32frombits).
		Filter(func(f float32) bool { return !math.IsNaN(float64(f)) && !math.IsInf(float64(f), 0) })
}

func bits(values []float32) []uint32 {
	out := make([]uint32, len(values))
	for i, v := range values {
		out[i] = math.Float32bits(v)
	}
	return out
}

func TestWhatIsSampledArrivesToTheBit(t *testing.T) {
	t.Parallel()
	s := &sampler{}
	c := connect(t, remote.NewServer(s, nil), remote.Options{})
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(1, 40).Draw(rt, "tokens")
		s.reply = model.Completion{
			Tokens:   rapid.SliceOfN(rapid.Int32(), n, n).Draw(rt, "completion"),
			Logprobs: rapid.SliceOfN(float32s(), n, n).Draw(rt, "logprobs"),
			Finish:   "length",
		}
		request := model.DecodeRequest{
			Prompt: rapid.SliceOfN(rapid.Int32(), 1, 9).Draw(rt, "prompt"), MaxTokens: rapid.IntRange(1, 1<<20).Draw(rt, "max"),
			Temperature: rapid.Float64Range(0, 2).Draw(rt, "temperature"), Stop: rapid.SliceOfN(rapid.Int32(), 1, 3).Draw(rt, "stop"),
			Seed: rapid.Uint64().Draw(rt, "seed"),
		}
		got, weights, err := c.Sample(t.Context(), version(), request)
		require.NoError(rt, err)
		require.Equal(rt, "sha256:weights", weights)
		require.Equal(rt, s.reply.Tokens, got.Tokens)
		require.Equal(rt, bits(s.reply.Logprobs), bits(got.Logprobs))
		require.Equal(rt, "length", got.Finish)
		require.Equal(rt, version(), s.version)
		require.Empty(rt, cmp.Diff(request, s.request))
	})
}

func TestTheExtremesOfLogprobsArriveToTheBit(t *testing.T) {
	t.Parallel()
	s := &sampler{}
	c := connect(t, remote.NewServer(s, nil), remote.Options{})
	s.reply.Logprobs = []float32{
		0, float32(math.Copysign(0, -1)), -math.SmallestNonzeroFloat32, -math.MaxFloat32, -1.0 / 3, -0.1, -1e-21, -16777217,
	}
	s.reply.Tokens = make([]int32, len(s.reply.Logprobs))
	got, _, err := c.Sample(t.Context(), version(), model.DecodeRequest{Prompt: []int32{1}})
	require.NoError(t, err)
	require.Equal(t, bits(s.reply.Logprobs), bits(got.Logprobs))

	s.reply.Logprobs[0] = float32(math.Inf(-1))
	_, _, err = c.Sample(t.Context(), version(), model.DecodeRequest{Prompt: []int32{1}})
	require.ErrorContains(t, err, "JSON", "what can't be written is not made up")
}

func TestErrorsKeepTheirMeaning(t *testing.T) {
	t.Parallel()
	other := errors.New("engine is on fire")
	for sentinel, fault := range map[error]bool{
		model.ErrPromptTooLong: false, record.ErrNotFound: false, model.ErrWrongWeights: true, checkpoint.ErrCorrupt: true, other: true,
	} {
		s := &sampler{err: fmt.Errorf("sample demo@12: %w: 7", sentinel)}
		c := connect(t, remote.NewServer(s, nil), remote.Options{})
		_, _, err := c.Sample(t.Context(), version(), model.DecodeRequest{Prompt: []int32{1}})
		require.ErrorContains(t, err, s.err.Error())
		require.Equal(t, !errors.Is(sentinel, other), errors.Is(err, sentinel), "%v", sentinel)
		require.Equal(t, fault, remote.IsFault(err), "%v", sentinel)
		require.ErrorContains(t, c.Publish(t.Context(), version()), sentinel.Error())
	}
	require.False(t, remote.IsFault(nil))
}

func TestPublishReachesTheSampler(t *testing.T) {
	t.Parallel()
	s := &sampler{}
	c := connect(t, remote.NewServer(s, nil), remote.Options{})
	require.NoError(t, c.Publish(t.Context(), version()))
	require.Equal(t, []model.VersionID{version()}, s.published)
}

func TestAReplyWithoutAllPartsIsAFault(t *testing.T) {
	t.Parallel()
	for _, body := range []string{
		``, `{}`, `null`, `{"tokens":[1],"logprobs":[],"weights":"x"}`, `{"tokens":[1],"logprobs":[0]}`, `{"tokens":[],"logprobs":[],"weights":"x"}`,
	} {
		c := connect(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(body)) }), remote.Options{})
		_, _, err := c.Sample(t.Context(), version(), model.DecodeRequest{Prompt: []int32{1}})
		require.Error(t, err, body)
		require.True(t, remote.IsFault(err), body)
	}
}

func TestASettingThatTheSamplerDoesNotKnowIsRefused(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(remote.NewServer(&sampler{}, nil))
	defer server.Close()
	response, err := server.Client().Post(server.URL+"/sample", "application/json", strings.NewReader(`{"prompt":[1],"top_k":3}`))
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	require.Equal(t, http.StatusBadRequest, response.StatusCode)
}

// hung answers only its health checks, and those only until ill is closed.
func hung(ill <-chan struct{}) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/healthz" {
			select {
			case <-ill:
			default:
				return
			}
		}
		_, _ = io.Copy(io.Discard, r.Body) // otherwise the server does not notice that the client left
		<-r.Context().Done()
	})
}

func TestAPeerThatHangsIsNoticed(t *testing.T) {
	t.Parallel()
	ill := make(chan struct{})
	close(ill)
	c := connect(t, hung(ill), remote.Options{Probe: 20 * time.Millisecond, Patience: 100 * time.Millisecond})
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			_, _, err := c.Sample(t.Context(), version(), model.DecodeRequest{Prompt: []int32{1}})
			if !errors.Is(err, remote.ErrUnresponsive) || !remote.IsFault(err) {
				t.Errorf("a request at a peer that hangs ends with %v", err)
			}
		})
	}
	wg.Wait()
	require.ErrorIs(t, c.Publish(t.Context(), version()), remote.ErrUnresponsive, "also the request after")
}

// A peer may take its time, and miss a probe now and then.
func TestASlowPeerIsWaitedFor(t *testing.T) {
	t.Parallel()
	s := &sampler{reply: model.Completion{Tokens: []int32{1}, Logprobs: []float32{0}}}
	inner := remote.NewServer(s, nil)
	probes := make(chan struct{}, 1000)
	var probed atomic.Int32
	c := connect(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path != "/healthz":
			for range 25 { // more than the limit
				select {
				case <-probes:
				case <-t.Context().Done(): // the test has failed; its end waits for this request
				}
			}
		case probed.Add(1)%3 == 0:
			probes <- struct{}{}
			panic(http.ErrAbortHandler)
		default:
			probes <- struct{}{}
		}
		inner.ServeHTTP(w, r)
	}), remote.Options{Probe: 100 * time.Millisecond, Patience: 2 * time.Second}) // this machine may stand still for a while, too
	_, _, err := c.Sample(t.Context(), version(), model.DecodeRequest{Prompt: []int32{1}})
	require.NoError(t, err)
}

func TestLeavingEndsARequest(t *testing.T) {
	t.Parallel()
	c := connect(t, hung(make(chan struct{})), remote.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	go cancel()
	_, _, err := c.Sample(ctx, version(), model.DecodeRequest{Prompt: []int32{1}})
	require.ErrorIs(t, err, context.Canceled)
}

func TestGenerationsAreOnRecordBeforeTheyAreAnswered(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "generations.jsonl")
	s := &sampler{reply: model.Completion{Tokens: []int32{7, 8}, Logprobs: []float32{-1, -2}, Finish: "stop"}}
	log, err := remote.OpenLog(path, s)
	require.NoError(t, err)
	c := connect(t, remote.NewServer(log, nil), remote.Options{})
	for i := range 3 {
		_, _, err := c.Sample(t.Context(), version(), model.DecodeRequest{Prompt: []int32{1, 2, 3}, Seed: 1<<64 - 1})
		require.NoError(t, err)
		require.Len(t, lines(t, path), i+1)
	}
	s.err = errors.New("nothing came of it")
	_, _, err = c.Sample(t.Context(), version(), model.DecodeRequest{Prompt: []int32{1}})
	require.Error(t, err)
	all := lines(t, path)
	require.Len(t, all, 3)
	require.NotEqual(t, all[0].ID, all[1].ID)
	require.False(t, all[0].Started.After(all[0].Finished))
	all[0].ID, all[0].Started, all[0].Finished = "", time.Time{}, time.Time{}
	require.Equal(t, remote.Generation{
		Run: "demo", Policy: "main", Version: 12, Seed: 1<<64 - 1, PromptTokens: []int32{1, 2, 3}, Tokens: []int32{7, 8}, Weights: "sha256:weights",
	}, all[0])

	s.err = nil
	require.NoError(t, log.Close())
	_, _, err = c.Sample(t.Context(), version(), model.DecodeRequest{Prompt: []int32{1}})
	require.ErrorContains(t, err, "log generation", "what is not on record is not answered")
}

func lines(t *testing.T, path string) []remote.Generation {
	t.Helper()
	f, err := os.Open(path)
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	var all []remote.Generation
	for s := bufio.NewScanner(f); s.Scan(); {
		var g remote.Generation
		require.NoError(t, json.Unmarshal(s.Bytes(), &g))
		all = append(all, g)
	}
	return all
}

func TestTheTimesOfARequestArrive(t *testing.T) {
	t.Parallel()
	want := model.Timing{Queued: 1, Prefill: 2, Decode: 3, Shared: 4}
	reply := model.Completion{Tokens: []int32{0}, Logprobs: []float32{0}, Finish: "stop"}
	for _, emit := range []func(int32, float32){nil, func(int32, float32) {}} {
		var served remote.Sampler = &sampler{reply: reply, timing: want}
		if emit != nil {
			served = &speaker{sampler: sampler{reply: reply, timing: want}, says: 1}
		}
		c := connect(t, remote.NewServer(served, nil), remote.Options{})
		var got model.Timing
		_, _, err := c.Sample(t.Context(), version(), model.DecodeRequest{Prompt: []int32{1}, Emit: emit, Timing: &got})
		require.NoError(t, err)
		require.Equal(t, want, got)
		_, _, err = c.Sample(t.Context(), version(), model.DecodeRequest{Prompt: []int32{1}, Emit: emit}) // nobody asks
		require.NoError(t, err)
	}
}
