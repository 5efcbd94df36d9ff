// Package randomjudge is a judge of calls for tests that never says the same twice, and at
// times nothing of use: what two runs have in common they can't have from asking it
// twice.
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

// Answer is something that a judge was asked.
type Answer struct {
	Question string // a digest
	Asked    time.Time
	Scores   []float64 // as no other answer has them; nil if it said nothing of use
}

// Judge speaks OpenAI's API. It keeps an account of all it was asked.
type Judge struct {
	thought time.Duration
	mu      sync.Mutex
	answers []Answer
	open    int
}

// New returns a judge that thinks about each question for a time.
func New(thought time.Duration) *Judge { return &Judge{thought: thought} }

// Answers are all so far.
func (j *Judge) Answers() []Answer {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.answers)
}

// Thinking reports whether somebody waits for an answer.
func (j *Judge) Thinking() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.open > 0
}

// Every so many questions are answered by an error of the server, and by nonsense.
const (
	perError    = 11
	perNonsense = 7
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
	case <-time.After(j.thought):
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
	j.open += n
}

// answer decides on an answer by how many there were before.
func (j *Judge) answer(question string, calls int) (text string, status int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	sum := sha256.New()
	_, _ = io.WriteString(sum, question)
	a, k := Answer{Question: hex.EncodeToString(sum.Sum(nil)), Asked: time.Now()}, len(j.answers)+1
	text, status = "I am not sure.", http.StatusOK
	switch {
	case k%perError == 0:
		text, status = "not now", http.StatusInternalServerError
	case k%perNonsense > 0:
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
