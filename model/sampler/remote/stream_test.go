package remote_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/sampler/remote"
)

// speaker is a sampler that emits some tokens before it answers.
type speaker struct {
	sampler
	says        int
	beforeToken func()
	spoke       func() // after that
}

func (s *speaker) Sample(ctx context.Context, v model.VersionID, r model.DecodeRequest) (model.Completion, string, error) {
	for i := range s.says {
		if s.beforeToken != nil {
			s.beforeToken()
		}
		r.Emit(int32(i), -float32(i)/3)
	}
	if s.spoke != nil {
		s.spoke()
	}
	return s.sampler.Sample(ctx, v, r)
}

func listen(t *testing.T, h http.Handler, o remote.Options) (received []int32, err error) {
	t.Helper()
	_, _, err = connect(t, h, o).Sample(t.Context(), version(), model.DecodeRequest{
		Prompt: []int32{1}, Emit: func(token int32, _ float32) { received = append(received, token) },
	})
	return received, err
}

func TestARequestWithoutNewFieldsIsTheSameBytes(t *testing.T) {
	t.Parallel()
	var body []byte
	c := connect(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/sample" {
			body, _ = io.ReadAll(r.Body)
		}
		_, _ = w.Write([]byte(`{"tokens":[8],"logprobs":[-0.5],"finish":"stop","weights":"w"}`))
	}), remote.Options{})
	r := model.DecodeRequest{Prompt: []int32{3, 17}, MaxTokens: 24, Temperature: 1, Stop: []int32{2}, Seed: 1<<64 - 1, TopP: 1}
	_, _, err := c.Sample(t.Context(), version(), r)
	require.NoError(t, err)
	require.Equal(t, `{"version":{"run":"demo","policy":"main","number":12},"prompt":[3,17],"max_tokens":24,"temperature":1,"stop":[2],"seed":"18446744073709551615"}`, string(body))

	r.TopP, r.Form = 0.9, &model.Form{Codec: "compact", Stop: []string{"END"}}
	_, _, err = c.Sample(t.Context(), version(), r)
	require.NoError(t, err)
	require.Contains(t, string(body), `"top_p":0.9,"form":{"codec":"compact","stop":["END"]}}`)
}

func TestAConstraintWithoutAFormIsNotSent(t *testing.T) {
	t.Parallel()
	c := connect(t, remote.NewServer(&sampler{}, nil), remote.Options{})
	_, _, err := c.Sample(t.Context(), version(), model.DecodeRequest{Prompt: []int32{1}, Constraint: &parity{}})
	require.ErrorContains(t, err, "form")
}

func TestAStreamThatBreaksIsAFault(t *testing.T) {
	t.Parallel()
	const token, end = `{"token":7,"logprob":-1}` + "\n", `{"tokens":[7],"logprobs":[-1],"finish":"stop","weights":"w"}` + "\n"
	for name, body := range map[string]string{
		"before anything": "", "after a token": token, "in a line": token + end[:20], "without its line's end": token + strings.TrimSpace(end),
		"of another reply": token + token + end, "of other numbers": strings.ReplaceAll(token, "-1", "-2") + end, "that says nothing": end,
		"of no JSON": token + "tokens\n", "without weights": token + strings.ReplaceAll(end, `"w"`, `""`),
		"with marks of other tokens": token + strings.ReplaceAll(end, `"w"`, `"w","forced":[true,false]`),
	} {
		for _, abort := range []bool{false, true} {
			received, err := listen(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/sample" {
					return
				}
				_, _ = w.Write([]byte(body))
				_ = http.NewResponseController(w).Flush()
				if abort {
					panic(http.ErrAbortHandler)
				}
			}), remote.Options{})
			require.Error(t, err, name)
			require.True(t, remote.IsFault(err), name)
			require.LessOrEqual(t, len(received), 2)
		}
	}
	received, err := listen(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(token + end)) }), remote.Options{})
	require.NoError(t, err, "the same, unbroken")
	require.Equal(t, []int32{7}, received)
}

func TestAnErrorInTheMiddleKeepsItsMeaning(t *testing.T) {
	t.Parallel()
	s := &speaker{says: 3}
	s.err = fmt.Errorf("sample: %w", model.ErrForm)
	received, err := listen(t, remote.NewServer(s, nil), remote.Options{})
	require.ErrorIs(t, err, model.ErrForm)
	require.False(t, remote.IsFault(err))
	require.Equal(t, []int32{0, 1, 2}, received)
}

// This is also true for a peer that hangs after it has sent something.
func TestAPeerThatHangsInTheMiddleIsNoticed(t *testing.T) {
	t.Parallel()
	ill := make(chan struct{})
	silent := hung(ill)
	received, err := listen(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/sample" {
			_, _ = w.Write([]byte(`{"token":7,"logprob":-1}` + "\n"))
			_ = http.NewResponseController(w).Flush()
			close(ill)
		}
		silent.ServeHTTP(w, r)
	}), remote.Options{Probe: 100 * time.Millisecond, Patience: 500 * time.Millisecond})
	require.ErrorIs(t, err, remote.ErrUnresponsive)
	require.Equal(t, []int32{7}, received)
}

// stuck is a client that takes nothing until it is released.
type stuck struct {
	*httptest.ResponseRecorder
	release chan struct{}
}

func (s stuck) Write(b []byte) (int, error) {
	<-s.release
	return s.ResponseRecorder.Write(b)
}

func TestSamplingDoesNotWaitForTheClient(t *testing.T) {
	t.Parallel()
	w := stuck{httptest.NewRecorder(), make(chan struct{})}
	s := &speaker{says: 10000, spoke: func() { close(w.release) }}
	for i := range s.says {
		s.reply.Tokens, s.reply.Logprobs = append(s.reply.Tokens, int32(i)), append(s.reply.Logprobs, -float32(i)/3)
	}
	request := httptest.NewRequest(http.MethodPost, "/sample", strings.NewReader(`{"prompt":[1],"max_tokens":10000,"seed":"1","stream":true}`))
	remote.NewServer(s, nil).ServeHTTP(w, request)
	require.Equal(t, s.says+1, bytes.Count(w.Body.Bytes(), []byte("\n")))
	require.Equal(t, "application/x-ndjson", w.Header().Get("Content-Type"))
}

// flushTimes records when written data is sent.
type flushTimes struct {
	*httptest.ResponseRecorder
	at []time.Time
}

func (w *flushTimes) Flush() { w.at = append(w.at, time.Now()) }

func TestTokensThatComeTogetherAreSentTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const each, interval = 3 * time.Millisecond, 20 * time.Millisecond
		s := &speaker{says: 30, spoke: func() { time.Sleep(each) }}
		s.beforeToken = func() { time.Sleep(each) }
		for i := range s.says {
			s.reply.Tokens, s.reply.Logprobs = append(s.reply.Tokens, int32(i)), append(s.reply.Logprobs, -float32(i)/3)
		}
		w, began := &flushTimes{ResponseRecorder: httptest.NewRecorder()}, time.Now()
		request := httptest.NewRequest(http.MethodPost, "/sample", strings.NewReader(`{"prompt":[1],"max_tokens":30,"seed":"1","stream":true}`))
		remote.NewServer(s, nil).ServeHTTP(w, request)
		require.Equal(t, time.Duration(s.says+1)*each, time.Since(began), "the end waits for nothing")
		require.Equal(t, s.says+1, bytes.Count(w.Body.Bytes(), []byte("\n")))
		require.Equal(t, each, w.at[0].Sub(began), "nor does the first token")
		require.Len(t, w.at, 5)
		for i := 1; i < len(w.at); i++ {
			require.GreaterOrEqual(t, w.at[i].Sub(w.at[i-1]), interval)
		}
	})
}

func TestNumbersThatCannotBeWrittenBreakTheStream(t *testing.T) {
	t.Parallel()
	s := &speaker{says: 2}
	var zero float32
	s.reply = model.Completion{Tokens: []int32{0, 1}, Logprobs: []float32{0, -1 / zero}}
	_, err := listen(t, remote.NewServer(s, nil), remote.Options{})
	require.ErrorContains(t, err, "JSON")
	require.True(t, remote.IsFault(err))
}

func FuzzReadStream(f *testing.F) {
	for _, s := range []string{
		`{"token":7,"logprob":-1}` + "\n" + `{"tokens":[7],"logprobs":[-1],"finish":"stop","weights":"w"}` + "\n",
		`{"token":7,"logprob":-1}` + "\n" + `{"error":{"code":"unsupported_form","message":"no"}}` + "\n",
		`{"tokens":[],"logprobs":[],"weights":"w","forced":[true]}` + "\n", "null\n", "\n", `{"token":7`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, body string) {
		var received []int32
		c, err := remote.ReadStream(strings.NewReader(body), func(token int32, _ float32) { received = append(received, token) })
		if err != nil {
			return
		}
		require.NotEmpty(t, c.Tokens)
		require.Equal(t, c.Tokens, received)
		require.Len(t, c.Logprobs, len(c.Tokens))
		require.True(t, c.Forced == nil || len(c.Forced) == len(c.Tokens))
	})
}
