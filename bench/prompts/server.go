package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/sashabaranov/go-openai"

	"github.com/fulgurite/fulgurite/prompts/reflector"
	"github.com/fulgurite/fulgurite/prompts/search"
	"github.com/fulgurite/fulgurite/testsuite/scriptedreflector"
)

// reflectors serves the scripted reflector of each world below /SEED/v1.
func reflectors(worlds []*world) (http.Handler, error) {
	mux := http.NewServeMux()
	for _, w := range worlds {
		r, err := scriptedreflector.New(scriptedreflector.Options{Pool: w.pool(), Seed: w.seed})
		if err != nil {
			return nil, err
		}
		prefix := fmt.Sprintf("/%d", w.seed)
		mux.Handle(prefix+"/", http.StripPrefix(prefix, r))
	}
	return mux, nil
}

// other serves one search of another product: the scripted model below /attempts, and the
// scripted reflector, for questions in that product's words, below /v1.
type other struct {
	reflect reflector.Reflector
	mux     http.ServeMux

	mu       sync.Mutex
	rollouts *rollouts
	asked    map[string]int // equal questions so far
}

func newOther(r *rollouts, from reflector.Reflector) *other {
	o := &other{reflect: from, rollouts: r, asked: map[string]int{}}
	o.mux.HandleFunc("POST /attempts", o.attempt)
	o.mux.HandleFunc("POST /v1/chat/completions", o.complete)
	return o
}

// ServeHTTP is part of http.Handler.
func (o *other) ServeHTTP(w http.ResponseWriter, r *http.Request) { o.mux.ServeHTTP(w, r) }

func (o *other) attempt(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Prompt string `json:"prompt"`
		Split  string `json:"split"`
		Item   int    `json:"item"`
	}
	err := json.NewDecoder(r.Body).Decode(&in)
	if err == nil && (in.Item < 0 || in.Item >= len(o.rollouts.world.items[in.Split])) {
		err = fmt.Errorf("split %q has no item %d", in.Split, in.Item)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	o.mu.Lock()
	out := o.rollouts.attempt(in.Prompt, in.Split, in.Item)
	o.mu.Unlock()
	send(w, out)
}

// complete replies to a question in another product's words as the scripted reflector
// replies to ours about the same prompt. Each question is a new try, as with a model that
// samples.
func (o *other) complete(w http.ResponseWriter, r *http.Request) {
	var in openai.ChatCompletionRequest
	err := json.NewDecoder(r.Body).Decode(&in)
	var asked search.Request
	if err == nil {
		asked, err = o.rollouts.world.understand(in.Messages)
	}
	var text string
	if err == nil {
		text, err = o.ask(r, asked)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	send(w, openai.ChatCompletionResponse{
		ID: "synthetic", Object: "chat.completion", Model: in.Model,
		Choices: []openai.ChatCompletionChoice{{
			Message: openai.ChatCompletionMessage{Role: openai.ChatMessageRoleAssistant, Content: text}, FinishReason: openai.FinishReasonStop,
		}},
	})
}

func (o *other) ask(r *http.Request, asked search.Request) (string, error) {
	rendered, err := search.Render(asked, nil, nil, shownBytes)
	if err != nil {
		return "", err
	}
	q := reflector.Question{System: rendered.System, User: rendered.User}
	o.mu.Lock()
	q.Try = o.asked[q.User]
	o.asked[q.User]++
	o.mu.Unlock()
	reply, err := o.reflect.Reflect(r.Context(), q)
	if err != nil || asked.Kind == search.Critique {
		return reply.Text, err
	}
	// The other product takes a reply as it is, so it gets the text without its fence.
	text, why := search.ReadText(search.Reply{Text: reply.Text, CutOff: reply.CutOff}, search.Rules{})
	if why != "" {
		return "", fmt.Errorf("the scripted reflector's reply is %s", why)
	}
	return text, nil
}

// understand returns what messages of another product ask for. The prompt in them begins
// with the opening and ends before the first line that no prompt of this world has. A
// question with one of the critiques asks for an edit.
func (w *world) understand(messages []openai.ChatCompletionMessage) (search.Request, error) {
	var all strings.Builder
	for _, m := range messages {
		all.WriteString(m.Content + "\n")
		for _, part := range m.MultiContent {
			all.WriteString(part.Text + "\n")
		}
	}
	var lines []string
	for text := range strings.Lines(all.String()) {
		lines = append(lines, strings.TrimSpace(text))
	}
	first := slices.Index(lines, opening)
	if first < 0 || slices.Contains(lines[first+1:], opening) {
		return search.Request{}, fmt.Errorf("want a question with one prompt, not %q", all.String())
	}
	last := first + 1
	for last < len(lines) && slices.Contains(slices.Concat(useful(), harmful(), neutral()), lines[last]) {
		last++
	}
	prompt := search.Prompt{Name: name, Text: strings.Join(lines[first:last], "\n")}
	r := search.Request{Kind: search.Critique, Candidate: search.NewCandidate([]search.Prompt{prompt}), Prompt: name}
	for _, critique := range critiques() {
		if strings.Contains(all.String(), critique) {
			r.Kind, r.Critique = search.Edit, critique
		}
	}
	return r, nil
}

func send(w http.ResponseWriter, body any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(body) // the client may be gone
}
