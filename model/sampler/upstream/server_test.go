package upstream_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/sampler/upstream"
)

// server answers in the documented formats of vLLM and SGLang: the completion counts up
// from the prompt's last token and ends with the stop token.
type server struct {
	*httptest.Server
	mu       sync.Mutex
	requests []map[string]any
	paths    []string
	version  string // of the weights (SGLang)
	loads    []string
	// turn, if not nil, answers in the server's place; it reports whether it did.
	turn func(w http.ResponseWriter, r *http.Request, body map[string]any) bool
	// during is called while a completion is being sampled.
	during func()
}

const stopToken = 9

func newServer(t *testing.T) *server {
	t.Helper()
	s := &server{version: "default"}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/completions", s.handle(s.vllm))
	mux.HandleFunc("POST /generate", s.handle(s.sglang))
	mux.HandleFunc("POST /v1/load_lora_adapter", s.handle(func(w http.ResponseWriter, _ *http.Request, body map[string]any) {
		s.loads = append(s.loads, body["lora_name"].(string)+" "+filepath.Base(body["lora_path"].(string)))
		fmt.Fprint(w, "Success")
	}))
	mux.HandleFunc("POST /update_weights_from_disk", s.handle(func(w http.ResponseWriter, _ *http.Request, body map[string]any) {
		s.version = body["weight_version"].(string)
		s.loads = append(s.loads, s.version+" "+filepath.Base(body["model_path"].(string)))
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"success":true,"message":"ok"}`)
	}))
	for path, text := range map[string]string{"/v1/models": `{"data":[]}`, "/metrics": ""} {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, text)
		})
	}
	s.Server = httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s
}

func (s *server) handle(answer func(http.ResponseWriter, *http.Request, map[string]any)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var body map[string]any
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if s.during != nil {
			s.during()
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.requests, s.paths = append(s.requests, body), append(s.paths, r.URL.Path)
		if s.turn == nil || !s.turn(w, r, body) {
			answer(w, r, body)
		}
	}
}

func says(prompt []any) []int {
	last := int(prompt[len(prompt)-1].(float64))
	return []int{last + 1, last + 2, stopToken}
}

func logprobOf(i int) float64 { return -0.5 - float64(i) }

func encoded(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(text)
}

func (s *server) vllm(w http.ResponseWriter, _ *http.Request, body map[string]any) {
	prompt := body["prompt"].([]any)
	choice := func(from, to int, finish any) map[string]any {
		logprobs := []any{}
		for i := from; i < to; i++ {
			logprobs = append(logprobs, logprobOf(i))
		}
		return map[string]any{"index": 0, "text": "", "token_ids": says(prompt)[from:to], "logprobs": map[string]any{"token_logprobs": logprobs}, "finish_reason": finish}
	}
	if body["stream"] != true {
		all := choice(0, 3, "stop")
		all["prompt_token_ids"] = prompt
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, encoded(map[string]any{"id": "cmpl-1", "choices": []any{all}}))
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	first := choice(0, 1, nil)
	first["prompt_token_ids"] = prompt
	for _, event := range []map[string]any{first, choice(1, 3, "stop")} {
		fmt.Fprintf(w, ": keepalive\ndata: %s\n\n", encoded(map[string]any{"choices": []any{event}}))
	}
	fmt.Fprint(w, "data: {\"choices\":[],\"usage\":{}}\n\ndata: [DONE]\n\n")
}

func (s *server) sglang(w http.ResponseWriter, _ *http.Request, body map[string]any) {
	prompt := body["input_ids"].([]any)
	upTo := func(n int, finish any) string {
		pairs := []any{}
		for i, id := range says(prompt)[:n] {
			pairs = append(pairs, []any{logprobOf(i), id, nil})
		}
		return encoded(map[string]any{"text": "", "meta_info": map[string]any{"finish_reason": finish, "output_token_logprobs": pairs, "weight_version": s.version}})
	}
	done := map[string]any{"type": "stop", "matched": stopToken}
	if body["stream"] != true {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, upTo(3, done))
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	fmt.Fprintf(w, "data: %s\n\ndata: %s\n\ndata: [DONE]\n\n", upTo(1, nil), upTo(3, done))
}

var version = model.VersionID{Run: "demo", Policy: "main", Number: 3}

// connect returns a sampler of the servers.
func connect(t *testing.T, kind, versions string, servers ...*server) *upstream.Sampler {
	t.Helper()
	o := upstream.Options{Type: kind, Model: "base", Versions: versions, Directory: t.TempDir(), Retry: time.Hour}
	for _, s := range servers {
		o.URLs = append(o.URLs, s.URL)
	}
	o.Write, o.Constrain = writeVersion, dialog.Constrain
	if versions == upstream.Adapters {
		directory := filepath.Join(o.Directory, "demo-v3")
		require.NoError(t, os.Mkdir(directory, 0o755))
		for _, name := range []string{"adapter_config.json", "adapter_model.safetensors"} {
			require.NoError(t, os.WriteFile(filepath.Join(directory, name), []byte(name), 0o600))
		}
	}
	s, err := upstream.New(o)
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s
}

func request() model.DecodeRequest {
	return model.DecodeRequest{Prompt: []int32{1, 2, 3}, MaxTokens: 8, Temperature: 1, Stop: []int32{stopToken}, Seed: 1 << 63}
}

func want() model.Completion {
	return model.Completion{Tokens: []int32{4, 5, stopToken}, Logprobs: []float32{-0.5, -1.5, -2.5}, Finish: "stop"}
}

// kinds returns the types of servers, each with the way in which it gets versions.
func kinds() map[string]string {
	return map[string]string{upstream.VLLM: upstream.Adapters, upstream.SGLang: upstream.Reload}
}

func (s *server) asked(path string) []map[string]any {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []map[string]any
	for i, p := range s.paths {
		if strings.HasSuffix(p, path) {
			out = append(out, s.requests[i])
		}
	}
	return out
}
