// Package randomjudge is an LLM judge for tests. It never gives the same scores twice,
// and sometimes gives none. So if two runs have equal judgments, the second one got them
// from the record.
package randomjudge

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/sashabaranov/go-openai"
)

// Answer is a request to the judge and its reply.
type Answer struct {
	Question string // a digest
	Asked    time.Time
	Scores   []float64 // unique; nil for an error or nonsense
}

// Judge serves OpenAI's API and records all requests.
type Judge struct {
	delay   time.Duration
	mu      sync.Mutex
	answers []Answer
	waiting int
}

// New returns a judge that answers after a delay.
func New(delay time.Duration) *Judge { return &Judge{delay: delay} }

// Answers returns all answers so far.
func (j *Judge) Answers() []Answer {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.answers)
}

// Busy reports whether a request is waiting for its answer.
func (j *Judge) Busy() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.waiting > 0
}

// One of so many requests is answered with an error, or with nonsense.
const (
	errorEvery    = 11
	nonsenseEvery = 7
)

// ServeHTTP implements http.Handler.
func (j *Judge) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Retry-After", "0")
	var q openai.ChatCompletionRequest
	var calls int
	if json.NewDecoder(r.Body).Decode(&q) != nil || len(q.Messages) < 2 {
		http.Error(w, "no request", http.StatusBadRequest)
		return
	}
	if _, err := fmt.Sscanf(q.Messages[1].Content, "Calls to score: %d.", &calls); err != nil {
		http.Error(w, "no number of calls", http.StatusBadRequest)
		return
	}
	j.count(1)
	defer j.count(-1)
	text, status := j.answer(q.Messages[0].Content+"\n"+q.Messages[1].Content, calls)
	select {
	case <-time.After(j.delay):
	case <-r.Context().Done(): // nobody waits any more
		return
	}
	if status != http.StatusOK {
		http.Error(w, text, status)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(openai.ChatCompletionResponse{
		Choices: []openai.ChatCompletionChoice{{Message: openai.ChatCompletionMessage{Role: "assistant", Content: text}}},
	})
}

func (j *Judge) count(n int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.waiting += n
}

// answer decides on an answer by the number of those before.
func (j *Judge) answer(question string, calls int) (text string, status int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	sum := sha256.New()
	_, _ = io.WriteString(sum, question)
	a, k := Answer{Question: hex.EncodeToString(sum.Sum(nil)), Asked: time.Now()}, len(j.answers)+1
	text, status = "I am not sure.", http.StatusOK
	switch {
	case k%errorEvery == 0:
		text, status = "not now", http.StatusInternalServerError
	case k%nonsenseEvery > 0:
		a.Scores = make([]float64, calls)
		for i := range a.Scores {
			a.Scores[i] = float64((k*7+i*3)%20)/2 + float64(k)*1e-6
		}
		data, err := json.Marshal(a.Scores)
		if err != nil {
			text, status = err.Error(), http.StatusInternalServerError
			break
		}
		text = string(data)
	}
	j.answers = append(j.answers, a)
	return text, status
}
