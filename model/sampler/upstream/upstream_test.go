package upstream_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/sampler/upstream"
)

var _ model.Sampler = (*upstream.Sampler)(nil)

func writeVersion(_ context.Context, v model.VersionID, _ string) (string, error) {
	return "sha256:" + v.String(), nil
}

func TestBothServersSampleByTokens(t *testing.T) {
	t.Parallel()
	for kind, versions := range kinds() {
		for _, streamed := range []bool{false, true} {
			at := newServer(t)
			s := connect(t, kind, versions, at)
			r := request()
			var emitted []int32
			var logprobs []float32
			if streamed {
				r.Emit = func(token int32, p float32) { emitted, logprobs = append(emitted, token), append(logprobs, p) }
			}
			got, weights, err := s.Sample(t.Context(), version, r)
			require.NoError(t, err, kind)
			require.Equal(t, upstream.ServerName(at.URL), got.Server)
			got.Server = ""
			require.Empty(t, cmp.Diff(want(), got), kind)
			require.Regexp(t, "^sha256:", weights)
			if streamed {
				require.Equal(t, got.Tokens, emitted)
				require.Equal(t, got.Logprobs, logprobs)
			}
			require.Len(t, at.loads, 1, "loaded once, from the version's directory")
			require.Regexp(t, "^demo-v3(-[0-9a-f]{12})? demo-v3$", at.loads[0])
		}
	}
}

func TestTheSettingsAreThoseThatRecordedLogprobsNeed(t *testing.T) {
	t.Parallel()
	at := newServer(t)
	_, _, err := connect(t, upstream.VLLM, upstream.Adapters, at).Sample(t.Context(), version, request())
	require.NoError(t, err)
	got := at.asked("/v1/completions")[0]
	for name, v := range map[string]any{
		"temperature": 1.0, "top_p": 1.0, "top_k": -1.0, "return_token_ids": true, "add_special_tokens": false,
		"skip_special_tokens": false, "include_stop_str_in_output": true, "logprobs": 0.0, "max_tokens": 8.0, "seed": float64(1 << 62),
	} {
		require.Equal(t, v, got[name], name)
	}
	require.Regexp(t, "^demo-v3-", got["model"])
	at = newServer(t)
	_, _, err = connect(t, upstream.SGLang, upstream.Reload, at).Sample(t.Context(), version, request())
	require.NoError(t, err)
	require.Equal(t, true, at.asked("/generate")[0]["return_logprob"])
	settings := at.asked("/generate")[0]["sampling_params"].(map[string]any)
	for name, v := range map[string]any{"temperature": 1.0, "top_p": 1.0, "top_k": -1.0, "skip_special_tokens": false, "no_stop_trim": true, "max_new_tokens": 8.0} {
		require.Equal(t, v, settings[name], name)
	}
}

func TestAReplyThatCannotBeIsNoCompletion(t *testing.T) {
	t.Parallel()
	completion := func(choice string) string { return `{"choices":[` + choice + `]}` }
	for name, body := range map[string]string{
		"another prompt":    completion(`{"prompt_token_ids":[0,1,2,3],"token_ids":[9],"logprobs":{"token_logprobs":[-1]},"finish_reason":"stop"}`),
		"no ids":            completion(`{"text":"hi","finish_reason":"stop"}`),
		"fewer logprobs":    completion(`{"token_ids":[4,9],"logprobs":{"token_logprobs":[-1]},"finish_reason":"stop"}`),
		"a null logprob":    completion(`{"token_ids":[9],"logprobs":{"token_logprobs":[null]},"finish_reason":"stop"}`),
		"a probability > 1": completion(`{"token_ids":[9],"logprobs":{"token_logprobs":[0.5]},"finish_reason":"stop"}`),
		"no end":            completion(`{"token_ids":[9],"logprobs":{"token_logprobs":[-1]}}`),
		"aborted":           completion(`{"token_ids":[9],"logprobs":{"token_logprobs":[-1]},"finish_reason":"abort"}`),
		"no stop token":     completion(`{"token_ids":[4],"logprobs":{"token_logprobs":[-1]},"finish_reason":"stop"}`),
		"too many tokens":   completion(`{"token_ids":[1,1,1,1,1,1,1,1,9],"logprobs":{"token_logprobs":[-1,-1,-1,-1,-1,-1,-1,-1,-1]},"finish_reason":"stop"}`),
		"a negative id":     completion(`{"token_ids":[-4],"logprobs":{"token_logprobs":[-1]},"finish_reason":"length"}`),
		"nothing":           ``,
		"no JSON":           `<html>`,
	} {
		at := newServer(t)
		at.turn = func(w http.ResponseWriter, r *http.Request, _ map[string]any) bool {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, body)
			return r.URL.Path == "/v1/completions"
		}
		_, _, err := connect(t, upstream.VLLM, upstream.None, at).Sample(t.Context(), version, request())
		require.ErrorIs(t, err, upstream.ErrReply, name)
	}
}

func TestAStreamThatIsNotWholeIsNoCompletion(t *testing.T) {
	t.Parallel()
	const token = `data: {"choices":[{"token_ids":[4],"logprobs":{"token_logprobs":[-1]}}]}` + "\n\n"
	for name, c := range map[string]struct{ kind, body string }{
		"ends early":    {"text/event-stream", token},
		"no JSON":       {"text/event-stream", token + "data: {\n\n"},
		"another type":  {"text/html", "<html>"},
		"without end":   {"text/event-stream", token + "data: [DONE]\n\n"},
		"error inside":  {"text/event-stream", token + `data: {"error":{"message":"out of memory"}}` + "\n\n"},
		"no stop token": {"text/event-stream", `data: {"choices":[{"token_ids":[4],"logprobs":{"token_logprobs":[-1]},"finish_reason":"stop"}]}` + "\n\ndata: [DONE]\n\n"},
	} {
		at := newServer(t)
		at.turn = func(w http.ResponseWriter, _ *http.Request, _ map[string]any) bool {
			w.Header().Set("Content-Type", c.kind)
			fmt.Fprint(w, c.body)
			return true
		}
		r := request()
		r.Emit = func(int32, float32) {}
		_, _, err := connect(t, upstream.VLLM, upstream.None, at).Sample(t.Context(), version, r)
		require.Error(t, err, name)
	}
	at := newServer(t)
	at.turn = func(w http.ResponseWriter, _ *http.Request, _ map[string]any) bool {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, `data: {"meta_info":{"output_token_logprobs":[[-1,4]]}}`+"\n\n"+`data: {"meta_info":{"output_token_logprobs":[[-1,5],[-1,9]],"finish_reason":{"type":"stop"}}}`+"\n\ndata: [DONE]\n\n")
		return true
	}
	r := request()
	r.Emit = func(int32, float32) {}
	_, _, err := connect(t, upstream.SGLang, upstream.None, at).Sample(t.Context(), version, r)
	require.ErrorContains(t, err, "token 0 was 4, is 5")
}

func TestRequestsWaitWhileTheServerLoadsAnotherVersion(t *testing.T) {
	t.Parallel()
	at := newServer(t)
	s := connect(t, upstream.SGLang, upstream.Reload, at)
	sampling, finish := make(chan struct{}, 1), make(chan struct{})
	var held atomic.Bool
	at.during = func() {
		if len(at.asked("/update_weights_from_disk")) == 1 && held.CompareAndSwap(false, true) {
			sampling <- struct{}{}
			<-finish
		}
	}
	first := make(chan error, 1)
	go func() {
		_, _, err := s.Sample(context.WithoutCancel(t.Context()), version, request())
		first <- err
	}()
	<-sampling
	next := version
	next.Number = 4
	second := make(chan error, 1)
	go func() { second <- s.Publish(context.WithoutCancel(t.Context()), next) }()
	require.Len(t, at.asked("/update_weights_from_disk"), 1, "the weights stay while a reply is being sampled")
	close(finish)
	require.NoError(t, <-first)
	require.NoError(t, <-second)
	require.Equal(t, []string{"demo-v3 demo-v3", "demo-v4 demo-v4"}, at.loads)
}

func TestAVersionThatSomebodyElseLoadedIsNoticed(t *testing.T) {
	t.Parallel()
	at := newServer(t)
	s := connect(t, upstream.SGLang, upstream.Reload, at)
	require.NoError(t, s.Publish(t.Context(), version))
	at.mu.Lock()
	at.version = "another"
	at.mu.Unlock()
	_, _, err := s.Sample(t.Context(), version, request())
	require.ErrorIs(t, err, upstream.ErrVersion)
	require.ErrorContains(t, err, "another sampled, not demo-v3")
}

func TestAnAdapterThatIsNotThereIsNamed(t *testing.T) {
	t.Parallel()
	at := newServer(t)
	s := connect(t, upstream.VLLM, upstream.Adapters, at)
	missing := version
	missing.Number = 5
	require.ErrorContains(t, s.Publish(t.Context(), missing), "demo-v5: give model.lora, or have the trainer leave adapter_config.json")
	base := version
	base.Number = 0
	_, _, err := s.Sample(t.Context(), base, request())
	require.NoError(t, err)
	require.Equal(t, "base", at.asked("/v1/completions")[0]["model"])
}

func TestBusyServersAreAskedAgainAndFailedOnesLeftAlone(t *testing.T) {
	t.Parallel()
	at, other := newServer(t), newServer(t)
	var n atomic.Int64
	busy := func(w http.ResponseWriter, _ *http.Request, _ map[string]any) bool {
		if n.Add(1) > 2 {
			return false
		}
		w.Header().Set("Retry-After", "0")
		w.WriteHeader(http.StatusTooManyRequests)
		return true
	}
	at.turn, other.turn = busy, busy
	s := connect(t, upstream.VLLM, upstream.None, at, other)
	_, _, err := s.Sample(t.Context(), version, request())
	require.NoError(t, err)
	require.Contains(t, []int{0, 3}, len(at.asked("/v1/completions")), "one replica was asked three times, the other never")

	home, away := at, other
	if len(at.asked("/v1/completions")) == 0 {
		home, away = other, at
	}
	home.Close()
	_, _, err = s.Sample(t.Context(), version, request())
	require.Error(t, err, "whoever asked asks again")
	_, _, err = s.Sample(t.Context(), version, request())
	require.NoError(t, err)
	require.Len(t, away.asked("/v1/completions"), 1)
	away.Close()
	_, _, err = s.Sample(t.Context(), version, request())
	require.Error(t, err)
	_, _, err = s.Sample(t.Context(), version, request())
	require.ErrorIs(t, err, upstream.ErrAway)
}

// llama.cpp's server closes a connection after some requests, and any server does after
// some time.
func TestAConnectionThatTheServerClosedMeanwhileIsNoFault(t *testing.T) {
	t.Parallel()
	at := newServer(t)
	var n atomic.Int64
	at.turn = func(w http.ResponseWriter, _ *http.Request, _ map[string]any) bool {
		if n.Add(1) != 2 {
			return false
		}
		connection, _, err := http.NewResponseController(w).Hijack()
		if err == nil {
			_ = connection.Close()
		}
		return true
	}
	s := connect(t, upstream.VLLM, upstream.None, at)
	for range 2 {
		_, _, err := s.Sample(t.Context(), version, request())
		require.NoError(t, err)
	}
	require.Equal(t, int64(3), n.Load())
}

func TestADialogStaysWhereItBegan(t *testing.T) {
	t.Parallel()
	servers := []*server{newServer(t), newServer(t), newServer(t)}
	s := connect(t, upstream.VLLM, upstream.None, servers...)
	used := map[int]bool{}
	for dialog := range 32 {
		r := request()
		r.Prompt = nil
		for i := range 70 {
			r.Prompt = append(r.Prompt, int32(dialog*100+i))
		}
		before := counts(servers)
		for range 3 {
			_, _, err := s.Sample(t.Context(), version, r)
			require.NoError(t, err)
			r.Prompt = append(r.Prompt, 7)
		}
		at := -1
		for i, n := range counts(servers) {
			if n > before[i] {
				require.Equal(t, -1, at, "two replicas were asked for one dialog")
				at = i
			}
		}
		used[at] = true
	}
	require.Len(t, used, 3, "dialogs spread over the replicas")
}

func counts(servers []*server) []int {
	out := make([]int, len(servers))
	for i, s := range servers {
		out[i] = len(s.asked("/v1/completions"))
	}
	return out
}

func TestFaultsOfTheRequestDoNotBlameTheServer(t *testing.T) {
	t.Parallel()
	at := newServer(t)
	at.turn = func(w http.ResponseWriter, _ *http.Request, _ map[string]any) bool {
		http.Error(w, `{"message":"This model's maximum context length is 4 tokens"}`, http.StatusBadRequest)
		return true
	}
	s := connect(t, upstream.VLLM, upstream.None, at)
	for range 3 {
		_, _, err := s.Sample(t.Context(), version, request())
		require.ErrorIs(t, err, model.ErrPromptTooLong)
	}
	gone, leave := context.WithCancel(t.Context())
	leave()
	_, _, err := s.Sample(gone, version, request())
	require.ErrorIs(t, err, context.Canceled)
	_, _, err = s.Sample(t.Context(), version, request())
	require.ErrorIs(t, err, model.ErrPromptTooLong, "it is still asked")
}

func TestTokensUnderAFormOfTheServersOwnAreNotTrained(t *testing.T) {
	t.Parallel()
	for kind := range kinds() {
		at := newServer(t)
		s := connect(t, kind, upstream.None, at)
		r := request()
		r.Form = &model.Form{Codec: dialog.CompactName, Schema: []byte(`{"type":"object"}`), Stop: []string{"end"}}
		got, _, err := s.Sample(t.Context(), version, r)
		require.NoError(t, err)
		require.Equal(t, []bool{true, true, true}, got.Forced)
		r.Form = &model.Form{Call: true}
		_, _, err = s.Sample(t.Context(), version, r)
		require.ErrorIs(t, err, model.ErrForm)
	}
}

func TestOnlyKnownServersAreConnected(t *testing.T) {
	t.Parallel()
	for _, o := range []upstream.Options{
		{Type: "another", URLs: []string{"http://a"}, Versions: upstream.None},
		{Type: upstream.OpenAI, URLs: []string{"http://a"}, Versions: upstream.Reload},
		{Type: upstream.VLLM, URLs: []string{"http://a"}, Versions: upstream.Reload},
		{Type: upstream.SGLang, URLs: []string{"http://a"}, Versions: upstream.Adapters},
		{Type: upstream.VLLM, Versions: upstream.None},
	} {
		_, err := upstream.New(o)
		require.Error(t, err)
	}
	failing := errors.New("disk full")
	at := newServer(t)
	s, err := upstream.New(upstream.Options{
		Type: upstream.SGLang, URLs: []string{at.URL}, Versions: upstream.Reload,
		Write: func(context.Context, model.VersionID, string) (string, error) { return "", failing },
	})
	require.NoError(t, err)
	require.ErrorIs(t, s.Publish(t.Context(), version), failing)
}

// FuzzReplies lets a server answer with anything: the result is an error or a completion
// that can be recorded.
func FuzzReplies(f *testing.F) {
	f.Add(`{"choices":[{"token_ids":[4,9],"logprobs":{"token_logprobs":[-1,-1]},"finish_reason":"stop"}]}`, false, true)
	f.Add("data: {\"meta_info\":{\"output_token_logprobs\":[[-1,9]],\"finish_reason\":{\"type\":\"stop\"}}}\n\ndata: [DONE]\n\n", true, false)
	var body string
	var streamed bool
	at := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", map[bool]string{true: "text/event-stream", false: "application/json"}[streamed])
		fmt.Fprint(w, body)
	}))
	f.Cleanup(at.Close)
	samplers := map[bool]*upstream.Sampler{}
	for isVLLM, kind := range map[bool]string{true: upstream.VLLM, false: upstream.SGLang} {
		s, err := upstream.New(upstream.Options{Type: kind, URLs: []string{at.URL}, Versions: upstream.None, Retry: 1})
		require.NoError(f, err)
		samplers[isVLLM] = s
	}
	f.Fuzz(func(t *testing.T, reply string, stream, isVLLM bool) {
		body, streamed = reply, stream
		r := request()
		if stream {
			r.Emit = func(int32, float32) {}
		}
		c, _, err := samplers[isVLLM].Sample(t.Context(), version, r)
		if err != nil {
			return
		}
		require.NotEmpty(t, c.Tokens)
		require.Len(t, c.Logprobs, len(c.Tokens))
		require.Contains(t, []string{"stop", "length"}, c.Finish)
	})
}
