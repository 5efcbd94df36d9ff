package testsuite_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/internal/health"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/sampler/remote"
	"github.com/fulgurite/fulgurite/model/sampler/upstream"
)

// proxyChild is set in the process that makes the calls. Go reads the variables of proxies
// once in a process.
const proxyChild = "FULGURITE_TEST_PROXY_CHILD"

// TestEveryCallObeysTheProxiesOfTheEnvironment has a process call a model server, a sampler
// and a peer's /healthz at hosts that only a proxy can reach.
func TestEveryCallObeysTheProxiesOfTheEnvironment(t *testing.T) {
	if os.Getenv(proxyChild) != "" {
		callThroughProxy(t)
		return
	}
	t.Parallel()
	for exceptions, want := range map[string]bool{"": true, ".invalid": false} {
		var asked sync.Map // hosts
		proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked.Store(r.URL.Host, true)
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{}`)
		}))
		t.Cleanup(proxy.Close)
		child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestEveryCallObeysTheProxiesOfTheEnvironment$")
		for _, v := range os.Environ() {
			if !strings.Contains(strings.ToLower(v), "_proxy=") {
				child.Env = append(child.Env, v)
			}
		}
		child.Env = append(child.Env, proxyChild+"=1", "HTTP_PROXY="+proxy.URL, "NO_PROXY="+exceptions)
		out, err := child.CombinedOutput()
		require.NoError(t, err, string(out))
		for _, host := range []string{"server.invalid:8000", "sampler.invalid:8081", "peer.invalid"} {
			_, was := asked.Load(host)
			require.Equal(t, want, was, host)
		}
	}
}

func callThroughProxy(t *testing.T) {
	during := func(call func(ctx context.Context)) {
		ctx, end := context.WithTimeout(t.Context(), 2*time.Second)
		defer end()
		call(ctx)
	}
	server, err := upstream.New(upstream.Options{Type: upstream.VLLM, Versions: upstream.None, URLs: []string{"http://server.invalid:8000"}, Model: "m", Retry: time.Millisecond})
	require.NoError(t, err)
	request := model.DecodeRequest{Prompt: []int32{1}, MaxTokens: 1}
	during(func(ctx context.Context) { _, _, _ = server.Sample(ctx, model.VersionID{}, request) }) // its reply is none
	sampler := remote.NewClient("http://sampler.invalid:8081", remote.Options{})
	during(func(ctx context.Context) { _, _, _ = sampler.Sample(ctx, model.VersionID{}, request) })
	reply, err := (&http.Client{Transport: health.NewTransport(nil)}).Get("http://peer.invalid/healthz")
	if err == nil {
		_ = reply.Body.Close()
	}
}
