package judge_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sashabaranov/go-openai"
	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/credit/judge"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/store"
)

// judgeServer speaks the API of a judge, and has a real store.
type judgeServer struct {
	t     *testing.T
	url   string
	store *store.Store
	// reply answers request k, counted from 0 in order of arrival. It returns a status
	// and the model's answer or, if the status is an error, the error's text.
	reply func(k int, r openai.ChatCompletionRequest) (status int, says string)

	mu    sync.Mutex
	asked []openai.ChatCompletionRequest
	keys  []string // the Authorization headers of the requests
}

func newJudgeServer(t *testing.T) *judgeServer {
	t.Helper()
	c := &judgeServer{t: t}
	var err error
	c.store, err = store.Open(t.Context(), filepath.Join(t.TempDir(), "store.db"), nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.store.Close()) })
	require.NoError(t, c.store.Migrate(t.Context()))
	server := httptest.NewServer(c)
	t.Cleanup(server.Close)
	c.url = server.URL + "/v1/"
	return c
}

func (c *judgeServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var q openai.ChatCompletionRequest
	if r.Method != http.MethodPost || r.URL.Path != "/v1/chat/completions" || json.NewDecoder(r.Body).Decode(&q) != nil {
		http.NotFound(w, r)
		return
	}
	c.mu.Lock()
	k := len(c.asked)
	c.asked = append(c.asked, q)
	c.keys = append(c.keys, r.Header.Get("Authorization"))
	c.mu.Unlock()
	status, says := c.reply(k, q)
	w.Header().Set("Content-Type", "application/json")
	if status != http.StatusOK {
		w.Header().Set("Retry-After", "0")
	}
	w.WriteHeader(status)
	var body any = openai.ErrorResponse{Error: &openai.APIError{Message: says, Type: "t"}}
	if status == http.StatusOK {
		body = openai.ChatCompletionResponse{ID: "x", Object: "chat.completion", Choices: []openai.ChatCompletionChoice{
			{Message: openai.ChatCompletionMessage{Role: "assistant", Content: says}, FinishReason: "stop"},
		}}
	}
	_ = json.NewEncoder(w).Encode(body) // the client may have hung up
}

func (c *judgeServer) requests() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.asked)
}

// judge returns a judge for step 3 of the run "demo".
func (c *judgeServer) judge(edit func(*judge.Options)) *judge.Judge {
	return c.judgeOf("demo", edit)
}

func (c *judgeServer) judgeOf(run string, edit func(*judge.Options)) *judge.Judge {
	o := judge.Options{URL: c.url, Model: "m", Requests: 100, Timeout: time.Minute}
	if edit != nil {
		edit(&o)
	}
	j := judge.New(o, c.store, run, "main", 3)
	c.t.Cleanup(j.Close)
	return j
}

// attempt returns an attempt at task k with the given number of calls.
func attempt(k, calls int) judge.Attempt {
	a := judge.Attempt{
		Address: record.Address{RolloutID: record.RolloutID{Run: "demo", Kind: record.Train, Step: 3, Task: k}, Attempt: 1},
		Task:    fmt.Sprintf("task %d.", k), Calls: []judge.Call{}, Result: "42", Reward: 1,
	}
	for i := range calls {
		a.Calls = append(a.Calls, judge.Call{
			Number: i + 1, Agent: "solo", Asked: []judge.Message{{Role: "user", Text: "go on"}}, Answered: judge.Message{Text: fmt.Sprintf("step %d", i)},
		})
	}
	return a
}

func attempts(calls ...int) (all []judge.Attempt) {
	for k, n := range calls {
		all = append(all, attempt(k, n))
	}
	return all
}

// about returns the attempt that a request is about.
func about(q openai.ChatCompletionRequest) judge.Attempt {
	var a judge.Attempt
	_, document, _ := strings.Cut(q.Messages[1].Content, "\n")
	if err := json.Unmarshal([]byte(document), &a); err != nil {
		panic(err)
	}
	return a
}

// fair scores call i of task k with i + k/10.
func fair(_ int, q openai.ChatCompletionRequest) (int, string) {
	a := about(q)
	var k int
	if _, err := fmt.Sscanf(a.Task, "task %d.", &k); err != nil {
		panic(err)
	}
	scores := make([]float64, len(a.Calls))
	for i := range scores {
		scores[i] = float64(i) + float64(k)/10
	}
	text, err := json.Marshal(scores)
	if err != nil {
		panic(err)
	}
	return http.StatusOK, string(text)
}
