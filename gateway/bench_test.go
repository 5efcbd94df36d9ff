package gateway_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/gateway"
	"github.com/fulgurite/fulgurite/trace"
)

// BenchmarkSampledCall and BenchmarkReplayedCall measure a call through the whole
// gateway onto a store on disk, with a sampler that takes no time: what recording
// costs, and what answering from the record costs beside it.
func BenchmarkSampledCall(b *testing.B) { benchmarkCall(b, 0) }

// BenchmarkReplayedCall: see BenchmarkSampledCall.
func BenchmarkReplayedCall(b *testing.B) { benchmarkCall(b, 1) }

func benchmarkCall(b *testing.B, replayedFrom int) {
	// An attempt of this many calls, each another request, then the next rollout.
	const calls = 32
	d := openDatabase(b)
	s := newScene(nil, func(c *gateway.Config) { c.Journal = d })
	bodies := make([]string, calls)
	for i := range bodies {
		bodies[i] = ask(fmt.Sprintf("question %d of an attempt of %d", i, calls))
	}
	send := func(g *gateway.Gateway, a trace.Address, body string) {
		r := chatRequest(b.Context(), body)
		r.URL.Path = "/r/" + a.String() + "/v1/chat/completions"
		w := httptest.NewRecorder()
		g.ServeHTTP(w, r)
		require.Equal(b, http.StatusOK, w.Code)
	}
	g := gateway.New(s.config)
	var a trace.Attempt
	sample, call := 0, calls
	for b.Loop() {
		if call == calls {
			b.StopTimer()
			a = s.attempts[address]
			a.Sample = sample
			d.Begin(a)
			if replayedFrom > 0 {
				for _, body := range bodies {
					send(g, a.Address, body)
				}
				a.Address.Attempt = 2
				d.Begin(a)
			}
			sample, call = sample+1, 0
			b.StartTimer()
		}
		send(g, a.Address, bodies[call])
		call++
	}
	b.StopTimer()
	got, err := d.Calls(b.Context(), a.Address)
	require.NoError(b, err)
	require.Equal(b, replayedFrom, got[0].ReplayedFrom)
}
