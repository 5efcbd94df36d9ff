package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	openai "github.com/sashabaranov/go-openai"

	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/testsuite/chaos/checker"
	"github.com/fulgurite/fulgurite/testsuite/chaos/processes"
	"github.com/fulgurite/fulgurite/testsuite/scriptedreflector"
)

// reflectionTime is how long the reflector takes for a reply.
const reflectionTime = 700 * time.Millisecond

// firstPrompt is the text that the searches begin with.
const firstPrompt = "Sort the word."

// searchPool are the texts that the synthetic reflector proposes. The quality of a text is
// the share of the tasks that the task model solves with it.
func searchPool() scriptedreflector.Pool {
	proposals := []scriptedreflector.Proposal{{Text: firstPrompt, Quality: 0.2}}
	for i, text := range []string{
		"Sort the given word.", "Which kind is it?", "Say what the word is.", "Name the kind of the word.", "Name the kind, in the plural.",
		"There are few kinds: name the right one.", "Read the word, then name its kind.", "The first word is a hint: name the kind.",
		"Think of what the kinds are, then name one.", "Repeat the kind that the message names.", "Repeat the first word of the message.",
	} {
		proposals = append(proposals, scriptedreflector.Proposal{Text: text, Quality: 0.25 + 0.05*float64(i)})
	}
	return scriptedreflector.Pool{
		Prompts:   map[string][]scriptedreflector.Proposal{"sorter": proposals},
		Critiques: []string{"- It does not say what kinds there are.", "- It does not say what to reply.", "- It is too short."},
	}
}

// searchServers are the task model and the reflector of searches. They live in this
// process, which is not killed, and note all that they are asked. Runs are told apart by the
// name of the model that they ask for.
type searchServers struct {
	pool      scriptedreflector.Pool
	reflector *scriptedreflector.Reflector

	mu        sync.Mutex
	questions []checker.Question
	samples   []checker.Sample
	waiting   int // questions without a reply
}

func newSearchServers(delay time.Duration) (*searchServers, error) {
	s := &searchServers{pool: searchPool()}
	var err error
	s.reflector, err = scriptedreflector.New(scriptedreflector.Options{Pool: s.pool, Seed: 3, Delay: delay, Faults: map[scriptedreflector.Fault]float64{
		scriptedreflector.CutOff: 0.08, scriptedreflector.Unchanged: 0.08, scriptedreflector.Empty: 0.04,
	}})
	return s, err
}

// ServeHTTP implements http.Handler: the reflector is below /reflector, the task model
// elsewhere.
func (s *searchServers) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if path, ok := strings.CutPrefix(r.URL.Path, "/reflector"); ok {
		r.URL.Path = path
		s.reflect(w, r)
		return
	}
	s.sample(w, r)
}

// reflect lets the reflector reply, under a name that it has in no other reply.
func (s *searchServers) reflect(w http.ResponseWriter, r *http.Request) {
	q := checker.Question{Asked: time.Now()}
	body, err := io.ReadAll(r.Body)
	var request map[string]any
	if err != nil || json.Unmarshal(body, &request) != nil {
		http.Error(w, "no request", http.StatusBadRequest)
		return
	}
	q.Run, _ = request["model"].(string)
	delete(request, "model")
	told, err := json.Marshal(request)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	digest := sha256.Sum256(append([]byte(q.Run+"\n"), told...))
	q.Digest = hex.EncodeToString(digest[:])
	s.addWaiting(1)
	defer s.addWaiting(-1)
	r.Body = io.NopCloser(bytes.NewReader(body))
	reply := httptest.NewRecorder()
	s.reflector.ServeHTTP(reply, r)
	var out openai.ChatCompletionResponse
	if reply.Code != http.StatusOK || json.Unmarshal(reply.Body.Bytes(), &out) != nil || len(out.Choices) != 1 {
		w.WriteHeader(max(reply.Code, http.StatusBadRequest))
		_, _ = w.Write(reply.Body.Bytes()) // the client may be gone
		return
	}
	s.mu.Lock()
	q.Model, q.Text = fmt.Sprintf("synthetic-%d", len(s.questions)), out.Choices[0].Message.Content
	s.questions = append(s.questions, q)
	s.mu.Unlock()
	out.Model = q.Model
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(out) // the client may be gone
}

func (s *searchServers) addWaiting(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting += n
}

// busy reports whether the reflector is being asked.
func (s *searchServers) busy() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.waiting > 0
}

// sample is the task model: it solves a share of the tasks that the prompt's quality says,
// and a better prompt solves all that a worse one does.
func (s *searchServers) sample(w http.ResponseWriter, r *http.Request) {
	var in openai.ChatCompletionRequest
	if json.NewDecoder(r.Body).Decode(&in) != nil || len(in.Messages) < 2 || in.Seed == nil {
		http.Error(w, "no request", http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	s.samples = append(s.samples, checker.Sample{Run: in.Model, Seed: uint64(*in.Seed), Asked: time.Now()}) //nolint:gosec // the highest bit is 0
	s.mu.Unlock()
	prompt, _, _ := strings.Cut(in.Messages[0].Content, "\n")
	quality, _ := s.pool.Quality(prompt)
	word := in.Messages[1].Content
	reply, digest := "unknown", sha256.Sum256([]byte(word))
	if float64(binary.LittleEndian.Uint32(digest[:4]))/(1<<32) < quality {
		reply, _, _ = strings.Cut(word, " ")
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(openai.ChatCompletionResponse{ // the client may be gone
		ID: "r", Object: "chat.completion", Model: in.Model, Usage: openai.Usage{PromptTokens: 10, CompletionTokens: 5, TotalTokens: 15},
		Choices: []openai.ChatCompletionChoice{{Message: openai.ChatCompletionMessage{Role: "assistant", Content: reply}, FinishReason: "stop"}},
	})
}

// asked returns what both were asked so far.
func (s *searchServers) asked() ([]checker.Question, []checker.Sample) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.questions), slices.Clone(s.samples)
}

// sorterCommand is the argument that makes this program the agent of searches.
const sorterCommand = "sorter"

// sortWord is an agent that asks for the kind of a word, asks once more, and returns the
// second reply.
func sortWord(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	if len(args) != 1 {
		return errors.New("say how long to think before a call")
	}
	think, err := time.ParseDuration(args[0])
	if err != nil {
		return err
	}
	var task struct {
		Input string `json:"input"`
	}
	if err := json.NewDecoder(in).Decode(&task); err != nil {
		return fmt.Errorf("read task: %w", err)
	}
	config := openai.DefaultConfig(os.Getenv("OPENAI_API_KEY"))
	config.BaseURL = os.Getenv("OPENAI_BASE_URL")
	config.HTTPClient = &http.Client{Transport: slowTransport{http.DefaultTransport, think}}
	model := openai.NewClientWithConfig(config)
	messages := []openai.ChatCompletionMessage{{Role: "system", Content: firstPrompt + "\n\nReply with one word."}, {Role: "user", Content: task.Input}}
	reply := ""
	for range 2 {
		r, err := model.CreateChatCompletion(ctx, openai.ChatCompletionRequest{Model: os.Getenv("OPENAI_MODEL_NAME"), Messages: messages})
		if err != nil {
			return err
		}
		reply = r.Choices[0].Message.Content
		messages = append(messages, openai.ChatCompletionMessage{Role: "assistant", Content: reply}, openai.ChatCompletionMessage{Role: "user", Content: "Are you sure?"})
	}
	_, err = fmt.Fprintln(out, reply)
	return err
}

// searchSpec returns the spec of a search, which asks the servers in the name of a run.
func searchSpec(c scenario, run string, o options) (spec.Spec, error) {
	self, err := os.Executable()
	if err != nil {
		return spec.Spec{}, fmt.Errorf("find the agent: %w", err)
	}
	s := spec.Spec{
		Seed: 7,
		Agent: spec.Agent{
			Command: []string{self, sorterCommand, o.think.String()}, Limits: spec.AgentLimits{Calls: 4, Seconds: 3600},
		},
		Prompts: &spec.Prompts{
			Texts: []spec.PromptText{{Name: "sorter", Text: firstPrompt}},
			Rules: []spec.PromptRule{{Prompt: "sorter", Match: spec.PromptMatch{Prefix: firstPrompt}}},
		},
		Grader:   spec.Grader{Type: "exact"},
		Sampling: spec.Sampling{Server: &spec.Server{Type: spec.ServerOpenAI, URLs: []string{o.search}, Model: run}},
		Optimizer: &spec.PromptOptimizer{
			Algorithm: c.search, Budget: spec.OptimizerBudget{Minibatch: 60, Validation: 120, Reflections: 40},
			Reflector: spec.Reflector{Type: spec.ReflectorOpenAI, URL: o.search + "/reflector/v1", Model: run},
		},
	}
	if c.phases {
		s.Phases = []spec.Phase{{Type: spec.PhasePrompts, Budget: &spec.PhaseBudget{Validation: 70}}, {Type: spec.PhasePrompts}}
	}
	if c.search == spec.AlgorithmAPO {
		s.Optimizer.APO = &spec.APO{Beam: 2, Branch: 2, Rounds: 4, GradientBatch: 3, ValidationBatch: 6}
	}
	for name, split := range map[string]struct {
		path  *string
		count int
	}{"train": {&s.Tasks.Train, 12}, "validation": {&s.Tasks.Validation, 10}, "gate": {&s.Tasks.Gate, 24}, "test": {&s.Tasks.Test, 6}} {
		*split.path = filepath.Join(o.dir, name+".jsonl")
		var text bytes.Buffer
		for i := range split.count {
			kind := []string{"colours", "fruits", "tools", "animals"}[i%4]
			fmt.Fprintf(&text, `{"id":"%s-%d","input":"%s %s%d","answer":"%s"}`+"\n", name, i, kind, name, i, kind)
		}
		if err := os.WriteFile(*split.path, text.Bytes(), 0o644); err != nil {
			return spec.Spec{}, fmt.Errorf("write tasks: %w", err)
		}
	}
	return s.WithDefaults(), nil
}

// searchFaults says how often workers that ask the reflector were killed or suspended.
func (s *suite) searchFaults() int {
	n := 0
	for _, role := range []processes.Role{processes.CPU1, processes.CPU2} {
		n += s.injected.kills[role] + s.injected.hangs[role] + s.faultInjector.endedBy(role)
	}
	return n
}

// searchEvidence collects everything about a search, of which servers know the name model.
// before are the faults of workers before the run.
func (s *suite) searchEvidence(ctx context.Context, name, model string, before int) (checker.SearchEvidence, error) {
	e := checker.SearchEvidence{
		GatewayHangs: s.faultInjector.hangsOf(processes.Gateway), WorkerHangs: s.faultInjector.hangsOf(processes.CPU1, processes.CPU2),
		WorkerFaults: s.searchFaults() - before,
	}
	err := s.retry(ctx, "read store", func(ctx context.Context) (err error) {
		e.Records, err = s.db.SearchRecords(ctx, name)
		return err
	})
	if err != nil {
		return e, err
	}
	err = s.retry(ctx, "read history", func(ctx context.Context) (err error) {
		e.History, err = s.readHistory(ctx, name, e.Records.Execution)
		if err == nil && !e.History.Completed {
			err = errors.New("it has not come to its end") // Temporal may be moments behind the store
		}
		return err
	})
	e.Questions, e.Samples = s.searchServers.asked()
	for i, q := range e.Questions {
		if q.Run == model && during(e.Records, q.Asked) {
			e.Questions[i].Run = name
		}
	}
	for i, a := range e.Samples {
		if a.Run == model && during(e.Records, a.Asked) {
			e.Samples[i].Run = name
		}
	}
	return e, err
}

// during reports whether a search was under way. The searches of phases ask in one name, one
// after the other.
func during(r checker.SearchRecords, at time.Time) bool {
	return !at.Before(r.Begun) && !at.After(r.Ended)
}

// searchBaseline returns the searches of a scenario without faults.
func (s *suite) searchBaseline(ctx context.Context, c scenario) ([]checker.SearchEvidence, error) {
	if e, ok := s.searches[c.name]; ok {
		return e, nil
	}
	name := "baseline-" + c.name
	before := s.searchFaults()
	if err := s.train(ctx, name, c, ""); err != nil {
		return nil, err
	}
	e, err := s.checkSearches(ctx, name, c, before, nil)
	s.searches[c.name] = e
	return e, err
}

// searchWithFaults makes the searches of a scenario, injects faults and compares them with the
// baseline.
func (s *suite) searchWithFaults(ctx context.Context, name string, c scenario) error {
	baseline, err := s.searchBaseline(ctx, c)
	if err != nil {
		return err
	}
	s.logf("run %s begins: %s", name, c.name)
	began, before, kills := time.Now(), s.searchFaults(), s.injected.total
	if err := s.startRun(ctx, name, c, ""); err != nil {
		return err
	}
	runs := c.runs(name)
	if err := s.injectFaults(ctx, runs[len(runs)-1], c); err != nil {
		return err
	}
	for _, run := range runs {
		if err := s.awaitRun(ctx, run); err != nil {
			return err
		}
		s.recordDuration(run, began)
	}
	s.logf("run %s is complete after %.1f s and %d kills", name, time.Since(began).Seconds(), s.injected.total-kills)
	_, err = s.checkSearches(ctx, name, c, before, baseline)
	return err
}

// checkSearches runs the checker on the completed searches of a scenario. If there is a
// baseline, it compares the two, and it has the checker prove that it would notice what can be
// wrong.
func (s *suite) checkSearches(ctx context.Context, name string, c scenario, before int, baseline []checker.SearchEvidence) (all []checker.SearchEvidence, err error) {
	for i, run := range c.runs(name) {
		e, err := s.searchEvidence(ctx, run, name, before)
		if err != nil {
			return nil, fmt.Errorf("check run %s: %w", run, err)
		}
		for _, before := range all {
			e.Earlier = append(e.Earlier, before.Records.Reflections...)
		}
		all = append(all, e)
		v := runResult{Findings: checker.CheckSearch(e), Seconds: s.seconds[run], DigestEqual: true, Generations: countSamples(e.Samples, run)}
		if baseline != nil {
			v.Differences = checker.DifferSearch(baseline[i], e)
			v.DigestEqual = len(v.Differences) == 0
			unnoticed, err := checker.Unnoticed(baseline[i], e)
			if err != nil {
				return nil, err
			}
			v.Wrong = append(v.Wrong, unnoticed...)
		}
		s.report.Runs = append(s.report.Runs, v)
	}
	if !c.phases {
		return all, nil
	}
	wrong, err := s.checkPhases(ctx, name, all)
	last := &s.report.Runs[len(s.report.Runs)-1]
	last.Wrong = append(last.Wrong, wrong...)
	return all, err
}

// checkPhases compares what a PhasesWorkflow returned with its searches, of which each but the
// first has to begin with what the one before it promoted.
func (s *suite) checkPhases(ctx context.Context, name string, all []checker.SearchEvidence) (wrong []string, err error) {
	var result struct {
		Phases []struct {
			Run      string `json:"run"`
			Status   string `json:"status"`
			Promoted *int   `json:"promoted"`
		} `json:"phases"`
	}
	err = s.retry(ctx, "read the result of "+name, func(ctx context.Context) error {
		return s.temporal.GetWorkflow(ctx, name, "").Get(ctx, &result)
	})
	if err != nil {
		return nil, err
	}
	if len(result.Phases) != len(all) {
		return []string{fmt.Sprintf("%s returned %d phases, and there are %d", name, len(result.Phases), len(all))}, nil
	}
	if all[0].Records.Promoted == 0 {
		wrong = append(wrong, all[0].Records.Run+" promoted nothing with which the next could begin")
	}
	start := ""
	for i, phase := range result.Phases {
		r := all[i].Records
		if phase.Run != r.Run || phase.Status != "completed" || phase.Promoted == nil || *phase.Promoted != r.Promoted {
			wrong = append(wrong, fmt.Sprintf("phase %d of %s returned %+v, and %s promoted version %d", i+1, name, phase, r.Run, r.Promoted))
		}
		if r.Start != start {
			wrong = append(wrong, fmt.Sprintf("%s began with %q, and the phase before it promoted %q", r.Run, r.Start, start))
		}
		start = fmt.Sprintf("%s@%d", r.Run, r.Promoted)
	}
	return wrong, nil
}

func countSamples(all []checker.Sample, run string) int {
	n := 0
	for _, one := range all {
		if one.Run == run {
			n++
		}
	}
	return n
}
