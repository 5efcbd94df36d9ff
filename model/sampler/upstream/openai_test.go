package upstream_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/sampler/upstream"
)

// texts is a server of messages whose replies the test defines.
type texts struct {
	*httptest.Server
	mu     sync.Mutex
	asked  []map[string]any
	paths  []string
	answer func(w http.ResponseWriter, body map[string]any)
}

func newTexts(t testing.TB, answer func(w http.ResponseWriter, body map[string]any)) *texts {
	t.Helper()
	s := &texts{answer: answer}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body map[string]any
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.asked, s.paths = append(s.asked, body), append(s.paths, r.URL.Path)
		s.answer(w, body)
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *texts) sampler(t testing.TB) *upstream.Sampler {
	t.Helper()
	o, err := upstream.New(upstream.Options{Type: upstream.OpenAI, URLs: []string{s.URL}, Model: "gpt", Versions: upstream.None})
	require.NoError(t, err)
	t.Cleanup(o.Close)
	return o
}

func wholeText(reply string) func(http.ResponseWriter, map[string]any) {
	return func(w http.ResponseWriter, _ map[string]any) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, reply)
	}
}

func streamedText(events ...string) func(http.ResponseWriter, map[string]any) {
	return func(w http.ResponseWriter, _ map[string]any) {
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		for _, e := range events {
			fmt.Fprintf(w, "data: %s\n\n", e)
		}
		fmt.Fprint(w, "data: [DONE]\n\n")
	}
}

var measure = dialog.Tool{Name: "measure", Parameters: []byte(`{"type":"object"}`)}

func messagesRequest(t testing.TB, tools ...dialog.Tool) model.DecodeRequest {
	t.Helper()
	prompt, err := dialog.Messages().Prompt([]dialog.Message{{Role: dialog.System, Content: "Be brief."}, {Role: dialog.User, Content: "How long?"}}, tools)
	require.NoError(t, err)
	return model.DecodeRequest{Prompt: prompt, MaxTokens: 8, Temperature: 0.5, Seed: 6}
}

const (
	wholeReply = `{"id":"c-1","object":"chat.completion","model":"gpt-5","choices":[{"index":0,"message":{"role":"assistant","content":"3 cm","reasoning_content":"look"},` +
		`"logprobs":{"content":[{"token":"3","logprob":-0.5,"bytes":[51],"top_logprobs":[]},{"token":" cm","logprob":-0.25,"bytes":null,"top_logprobs":[]}]},"finish_reason":"stop"}],` +
		`"usage":{"prompt_tokens":20,"completion_tokens":2,"total_tokens":22}}`
	callsReply = `{"id":"c-2","model":"gpt-5","choices":[{"message":{"role":"assistant","content":null,"tool_calls":[{"id":"x","type":"function","function":{"name":"measure","arguments":"{\"n\":1}"}},` +
		`{"id":"y","type":"function","function":{"name":"measure","arguments":"{}"}}]},"logprobs":null,"finish_reason":"tool_calls"}]}`
)

func TestMessagesAreAskedAndTextComesBack(t *testing.T) {
	t.Parallel()
	streams := map[string][]string{
		wholeReply: {
			`{"id":"c-1","model":"gpt-5","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}`,
			`{"id":"c-1","model":"gpt-5","choices":[{"index":0,"delta":{"reasoning":"look"},"finish_reason":null}]}`,
			`{"id":"c-1","model":"gpt-5","choices":[{"index":0,"delta":{"content":"3"},"logprobs":{"content":[{"token":"3","logprob":-0.5}]},"finish_reason":null}]}`,
			`{"id":"c-1","model":"gpt-5","choices":[{"index":0,"delta":{"content":" cm"},"logprobs":{"content":[{"token":" cm","logprob":-0.25,"bytes":[32,99,109]}]},"finish_reason":null}]}`,
			`{"id":"c-1","model":"gpt-5","choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop"}]}`,
			`{"id":"c-1","model":"gpt-5","choices":[],"usage":{"prompt_tokens":20,"completion_tokens":2,"total_tokens":22}}`,
		},
		callsReply: {
			`{"id":"c-2","model":"gpt-5","choices":[{"delta":{"role":"assistant","content":null,"tool_calls":[{"index":0,"id":"x","type":"function","function":{"name":"measure","arguments":""}}]}}]}`,
			`{"id":"c-2","model":"gpt-5","choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"n\""}}]}}]}`,
			`{"id":"c-2","model":"gpt-5","choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":":1}"}}]}}]}`,
			`{"id":"c-2","model":"gpt-5","choices":[{"delta":{"tool_calls":[{"index":1,"id":"y","type":"function","function":{"name":"measure","arguments":"{}"}}]}}]}`,
			`{"id":"c-2","model":"gpt-5","choices":[{"delta":{},"finish_reason":"tool_calls"}]}`,
		},
	}
	for reply, events := range streams {
		at := newTexts(t, wholeText(reply))
		r := messagesRequest(t, measure)
		all, weights, err := at.sampler(t).Sample(t.Context(), version, r)
		require.NoError(t, err)
		require.Equal(t, "server:gpt", weights)

		at.answer = streamedText(events...)
		var emitted []int32
		r.Emit = func(token int32, _ float32) { emitted = append(emitted, token) }
		streamed, _, err := at.sampler(t).Sample(t.Context(), version, r)
		require.NoError(t, err)
		require.Empty(t, cmp.Diff(all, streamed), "streamed or whole, it is one reply")
		require.Equal(t, streamed.Tokens, emitted)
		require.NotContains(t, streamed.Forced, false)
	}
	at := newTexts(t, wholeText(wholeReply))
	got, _, err := at.sampler(t).Sample(t.Context(), version, messagesRequest(t, measure))
	require.NoError(t, err)
	codec := dialog.Messages()
	m, problem := codec.Parse(got.Tokens, nil, nil)
	require.Empty(t, problem)
	require.Empty(t, cmp.Diff(dialog.Message{Role: dialog.Assistant, Content: "3 cm", Reasoning: "look"}, m))
	require.Equal(t, []dialog.Piece{{Text: "3", Logprob: -0.5}, {Text: " cm", Logprob: -0.25}}, codec.Pieces(got.Tokens, got.Logprobs))
	used, _ := codec.Counted(got.Tokens)
	require.Equal(t, dialog.Usage{Prompt: 20, Completion: 2}, used)

	asked := at.asked[0]
	for name, v := range map[string]any{"model": "gpt", "max_tokens": 8.0, "temperature": 0.5, "top_p": 1.0, "seed": 3.0, "logprobs": true} {
		require.Equal(t, v, asked[name], name)
	}
	require.Empty(t, cmp.Diff([]any{
		map[string]any{"role": "system", "content": "Be brief."}, map[string]any{"role": "user", "content": "How long?"},
	}, asked["messages"]))
	require.Equal(t, "measure", asked["tools"].([]any)[0].(map[string]any)["function"].(map[string]any)["name"])
	require.NotContains(t, asked, "tool_choice")
	require.NotContains(t, asked, "response_format")
}

func TestFormsAreLeftToTheServer(t *testing.T) {
	t.Parallel()
	other := dialog.Tool{Name: "other"}
	schema := json.RawMessage(`{"type":"object"}`)
	for name, c := range map[string]struct {
		form model.Form
		want string
	}{
		"no call":       {model.Form{NoCall: true}, `{"tool_choice":"none"}`},
		"this call":     {model.Form{Call: true, Tools: []model.FormTool{{Name: "other"}}}, `{"tool_choice":{"type":"function","function":{"name":"other"}}}`},
		"any call":      {model.Form{Call: true, Tools: []model.FormTool{{Name: "measure"}, {Name: "other"}}}, `{"tool_choice":"required"}`},
		"an object":     {model.Form{Schema: []byte(`{}`)}, `{"response_format":{"type":"json_object"}}`},
		"a schema":      {model.Form{Schema: schema}, `{"response_format":{"type":"json_schema","json_schema":{"name":"reply","schema":{"type":"object"}}}}`},
		"strictly":      {model.Form{Schema: schema, Strict: true}, `{"response_format":{"type":"json_schema","json_schema":{"name":"reply","strict":true,"schema":{"type":"object"}}}}`},
		"up to a stop":  {model.Form{Stop: []string{"x"}}, `{"stop":["x"]}`},
		"some of tools": {model.Form{Tools: []model.FormTool{{Name: "measure"}}}, `{}`},
	} {
		at := newTexts(t, wholeText(wholeReply))
		r := messagesRequest(t, measure, other)
		r.Form = &c.form
		_, _, err := at.sampler(t).Sample(t.Context(), version, r)
		require.NoError(t, err, name)
		got := map[string]any{}
		for _, field := range []string{"tool_choice", "response_format", "stop"} {
			if v, ok := at.asked[0][field]; ok {
				got[field] = v
			}
		}
		text, err := json.Marshal(got)
		require.NoError(t, err)
		require.JSONEq(t, c.want, string(text), name)
		tools := map[bool]int{true: max(1, len(c.form.Tools)), false: 2}[len(c.form.Tools) > 0]
		require.Len(t, at.asked[0]["tools"], tools, name)
	}
}

func TestAStopTextThatTheServerNamesIsKept(t *testing.T) {
	t.Parallel()
	at := newTexts(t, wholeText(`{"choices":[{"message":{"content":"so "},"finish_reason":"stop","stop_reason":"end"}]}`))
	r := messagesRequest(t)
	r.Form = &model.Form{Stop: []string{"end"}}
	got, _, err := at.sampler(t).Sample(t.Context(), version, r)
	require.NoError(t, err)
	m, _ := dialog.Messages().Parse(got.Tokens, nil, nil)
	require.Equal(t, "so end", m.Content)
}

func TestFieldsThatAServerRefusesAreOmitted(t *testing.T) {
	t.Parallel()
	at := newTexts(t, nil)
	at.answer = func(w http.ResponseWriter, body map[string]any) {
		for _, field := range []string{"max_tokens", "logprobs", "seed"} {
			if _, ok := body[field]; ok {
				w.WriteHeader(http.StatusBadRequest)
				fmt.Fprintf(w, `{"error":{"message":"Unsupported parameter: '%s'","param":%q}}`, field, field)
				return
			}
		}
		wholeText(`{"choices":[{"message":{"content":"hi"},"finish_reason":"length"}]}`)(w, body)
	}
	s := at.sampler(t)
	got, _, err := s.Sample(t.Context(), version, messagesRequest(t))
	require.NoError(t, err)
	require.Equal(t, "length", got.Finish)
	require.Equal(t, 8.0, at.asked[3]["max_completion_tokens"])
	_, _, err = s.Sample(t.Context(), version, messagesRequest(t))
	require.NoError(t, err)
	require.Len(t, at.asked, 5, "it is known by now")
}

func TestWhatAServerRefusesIsToldAndWhatFailsIsAFault(t *testing.T) {
	t.Parallel()
	for status, refused := range map[int]bool{400: true, 422: true, 413: true, 401: false, 404: false, 500: false} {
		at := newTexts(t, func(w http.ResponseWriter, _ map[string]any) { http.Error(w, `{"error":{"message":"no"}}`, status) })
		_, _, err := at.sampler(t).Sample(t.Context(), version, messagesRequest(t))
		require.ErrorContains(t, err, "no")
		if refused {
			require.ErrorIs(t, err, model.ErrRefused)
			continue
		}
		require.NotErrorIs(t, err, model.ErrRefused)
	}
	for _, message := range []string{
		"This model's maximum context length is 4 tokens, max_tokens is 8", // vLLM
		"request (9 tokens) exceeds the available context size (4 tokens)", // llama.cpp
	} {
		at := newTexts(t, func(w http.ResponseWriter, _ map[string]any) {
			http.Error(w, `{"error":{"message":"`+message+`"}}`, http.StatusBadRequest)
		})
		_, _, err := at.sampler(t).Sample(t.Context(), version, messagesRequest(t))
		require.ErrorIs(t, err, model.ErrPromptTooLong)
	}
}

func TestAReplyInTextThatIsNotWholeIsNone(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]func(http.ResponseWriter, map[string]any){
		"no end":           wholeText(`{"choices":[{"message":{"content":"hi"}}]}`),
		"no choices":       wholeText(`{}`),
		"no JSON":          wholeText(`<html>`),
		"an error":         wholeText(`{"error":{"message":"overloaded"}}`),
		"a call to far":    wholeText(`{"choices":[{"message":{"tool_calls":[{"index":3,"function":{"name":"a"}}]},"finish_reason":"stop"}]}`),
		"another type":     func(w http.ResponseWriter, _ map[string]any) { fmt.Fprint(w, "hello") },
		"a stream of whom": streamedText(`{"choices":[{"delta":{"content":"hi"},"finish_reason":"stop"}]}`),
	} {
		at := newTexts(t, answer)
		_, _, err := at.sampler(t).Sample(t.Context(), version, messagesRequest(t))
		require.Error(t, err, name)
	}
	at := newTexts(t, func(w http.ResponseWriter, _ map[string]any) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, `data: {"choices":[{"delta":{"content":"hi"},"finish_reason":"stop"}]}`+"\n\n")
	})
	r := messagesRequest(t)
	r.Emit = func(int32, float32) {}
	_, _, err := at.sampler(t).Sample(t.Context(), version, r)
	require.ErrorIs(t, err, upstream.ErrReply)
}

func TestABareTextIsGoneOnWith(t *testing.T) {
	t.Parallel()
	at := newTexts(t, wholeText(`{"choices":[{"text":" a time","logprobs":{"tokens":[" a"," time"],"token_logprobs":[-1,-2]},"finish_reason":"length"}]}`))
	got, _, err := at.sampler(t).Sample(t.Context(), version, model.DecodeRequest{Prompt: dialog.Messages().Encode("Once upon"), MaxTokens: 2})
	require.NoError(t, err)
	require.Equal(t, []string{"/v1/completions"}, at.paths)
	require.Equal(t, "Once upon", at.asked[0]["prompt"])
	require.Equal(t, []dialog.Piece{{Text: " a", Logprob: -1}, {Text: " time", Logprob: -2}}, dialog.Messages().Pieces(got.Tokens, got.Logprobs))
	require.Equal(t, "length", got.Finish)
}

// FuzzTexts lets a server of messages answer with anything.
func FuzzTexts(f *testing.F) {
	f.Add(wholeReply, false)
	f.Add(callsReply, false)
	f.Add("data: {\"choices\":[{\"delta\":{\"content\":\"hi\",\"tool_calls\":[{}]},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n", true)
	var body string
	at := newTexts(f, nil)
	f.Fuzz(func(t *testing.T, reply string, stream bool) {
		body = reply
		at.mu.Lock()
		at.asked, at.paths = nil, nil
		at.answer = func(w http.ResponseWriter, _ map[string]any) {
			w.Header().Set("Content-Type", map[bool]string{true: "text/event-stream", false: "application/json"}[stream])
			fmt.Fprint(w, body)
		}
		at.mu.Unlock()
		r := messagesRequest(t, measure)
		if stream {
			r.Emit = func(int32, float32) {}
		}
		// The sampler would not ask a server again for a while after a failure.
		s, err := upstream.New(upstream.Options{Type: upstream.OpenAI, URLs: []string{at.URL}, Model: "gpt", Versions: upstream.None, Retry: 1})
		require.NoError(t, err)
		defer s.Close()
		c, _, err := s.Sample(t.Context(), version, r)
		if err != nil {
			return
		}
		require.Len(t, c.Logprobs, len(c.Tokens))
		require.NotContains(t, c.Forced, false)
		require.Equal(t, len(c.Tokens)-1, slices.Index(c.Tokens, dialog.Messages().Stop()[0]), "one end, at the end")
		m, _ := dialog.Messages().Parse(c.Tokens, []dialog.Tool{measure}, func(k int) string { return fmt.Sprint(k) })
		require.True(t, strings.HasPrefix(m.Content, dialog.Messages().Partial(c.Tokens[:len(c.Tokens)-1], nil)))
	})
}
