package upstream_test

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/sampler/upstream"
)

func numbered(n int) model.VersionID {
	v := version
	v.Number = n
	return v
}

// learned returns versions that move further from the base with each step.
func learned() adapters {
	return adapters{rank: 8, moves: map[int]float64{0: 0, 1: 0.05, 2: 0.1, 3: 0.2, 4: 0.3}}
}

func lengthRequest() model.DecodeRequest {
	r := request()
	r.MaxTokens, r.Stop = 4, nil
	return r
}

func TestAVersionIsLoadedEverywhereUnderANameWithItsDigest(t *testing.T) {
	t.Parallel()
	at, other := newAdapterServer(t), newAdapterServer(t)
	at.noise = 0.02
	s := connectAdapters(t, learned(), nil, at, other)
	for n := range 3 {
		require.NoError(t, s.Publish(t.Context(), numbered(n)))
		for _, server := range []*adapterServer{at, other} {
			order, _ := server.seen()
			require.Contains(t, order, "load "+nameOf(n), "before anybody samples from it")
		}
		_, weights, err := s.Sample(t.Context(), numbered(n), lengthRequest())
		require.NoError(t, err)
		require.Equal(t, digestOf(numbered(n)), weights)
	}
}

func TestAdaptersBehindTheLagAreUnloadedAndLoadedAgainForWhoAsks(t *testing.T) {
	t.Parallel()
	for lag, left := range []int{0: 3, 1: 2} {
		at := newAdapterServer(t)
		directory := t.TempDir()
		s := connectAdapters(t, learned(), func(o *upstream.Options) { o.Lag, o.Directory = lag, directory }, at)
		for n := range 4 {
			require.NoError(t, s.Publish(t.Context(), numbered(n)))
		}
		files, err := os.ReadDir(directory)
		require.NoError(t, err)
		require.Len(t, files, lag+1)
		require.Equal(t, nameOf(left), files[0].Name())
		order, _ := at.seen()
		require.Contains(t, order, "unload "+nameOf(left-1))
		require.NotContains(t, order, "unload "+nameOf(left))

		_, _, err = s.Sample(t.Context(), numbered(0), lengthRequest())
		require.NoError(t, err, "the report of an older version")
	}
}

func TestAnAdapterIsOnlyBehindOneOfItsOwnPolicy(t *testing.T) {
	t.Parallel()
	at := newAdapterServer(t)
	s := connectAdapters(t, learned(), func(o *upstream.Options) { o.Policies = 2 }, at)
	writer := func(n int) model.VersionID { return model.VersionID{Run: "demo", Policy: "writer", Number: n} }
	named := func(n int) string { return strings.Replace(nameOf(n), "demo-", "demo+writer-", 1) }
	similar := numbered(1)
	similar.Run = "demo-writer" // of another run, which trains one policy
	for _, v := range []model.VersionID{writer(1), similar, numbered(1), writer(2)} {
		require.NoError(t, s.Publish(t.Context(), v))
	}
	order, _ := at.seen()
	require.Equal(t, []string{
		"load " + named(1), "load " + strings.Replace(nameOf(1), "demo-", "demo-writer-", 1), "load " + nameOf(1), "load " + named(2), "unload " + named(1),
	}, order)
}

// Another process, which has its own sampler, unloads what this sampler believes to be
// loaded.
func TestAdaptersThatAServerLostAreLoadedAgain(t *testing.T) {
	t.Parallel()
	at := newAdapterServer(t)
	s := connectAdapters(t, learned(), nil, at)
	require.NoError(t, s.Publish(t.Context(), numbered(2)))
	at.restart()
	_, _, err := s.Sample(t.Context(), numbered(2), lengthRequest())
	require.NoError(t, err)
	order, asked := at.seen()
	require.Equal(t, []string{"load " + nameOf(2)}, order)
	require.Equal(t, nameOf(2), asked[len(asked)-1])
	require.Equal(t, 1, at.unknown)
}

func TestAServerThatFailedIsAdmittedAnew(t *testing.T) {
	t.Parallel()
	at := newAdapterServer(t)
	s := connectAdapters(t, learned(), nil, at)
	require.NoError(t, s.Publish(t.Context(), numbered(1)))
	var broken atomic.Bool
	broken.Store(true)
	at.Config.Handler = func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if broken.Load() {
				w.WriteHeader(http.StatusInternalServerError)
				return
			}
			next.ServeHTTP(w, r)
		})
	}(at.Config.Handler)
	_, _, err := s.Sample(t.Context(), numbered(1), lengthRequest())
	require.ErrorContains(t, err, "500")
	at.restart()
	broken.Store(false)
	require.Eventually(t, func() bool {
		_, _, err = s.Sample(t.Context(), numbered(1), lengthRequest())
		return err == nil
	}, 10*time.Second, time.Millisecond)
	require.Zero(t, at.unknown, "it was not asked for an adapter that it had not loaded")
}

func TestCallsGoOnWhileAnotherAdapterIsLoaded(t *testing.T) {
	t.Parallel()
	at := newAdapterServer(t)
	s := connectAdapters(t, learned(), nil, at)
	require.NoError(t, s.Publish(t.Context(), numbered(1)))
	sampling, finish := make(chan struct{}), make(chan struct{})
	at.mu.Lock()
	at.during = func() {
		at.mu.Lock()
		at.during = nil
		at.mu.Unlock()
		close(sampling)
		<-finish
	}
	at.mu.Unlock()
	first := make(chan error, 1)
	go func() {
		_, _, err := s.Sample(context.WithoutCancel(t.Context()), numbered(1), lengthRequest())
		first <- err
	}()
	<-sampling
	require.NoError(t, s.Publish(t.Context(), numbered(2)), "it waits for nobody")
	_, _, err := s.Sample(t.Context(), numbered(2), lengthRequest())
	require.NoError(t, err)
	close(finish)
	require.NoError(t, <-first)
}

func TestAWrongAdapterIsNotAdmitted(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spoil func(*adapterServer, *adapters)
		says  string
	}{
		"left out":          {func(s *adapterServer, _ *adapters) { s.ignores = true }, "does 0 % of what it does at the trainer"},
		"that of long ago":  {func(_ *adapterServer, a *adapters) { a.files = map[int]float64{3: 0.05} }, "does 25 % of what it does at the trainer"},
		"turned round":      {func(_ *adapterServer, a *adapters) { a.files = map[int]float64{3: -0.2} }, "does -100 % of what"},
		"damaged":           {func(_ *adapterServer, a *adapters) { a.files = map[int]float64{3: 2} }, "the adapter's files are damaged, or those of another"},
		"over another base": {func(s *adapterServer, _ *adapters) { s.noise = 0.5 }, `its log-probabilities of "base" are 0.4`},
		"with a small effect": {func(s *adapterServer, a *adapters) {
			s.ignores, a.moves, s.noise = true, map[int]float64{3: 0.022}, 0.02
		}, "does 0 % of what"},
		"with a raised sample": {func(s *adapterServer, _ *adapters) { s.raise = 0.5 }, "the tokens that it samples have log-probabilities 0.5"},
		"with a penalty":       {func(s *adapterServer, _ *adapters) { s.penalty = true }, "changes or drops settings such as repetition_penalty"},
		"with mute prompts":    {func(s *adapterServer, _ *adapters) { s.unnamed = true }, "does not say the ids of its prompt (return_token_ids)"},
	} {
		at, a := newAdapterServer(t), learned()
		at.noise = 0.02
		c.spoil(at, &a)
		s := connectAdapters(t, a, nil, at)
		require.ErrorContains(t, s.Publish(t.Context(), numbered(3)), c.says, name)
		_, _, err := s.Sample(t.Context(), numbered(3), lengthRequest())
		require.ErrorContains(t, err, c.says, name)
	}
}

func TestAWrongAdapterIsUnloadedSoThatAMendedOneIsLoaded(t *testing.T) {
	t.Parallel()
	at, a := newAdapterServer(t), learned()
	a.files = map[int]float64{3: -0.2}
	s := connectAdapters(t, a, nil, at)
	require.ErrorIs(t, s.Publish(t.Context(), numbered(3)), model.ErrWrongWeights)
	delete(a.files, 3)
	require.NoError(t, s.Publish(t.Context(), numbered(3)))
	order, _ := at.seen()
	require.Equal(t, []string{"load " + nameOf(3), "unload " + nameOf(3), "load " + nameOf(3)}, order)

	_, _, err := s.Sample(t.Context(), numbered(3), lengthRequest())
	require.NoError(t, err)
	at.mu.Lock()
	defer at.mu.Unlock()
	checks := at.salts[:len(at.salts)-1]
	require.NotContains(t, checks, "", "nothing that the wrong one made of a prompt is cached for those who sample")
	require.Len(t, slices.Compact(slices.Sorted(slices.Values(checks))), len(checks))
	require.Empty(t, at.salts[len(checks)], "replies share what is cached")
}

// The power of a canary is documented; an adapter with less effect is admitted by its
// name.
func TestWhatIsBelowTheServersNoiseIsAdmitted(t *testing.T) {
	t.Parallel()
	at, a := newAdapterServer(t), learned()
	at.noise, at.ignores = 0.02, true
	a.moves = map[int]float64{3: 0.002}
	require.NoError(t, connectAdapters(t, a, nil, at).Publish(t.Context(), numbered(3)))
}

func TestAServerThatCannotLoadAnAdapterIsToldWhatItNeeds(t *testing.T) {
	t.Parallel()
	for says, spoil := range map[string]func(*adapterServer, *adapters, *upstream.Options){
		"start it with --max-lora-rank 64":                                    func(_ *adapterServer, a *adapters, _ *upstream.Options) { a.rank = 33 },
		"start vLLM with --enable-lora and VLLM_ALLOW_RUNTIME_LORA_UPDATING=": func(s *adapterServer, _ *adapters, _ *upstream.Options) { s.disabled, s.status = "Not Found", 404 },
		"start it with --enable-lora": func(s *adapterServer, _ *adapters, _ *upstream.Options) {
			s.disabled, s.status = "LoRA is not enabled.", 500
		},
		"samples from 1 adapters at once, and with training.lag 2 it has to":               func(s *adapterServer, _ *adapters, o *upstream.Options) { s.slots, o.Lag = 1, 2 },
		"with training.lag 1 and 2 policies it has to from 4: start it with --max-loras 4": func(s *adapterServer, _ *adapters, o *upstream.Options) { s.slots, o.Lag, o.Policies = 3, 1, 2 },
		"start it with --max-loras 3":                                      func(s *adapterServer, _ *adapters, o *upstream.Options) { s.slots, o.Lag = 2, 2 },
		"(--api-server-count 1), and give each data-parallel server a URL": func(s *adapterServer, _ *adapters, _ *upstream.Options) {},
		"sampling.server.directory has to be the same directory, under the sam": func(s *adapterServer, _ *adapters, _ *upstream.Options) {
			s.disabled, s.status = "No adapter found for x", 404
		},
		"are cut off or damaged where it reads them": func(s *adapterServer, _ *adapters, _ *upstream.Options) {
			s.disabled, s.status = "Call to add_lora method failed: Worker failed with error 'Error while deserializing header: invalid header length'", 500
		},
	} {
		at, a := newAdapterServer(t), learned()
		s := connectAdapters(t, a, func(o *upstream.Options) {
			spoil(at, &a, o)
			o.Adapter = a.find
		}, at)
		err := s.Publish(t.Context(), numbered(1))
		if err == nil { // data-parallel: only the process that loaded an adapter knows it
			at.mu.Lock()
			at.forgets = true
			at.mu.Unlock()
			a.moves = nil
			_, _, err = s.Sample(t.Context(), numbered(1), lengthRequest())
		}
		require.ErrorContains(t, err, says)
	}
}

func TestAnExternalTrainersAdapterIsNamedByItsDigestToo(t *testing.T) {
	t.Parallel()
	at := newAdapterServer(t)
	directory := t.TempDir()
	s := connectAdapters(t, adapters{}, func(o *upstream.Options) { o.Adapter, o.Directory = nil, directory }, at)
	require.NoError(t, os.Mkdir(filepath.Join(directory, "demo-v3"), 0o755))
	for name, text := range map[string]string{"adapter_config.json": "{}", "adapter_model.safetensors": "8 0.5"} {
		require.NoError(t, os.WriteFile(filepath.Join(directory, "demo-v3", name), []byte(text), 0o600))
	}
	require.NoError(t, s.Publish(t.Context(), numbered(3)))
	order, _ := at.seen()
	require.Len(t, order, 1)
	require.Regexp(t, "^load demo-v3-[0-9a-f]{12}$", order[0])
	require.NoError(t, s.Publish(t.Context(), numbered(0)), "the model itself")
	require.DirExists(t, filepath.Join(directory, "demo-v3"), "it is the trainer's to remove")
}
