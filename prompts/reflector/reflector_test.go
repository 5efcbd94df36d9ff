package reflector_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/prompts/reflector"
)

const secret = "sk-very-secret"

var question = reflector.Question{System: "You improve.", User: "<prompt>\nAdd.\n</prompt>"}

func open(t *testing.T, o reflector.Options) reflector.Reflector {
	t.Helper()
	r, err := reflector.New(o)
	require.NoError(t, err)
	t.Cleanup(r.Close)
	return r
}

func serve(t *testing.T, handler http.HandlerFunc) (url string) {
	t.Helper()
	s := httptest.NewServer(handler)
	t.Cleanup(s.Close)
	return s.URL + "/v1"
}

func TestServersReply(t *testing.T) {
	t.Parallel()
	for kind, body := range map[reflector.Type]string{
		reflector.OpenAI:    `{"model":"m-2","choices":[{"finish_reason":"length","message":{"content":"a\u0000\ud800b"}}],"usage":{"prompt_tokens":5,"completion_tokens":3}}`,
		reflector.Anthropic: `{"type":"message","model":"m-2","stop_reason":"max_tokens","content":[{"type":"text","text":"a\u0000\ud800b"}],"usage":{"input_tokens":5,"output_tokens":3}}`,
	} {
		var asked []map[string]any
		url := serve(t, func(w http.ResponseWriter, r *http.Request) {
			var q map[string]any
			_ = json.NewDecoder(r.Body).Decode(&q)
			asked = append(asked, q)
			_, _ = io.WriteString(w, body)
		})
		r := open(t, reflector.Options{Type: kind, URL: url, Model: "m", Key: secret, MaxTokens: 77})
		got, err := r.Reflect(t.Context(), question)
		require.NoError(t, err)
		require.Equal(t, reflector.Reply{Text: "a\uFFFD\uFFFDb", CutOff: true, Usage: reflector.Usage{Input: 5, Output: 3}, Model: "m-2"}, got)
		_, err = r.Reflect(t.Context(), reflector.Question{User: "again", MaxTokens: 5, Try: 1})
		require.NoError(t, err)
		require.EqualValues(t, 77, asked[0]["max_tokens"])
		require.EqualValues(t, 5, asked[1]["max_tokens"])
		require.Len(t, asked[1]["messages"], 1, "without a system text there is no such message")
	}
}

func TestWhatIsRefusedIsFinal(t *testing.T) {
	t.Parallel()
	for _, kind := range []reflector.Type{reflector.OpenAI, reflector.Anthropic} {
		for status, final := range map[int]bool{400: true, 401: true, 404: true, 413: true, 503: false, 408: false} {
			url := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Retry-After", "0")
				w.WriteHeader(status)
				_, _ = fmt.Fprintf(w, `{"type":"error","error":{"type":"t","message":"key %s"}}`, secret)
			})
			_, err := open(t, reflector.Options{Type: kind, URL: url, Model: "m", Key: secret}).Reflect(t.Context(), question)
			require.Error(t, err)
			require.Equal(t, final, errors.Is(err, reflector.ErrRefused), "%d: %v", status, err)
			require.Equal(t, final, reflector.Final(err))
			require.NotContains(t, err.Error(), secret)
		}
		page := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>Sign in</html>") })
		_, err := open(t, reflector.Options{Type: kind, URL: page, Model: "m"}).Reflect(t.Context(), question)
		require.ErrorContains(t, err, "web page")
		require.False(t, reflector.Final(err))
	}
}

// A key names what decides a reply, and nothing else.
func TestKeysDependOnWhatDecides(t *testing.T) {
	t.Parallel()
	at := reflector.Options{Type: reflector.OpenAI, URL: "http://a/v1", Model: "m"}
	base := open(t, at).Key(question)
	require.Equal(t, "sha256:184fcb", base[:13], "kept replies have this key")

	moved := at
	moved.URL, moved.Key, moved.Timeout = "https://b/v1", secret, time.Hour
	require.Equal(t, base, open(t, moved).Key(question))
	explicit := question
	explicit.MaxTokens = reflector.DefaultMaxTokens
	require.Equal(t, base, open(t, at).Key(explicit))

	seen := map[string]string{base: "the base"}
	differs := func(name, key string) {
		require.Empty(t, seen[key], name)
		seen[key] = name
	}
	for name, edit := range map[string]func(*reflector.Options){
		"type":       func(o *reflector.Options) { o.Type = reflector.Anthropic },
		"model":      func(o *reflector.Options) { o.Model = "m2" },
		"max_tokens": func(o *reflector.Options) { o.MaxTokens = 5 },
		"command":    func(o *reflector.Options) { *o = reflector.Options{Type: reflector.Command, Command: []string{"m"}} },
		"words": func(o *reflector.Options) {
			*o = reflector.Options{Type: reflector.Command, Command: []string{"m", "-x"}}
		},
		"version": func(o *reflector.Options) {
			*o = reflector.Options{Type: reflector.Command, Command: []string{"m"}, Model: "2"}
		},
	} {
		o := at
		edit(&o)
		differs(name, open(t, o).Key(question))
	}
	for name, q := range map[string]reflector.Question{
		"system": {System: "x", User: question.User},
		"user":   {System: question.System, User: "x"},
		"moved":  {System: question.System + question.User},
		"most":   {System: question.System, User: question.User, MaxTokens: 9},
		"try":    {System: question.System, User: question.User, Try: 1},
	} {
		differs(name, open(t, at).Key(q))
	}
}

func TestWrongOptionsAreNamed(t *testing.T) {
	t.Parallel()
	server := func(edit func(*reflector.Options)) reflector.Options {
		o := reflector.Options{Type: reflector.OpenAI, URL: "http://a/v1", Model: "m"}
		edit(&o)
		return o
	}
	for want, o := range map[string]reflector.Options{
		`type: want openai, anthropic, command or recorded, not ""`:    {},
		`type: want openai, anthropic, command or recorded, not "gpt"`: {Type: "gpt"},
		"url: type openai needs it":                                    server(func(o *reflector.Options) { o.URL = "" }),
		"url: want http://HOST… or https://HOST…":                      server(func(o *reflector.Options) { o.URL = "a/v1" }),
		"url: this is no URL":                                          server(func(o *reflector.Options) { o.URL = "http://a:b" }),
		"url: it has a user in it":                                     server(func(o *reflector.Options) { o.URL = "http://u:" + secret + "@a/v1" }),
		"url: want it without ? and #":                                 server(func(o *reflector.Options) { o.URL = "http://a/v1?key=" + secret }),
		"model: type openai needs it":                                  server(func(o *reflector.Options) { o.Model = "" }),
		"key: has a line break":                                        server(func(o *reflector.Options) { o.Key = secret + "\n" }),
		"command: has no use with type openai":                         server(func(o *reflector.Options) { o.Command = []string{"x"} }),
		"dir: has no use with type openai":                             server(func(o *reflector.Options) { o.Dir = "x" }),
		"timeout: want a positive duration, not -1s":                   server(func(o *reflector.Options) { o.Timeout = -time.Second }),
		"max_tokens: want a positive number, not -1":                   server(func(o *reflector.Options) { o.MaxTokens = -1 }),
		"command: type command needs it":                               {Type: reflector.Command},
		"command: the program's name is empty":                         {Type: reflector.Command, Command: []string{""}},
		"url: has no use with type command":                            {Type: reflector.Command, Command: []string{"x"}, URL: "http://a"},
		"key: has no use with type command":                            {Type: reflector.Command, Command: []string{"x"}, Key: secret},
		"file: type recorded needs it":                                 {Type: reflector.Recorded},
		"model: has no use with type recorded":                         {Type: reflector.Recorded, File: "x", Model: "m"},
		"file: read recording: ":                                       {Type: reflector.Recorded, File: filepath.Join(t.TempDir(), "none")},
		"file: open recording: ":                                       server(func(o *reflector.Options) { o.File = t.TempDir() }),
	} {
		_, err := reflector.New(o)
		require.ErrorContains(t, err, "optimizer.reflector."+want)
		require.NotContains(t, err.Error(), secret)
	}
}

// fake replies with the number of the question.
type fake struct {
	model string
	asked int
	err   error
}

func (f *fake) Reflect(context.Context, reflector.Question) (reflector.Reply, error) {
	f.asked++
	return reflector.Reply{Text: strings.Repeat("x", f.asked), Model: f.model}, f.err
}

func (f *fake) Key(q reflector.Question) string { return f.model + reflector.QuestionKey(q) }
func (f *fake) Close()                          {}
