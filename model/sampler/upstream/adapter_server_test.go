package upstream_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/sampler/upstream"
)

// adapterServer answers as vLLM does when adapters are loaded while it runs. Its model
// counts: the token after another is almost always one higher. An adapter is a file with
// a number, by which it moves the log-probabilities of all other tokens.
type adapterServer struct {
	*httptest.Server
	noise    float64 // of all log-probabilities, in nats
	slots    int     // --max-loras; 0 if it does not say
	rank     int     // --max-lora-rank
	disabled string  // if not empty, the answer to loads, with status
	status   int
	ignores  bool    // loaded adapters change nothing
	penalty  bool    // a repetition penalty is added
	forgets  bool    // each load is lost at once, as if another process of the server had it
	raise    float64 // by how much the log-probabilities of sampled tokens are too high
	unnamed  bool    // it does not say the ids of prompts

	mu      sync.Mutex
	moves   map[string]float64
	order   []string // loads and unloads
	asked   []string // the models of completions that were answered
	salts   []string // the cache salts of these completions
	during  func()   // is called while a completion is sampled
	unknown int      // requests for models that do not exist
}

func newAdapterServer(t *testing.T) *adapterServer {
	t.Helper()
	s := &adapterServer{rank: 16, moves: map[string]float64{}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/completions", s.complete)
	mux.HandleFunc("POST /v1/load_lora_adapter", s.load)
	mux.HandleFunc("POST /v1/unload_lora_adapter", s.unload)
	mux.HandleFunc("GET /v1/models", s.list)
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		if s.slots > 0 {
			fmt.Fprintf(w, "# TYPE vllm:lora_requests_info gauge\nvllm:lora_requests_info{max_lora=\"%d\",running_lora_adapters=\"\"} 1.0\n", s.slots)
		}
	})
	s.Server = httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s
}

// restart removes all adapters, as a kill -9 does.
func (s *adapterServer) restart() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.moves, s.order = map[string]float64{}, nil
}

func (s *adapterServer) seen() (order, asked []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.order), slices.Clone(s.asked)
}

func refuse(w http.ResponseWriter, status int, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	fmt.Fprint(w, encoded(map[string]any{"error": map[string]any{"message": message, "code": status}}))
}

func (s *adapterServer) load(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Name    string `json:"lora_name"`
		Path    string `json:"lora_path"`
		Inplace *bool  `json:"load_inplace"`
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if json.NewDecoder(r.Body).Decode(&in) != nil || in.Inplace != nil {
		refuse(w, http.StatusBadRequest, "not expected")
		return
	}
	if s.disabled != "" {
		refuse(w, s.status, s.disabled)
		return
	}
	if _, ok := s.moves[in.Name]; ok {
		refuse(w, http.StatusBadRequest, "The lora adapter '"+in.Name+"' has already been loaded. If you want to load the adapter in place, set 'load_inplace' to True.")
		return
	}
	text, err := os.ReadFile(filepath.Join(in.Path, "adapter_model.safetensors"))
	var rank int
	var moves float64
	if err == nil {
		_, err = fmt.Sscan(string(text), &rank, &moves)
	}
	switch {
	case err != nil:
		refuse(w, http.StatusNotFound, "Loading lora failed: No adapter found for "+in.Path)
	case rank > s.rank:
		refuse(w, http.StatusInternalServerError, fmt.Sprintf("LoRA rank %d is greater than max_lora_rank %d.", rank, s.rank))
	default:
		s.moves[in.Name] = moves
		s.order = append(s.order, "load "+in.Name)
		fmt.Fprint(w, "Success")
	}
}

func (s *adapterServer) unload(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Name string `json:"lora_name"`
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if json.NewDecoder(r.Body).Decode(&in) != nil {
		refuse(w, http.StatusBadRequest, "not expected")
		return
	}
	if _, ok := s.moves[in.Name]; !ok {
		refuse(w, http.StatusNotFound, "The lora adapter '"+in.Name+"' cannot be found.")
		return
	}
	delete(s.moves, in.Name)
	s.order = append(s.order, "unload "+in.Name)
	fmt.Fprint(w, "Success")
}

func (s *adapterServer) list(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := []any{map[string]any{"id": "base"}}
	for name := range s.moves {
		all = append(all, map[string]any{"id": name})
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprint(w, encoded(map[string]any{"object": "list", "data": all}))
}

func (s *adapterServer) complete(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Model     string  `json:"model"`
		Prompt    []int32 `json:"prompt"`
		MaxTokens int     `json:"max_tokens"`
		Scores    *int    `json:"prompt_logprobs"`
		Salt      string  `json:"cache_salt"`
	}
	if json.NewDecoder(r.Body).Decode(&in) != nil {
		refuse(w, http.StatusBadRequest, "not expected")
		return
	}
	s.mu.Lock()
	during := s.during
	moves, ok := s.moves[in.Model]
	switch {
	case s.forgets, in.Model != "base" && !ok:
		s.unknown++
		s.mu.Unlock()
		refuse(w, http.StatusNotFound, "The model `"+in.Model+"` does not exist.")
		return
	case s.ignores:
		moves = 0
	}
	s.asked, s.salts = append(s.asked, in.Model), append(s.salts, in.Salt)
	s.mu.Unlock()
	if during != nil && in.Scores == nil {
		during()
	}
	choice := map[string]any{"finish_reason": "length"}
	if !s.unnamed {
		choice["prompt_token_ids"] = in.Prompt
	}
	var tokens []int32
	var logprobs []float64
	for last := in.Prompt[len(in.Prompt)-1]; len(tokens) < in.MaxTokens; {
		last++
		if s.penalty && len(tokens)%2 == 1 {
			last += 7
		}
		before := last - 1
		if len(tokens) > 0 {
			before = tokens[len(tokens)-1]
		}
		tokens = append(tokens, last)
		logprobs = append(logprobs, logprobAfter(before, last, moves)+s.raise+s.noise*deviation(len(in.Prompt)+len(tokens)-1))
	}
	choice["token_ids"], choice["logprobs"] = tokens, map[string]any{"token_logprobs": logprobs}
	if in.Scores != nil {
		scores := []any{nil}
		for i := 1; i < len(in.Prompt); i++ {
			likely := in.Prompt[i-1] + 1
			scores = append(scores, map[string]any{
				strconv.Itoa(int(likely)):       map[string]any{"logprob": logprobAfter(in.Prompt[i-1], likely, moves), "rank": 1},
				strconv.Itoa(int(in.Prompt[i])): map[string]any{"logprob": logprobAfter(in.Prompt[i-1], in.Prompt[i], moves) + s.noise*deviation(i), "rank": 9},
			})
		}
		choice["prompt_logprobs"] = scores
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprint(w, encoded(map[string]any{"choices": []any{choice}}))
}

// deviation returns a number between -√2 and √2 whose mean square is 1.
func deviation(i int) float64 { return math.Sqrt2 * math.Sin(float64(i*i)) }

// logprobAfter returns the log-probability of a token after another.
func logprobAfter(before, token int32, moves float64) float64 {
	if token == before+1 {
		return -0.1
	}
	return -4 + moves*deviation(int(token%89))
}

// adapters holds versions whose adapters move log-probabilities by given numbers of nats.
type adapters struct {
	rank  int
	moves map[int]float64 // by number
	files map[int]float64 // what is written instead
}

func (a adapters) find(_ context.Context, v model.VersionID) (*upstream.Adapter, error) {
	moves := a.moves[v.Number]
	canary := model.Canary{Format: model.CanaryFormat}
	for row := range int32(3) {
		r := model.CanaryRow{Prompt: []int32{row + 1, row + 5}}
		before := r.Prompt[1]
		for i := range int32(64) {
			token := (row*31 + i*i*7) % 400
			r.Tokens = append(r.Tokens, token)
			r.Logprobs = append(r.Logprobs, float32(logprobAfter(before, token, moves)))
			r.Base = append(r.Base, float32(logprobAfter(before, token, 0)))
			before = token
		}
		canary.Rows = append(canary.Rows, r)
	}
	return &upstream.Adapter{Weights: digestOf(v), Rank: a.rank, Canary: &canary, Write: func(directory string) error {
		written, ok := a.files[v.Number]
		if !ok {
			written = moves
		}
		if err := os.MkdirAll(directory, 0o755); err != nil {
			return err
		}
		f, err := os.CreateTemp(directory, "new") // the file must appear complete, because several servers load it at once
		if err == nil {
			_, err = fmt.Fprintf(f, "%d %g", a.rank, written)
			err = errors.Join(err, f.Close(), os.Rename(f.Name(), filepath.Join(directory, "adapter_model.safetensors")))
		}
		return err
	}}, nil
}

func digestOf(v model.VersionID) string {
	return "sha256:" + strings.Repeat(fmt.Sprintf("%02x", v.Number), 32)
}

func nameOf(number int) string {
	return fmt.Sprintf("demo-v%d-%s", number, strings.Repeat(fmt.Sprintf("%02x", number), 6))
}

// connectAdapters returns a sampler of such servers.
func connectAdapters(t *testing.T, a adapters, change func(*upstream.Options), servers ...*adapterServer) *upstream.Sampler {
	t.Helper()
	o := upstream.Options{Type: upstream.VLLM, Model: "base", Versions: upstream.Adapters, Directory: t.TempDir(), Adapter: a.find, Retry: 1}
	for _, s := range servers {
		o.URLs = append(o.URLs, s.URL)
	}
	if change != nil {
		change(&o)
	}
	s, err := upstream.New(o)
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s
}
