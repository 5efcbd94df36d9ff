package gateway_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/fulgurite/fulgurite/gateway"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/tokenizer"
	"github.com/fulgurite/fulgurite/prompts"
	"github.com/fulgurite/fulgurite/record"
)

// BenchmarkSampledCall and BenchmarkReplayedCall measure a call through the whole
// gateway, with a store on disk and a sampler that takes no time. They show what
// recording costs, and what answering from the record costs in comparison.
func BenchmarkSampledCall(b *testing.B) { benchmarkCall(b, 0) }

// BenchmarkReplayedCall: see BenchmarkSampledCall.
func BenchmarkReplayedCall(b *testing.B) { benchmarkCall(b, 1) }

func benchmarkCall(b *testing.B, replayedFrom int) {
	// An attempt of this many calls, each another request, then the next rollout.
	const calls = 32
	d := openDatabase(b)
	s := newUnservedEnv(nil, func(c *gateway.Config) { c.Journal = d })
	bodies := make([]string, calls)
	for i := range bodies {
		bodies[i] = ask(fmt.Sprintf("question %d of an attempt of %d", i, calls))
	}
	send := func(g *gateway.Gateway, a record.Address, body string) {
		r := chatRequest(b.Context(), body)
		r.URL.Path = "/r/" + a.String() + "/v1/chat/completions"
		w := httptest.NewRecorder()
		g.ServeHTTP(w, r)
		require.Equal(b, http.StatusOK, w.Code)
	}
	g := gateway.New(s.config)
	var a record.Attempt
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
	got, err := d.Exchanges(b.Context(), a.Address)
	require.NoError(b, err)
	require.Equal(b, replayedFrom, got[0].ReplayedFrom)
}

// BenchmarkServedCall measures a call to a version outside attempts, without a store and
// with a sampler that takes no time: of a run without prompts, and of one whose prompts
// replace 4 KB.
func BenchmarkServedCall(b *testing.B) {
	set := promptSet(b, strings.Repeat("Be brief. ", 400), prefixed("old"))
	for name, v := range map[string]gateway.Versions{"plain": versions{}, "prompts": &promptedVersions{sets: []prompts.Set{set}}} {
		b.Run(name, func(b *testing.B) {
			s := newUnservedEnv(nil, servingPrompts(set), func(c *gateway.Config) { c.Versions = v })
			g := gateway.New(s.config)
			for b.Loop() {
				r := chatRequest(b.Context(), `{"model":"demo@3","messages":[`+message("system", "old rest")+`,`+message("user", "q")+`]}`)
				r.URL.Path = "/v1/chat/completions"
				w := httptest.NewRecorder()
				g.ServeHTTP(w, r)
				require.Equal(b, http.StatusOK, w.Code)
			}
		})
	}
}

// BenchmarkLongDialog measures a call that ends a dialog of 1 to 40 turns of 1 KB, all of
// them on record, without a store. It shows the cost of finding the call that a request
// continues.
func BenchmarkLongDialog(b *testing.B) {
	const turns = 40
	s := newUnservedEnv(nil)
	sample, turn, messages := 0, turns, ""
	g := gateway.New(s.config)
	for b.Loop() {
		if turn == turns {
			b.StopTimer()
			sample, turn, messages = sample+1, 0, ""
			a := s.attempts[address]
			a.Sample = sample
			s.Begin(a)
			b.StartTimer()
		}
		turn++
		messages += fmt.Sprintf(`{"role":"user","content":"%d %s"}`, turn, strings.Repeat("a word ", 146))
		s.replies = append(s.replies, say(fmt.Sprint(turn), tokenizer.End))
		r := chatRequest(b.Context(), `{"messages":[`+messages+`]}`)
		a := address
		a.Sample = sample
		r.URL.Path = "/r/" + a.String() + "/v1/chat/completions"
		w := httptest.NewRecorder()
		g.ServeHTTP(w, r)
		require.Equal(b, http.StatusOK, w.Code)
		messages += fmt.Sprintf(`,{"role":"assistant","content":"%d"},`, turn)
	}
}

// BenchmarkConcurrentCalls measures how much longer than its sampling, of a tenth to
// three tenths of a second, a call takes while 100 attempts make calls at once: the
// median, and what one call in a hundred takes.
func BenchmarkConcurrentCalls(b *testing.B) {
	for _, stream := range []bool{false, true} {
		b.Run(fmt.Sprintf("stream %t", stream), func(b *testing.B) { benchmarkConcurrent(b, stream) })
	}
}

func benchmarkConcurrent(b *testing.B, stream bool) {
	const attempts = 100
	d := openDatabase(b)
	s := newUnservedEnv(nil, func(c *gateway.Config) { c.Journal = d })
	type sampling struct{}
	s.gate = func(ctx context.Context) error {
		<-time.After(ctx.Value(sampling{}).(time.Duration))
		return nil
	}
	g := gateway.New(s.config)
	for sample := range attempts {
		a := s.attempts[address]
		a.Sample = sample
		d.Begin(a)
	}
	var mu sync.Mutex
	var took []time.Duration
	var next atomic.Int64
	b.SetParallelism((attempts + runtime.GOMAXPROCS(0) - 1) / runtime.GOMAXPROCS(0))
	b.RunParallel(func(pb *testing.PB) {
		a := address
		a.Sample = int(next.Add(1)-1) % attempts
		for n := 0; pb.Next(); n++ {
			takes := 100*time.Millisecond + rand.N(200*time.Millisecond)
			r := chatRequest(context.WithValue(b.Context(), sampling{}, takes), fmt.Sprintf(`{"stream":%t,"messages":[{"role":"user","content":"question %d"}]}`, stream, n))
			r.URL.Path = "/r/" + a.String() + "/v1/chat/completions"
			began := time.Now()
			w := httptest.NewRecorder()
			g.ServeHTTP(w, r)
			mu.Lock()
			took = append(took, time.Since(began)-takes)
			mu.Unlock()
			require.Equal(b, http.StatusOK, w.Code)
		}
	})
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
}

// BenchmarkSpans measures trace exports of 512 spans in Protobuf onto a store on disk:
// spans a second that are durable when their exporter is answered.
func BenchmarkSpans(b *testing.B) {
	const each = 512
	d := openDatabase(b)
	s := newUnservedEnv(nil, func(c *gateway.Config) { c.Journal = d })
	a := s.attempts[address]
	d.Begin(a)
	g := gateway.New(s.config)
	export := traceExport("chatcmpl-0123456789abcdef01234567", 1, "")
	scope := export.ResourceSpans[0].ScopeSpans[0]
	one := scope.Spans[0]
	one.Attributes = one.Attributes[:3] // no reward
	n := uint64(0)
	for b.Loop() {
		b.StopTimer()
		scope.Spans = nil
		for range each {
			n++
			next := proto.CloneOf(one)
			next.SpanId = binary.BigEndian.AppendUint64(nil, n)
			scope.Spans = append(scope.Spans, next)
		}
		body, err := proto.Marshal(export)
		require.NoError(b, err)
		r := httptest.NewRequestWithContext(b.Context(), http.MethodPost, "/r/"+address.String()+"/v1/traces", bytes.NewReader(body))
		r.Header.Set("Content-Type", "application/x-protobuf")
		r.Header.Set("Authorization", "Bearer "+key)
		w := httptest.NewRecorder()
		b.StartTimer()
		g.ServeHTTP(w, r)
		require.Equal(b, http.StatusOK, w.Code)
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "spans/s")
}

// BenchmarkConversation measures the first turn of a conversation with a served version over HTTP, with
// a store on disk: not recorded, and recorded.
func BenchmarkConversation(b *testing.B) {
	for _, recording := range []model.Recording{model.RecordNothing, model.RecordAll} {
		b.Run(cmp.Or(string(recording), "none"), func(b *testing.B) {
			d := openDatabase(b)
			_, _, err := d.CreateRun(b.Context(), record.Run{Name: "demo", WorkflowID: "demo", ExecutionID: "x", SpecDigest: "d"})
			require.NoError(b, err)
			v := &trafficVersions{recording: recording}
			v.collected.Store(-1)
			server := httptest.NewServer(gateway.New(gateway.Config{Journal: d, Conversations: d.Store, Versions: v, Sampler: &script{}}))
			defer server.Close()
			took := make([]time.Duration, 0, b.N)
			for i := 0; b.Loop(); i++ {
				began := time.Now()
				body := fmt.Sprintf(`{"model":"demo","messages":[{"role":"user","content":"What is %d?"}]}`, i)
				response, err := http.Post(server.URL+"/v1/chat/completions", "application/json", strings.NewReader(body))
				require.NoError(b, err)
				_, err = io.Copy(io.Discard, response.Body)
				require.NoError(b, errors.Join(err, response.Body.Close()))
				require.Equal(b, http.StatusOK, response.StatusCode)
				took = append(took, time.Since(began))
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
		})
	}
}
