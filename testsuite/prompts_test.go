package testsuite_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sashabaranov/go-openai"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"

	"github.com/fulgurite/fulgurite/agent"
	"github.com/fulgurite/fulgurite/prompts/search"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/promptsearch"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/workers/stack"
	"github.com/fulgurite/fulgurite/workflows"
)

// The words that make a prompt of the sorter better, each by a quarter of the tasks.
const (
	hint1, hint2, hint3 = "colours", "fruits", "tools"
)

// sortWord is an agent that asks a model for the kind of a word. Its system message is an
// instruction and then something else.
func sortWord(ctx context.Context, task agent.Task, env agent.Env) (string, error) {
	config := openai.DefaultConfig(env.Key)
	config.BaseURL = env.BaseURL
	r, err := openai.NewClientWithConfig(config).CreateChatCompletion(ctx, openai.ChatCompletionRequest{
		Model: env.Model, Messages: []openai.ChatCompletionMessage{
			{Role: "system", Content: "Sort the word.\n\nReply with one word."}, {Role: "user", Content: task.Input},
		},
	})
	if err != nil {
		return "", err
	}
	return r.Choices[0].Message.Content, nil
}

// sorterModel is a server that knows the kind of a word if the prompt names that kind. It
// sees what the agent's gateway sends.
func sorterModel(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var in openai.ChatCompletionRequest
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil || len(in.Messages) < 2 {
			http.Error(w, "bad request", http.StatusBadRequest)
			return
		}
		kind, _, _ := strings.Cut(in.Messages[1].Content, " ")
		reply := "unknown"
		if strings.Contains(in.Messages[0].Content, kind) || kind == "animals" {
			reply = kind
		}
		writeReply(w, in.Model, reply)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func writeReply(w http.ResponseWriter, model, text string) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(openai.ChatCompletionResponse{
		ID: "r", Object: "chat.completion", Model: model, Usage: openai.Usage{PromptTokens: 10, CompletionTokens: 5, TotalTokens: 15},
		Choices: []openai.ChatCompletionChoice{{Message: openai.ChatCompletionMessage{Role: "assistant", Content: text}, FinishReason: "stop"}},
	})
}

// between finds the prompt that a reflector is shown.
var between = regexp.MustCompile(`(?s)<prompt>\n(.*?)\n</prompt>`)

// readsPrompt is how an attempt shows the request of sortWord, whose prompt is to be improved.
const readsPrompt = "Call 1, which reads this prompt\nsystem:\n| [the prompt sorter]\n| \n| Reply with one word.\nuser:\n"

// hintingReflector is a server that adds to a prompt a word that may help, which it chooses
// by what it is told. Every fifth of its replies is of no use.
func hintingReflector(t *testing.T, asked *atomic.Int64) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var in openai.ChatCompletionRequest
		if err != nil || json.Unmarshal(body, &in) != nil {
			http.Error(w, "bad request", http.StatusBadRequest)
			return
		}
		last := in.Messages[len(in.Messages)-1].Content
		if strings.Contains(last, "Attempt 1 of ") && !strings.Contains(last, readsPrompt) {
			http.Error(w, "the attempts don't say where the prompt stood", http.StatusBadRequest)
			return
		}
		asked.Add(1)
		h := fnv.New32a()
		_, _ = h.Write(body)
		n := h.Sum32() / 7
		if strings.Contains(in.Messages[0].Content, "review one of the prompts") {
			writeReply(w, in.Model, fmt.Sprintf("- It does not say what kinds there are (%d).", n%10))
			return
		}
		prompt := between.FindStringSubmatch(last)[1]
		words := []string{hint1, hint2, hint3, "stones", "nothing"}
		word := words[n%uint32(len(words))]
		if n%5 == 4 {
			writeReply(w, in.Model, "I would rather not.")
			return
		}
		writeReply(w, in.Model, "Here it is:\n```\n"+prompt+" There are "+word+".\n```")
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// optimizing returns the spec of a search on a server's model.
func optimizing(t *testing.T, algorithm, reflector string) spec.Spec {
	t.Helper()
	dir := t.TempDir()
	file := func(name string, n int) string {
		var b bytes.Buffer
		for i := range n {
			kind := []string{hint1, hint2, hint3, "animals"}[i%4]
			fmt.Fprintf(&b, `{"id":"%s-%d","input":"%s %s%d","answer":"%s"}`+"\n", name, i, kind, name, i, kind)
		}
		path := filepath.Join(dir, name+".jsonl")
		require.NoError(t, os.WriteFile(path, b.Bytes(), 0o600))
		return path
	}
	var apo *spec.APO
	if algorithm == spec.AlgorithmAPO {
		apo = &spec.APO{Beam: 2, Branch: 3, Rounds: 8, GradientBatch: 3, ValidationBatch: 8}
	}
	return spec.Spec{
		Seed:  5,
		Agent: spec.Agent{Func: "sorter"},
		Prompts: &spec.Prompts{
			Texts: []spec.PromptText{{Name: "sorter", Text: "Sort the word."}},
			Rules: []spec.PromptRule{{Prompt: "sorter", Match: spec.PromptMatch{Prefix: "Sort the word."}}},
		},
		Tasks:    spec.Tasks{Train: file("train", 12), Validation: file("validation", 8), Gate: file("gate", 24), Test: file("test", 8)},
		Grader:   spec.Grader{Type: "exact"},
		Sampling: spec.Sampling{Server: &spec.Server{Type: spec.ServerOpenAI, URLs: []string{sorterModel(t)}, Model: "sorter-1"}},
		Optimizer: &spec.PromptOptimizer{
			Algorithm: algorithm, Budget: spec.OptimizerBudget{Minibatch: 1000, Validation: 400, Reflections: 150}, APO: apo,
			Reflector: spec.Reflector{Type: spec.ReflectorOpenAI, URL: reflector + "/v1", Model: "writer-1"},
		},
	}.WithDefaults()
}

func optimize(ctx context.Context, st *stack.Stack, name string, s spec.Spec) (workflows.TrainingResult, error) {
	var out workflows.TrainingResult
	data, err := json.Marshal(s)
	if err != nil {
		return out, err
	}
	run, err := st.Client.ExecuteWorkflow(ctx, client.StartWorkflowOptions{
		ID: name, TaskQueue: workflows.QueueTraining, WorkflowIDConflictPolicy: enums.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING,
	}, "PromptWorkflow", workflows.TrainingInput{Spec: data})
	if err != nil {
		return out, err
	}
	return out, run.Get(ctx, &out)
}

func TestPromptsAreImprovedThroughEverythingReal(t *testing.T) {
	t.Parallel()
	for _, algorithm := range []string{spec.AlgorithmGEPA, spec.AlgorithmAPO} {
		t.Run(algorithm, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			st := sharedStack(t)
			var asked atomic.Int64
			name := "optimize-" + algorithm
			s := optimizing(t, algorithm, hintingReflector(t, &asked))
			result, err := optimize(ctx, st, name, s)
			require.NoError(t, err)

			require.NotNil(t, result.SearchEnd)
			require.Equal(t, search.EndSolved, result.SearchEnd.Reason)
			require.InDelta(t, 0.25, *result.SearchEnd.SeedScore, 1e-9)
			require.InDelta(t, 1, *result.SearchEnd.Score, 1e-9)
			require.Equal(t, 1, result.Promoted, "the winner passed the test on the gate split")
			require.InDelta(t, 0.25, result.Before.Mean, 1e-9)
			require.InDelta(t, 1, result.After.Mean, 1e-9)

			version, err := st.Store.PromptVersion(ctx, name, 1)
			require.NoError(t, err)
			require.Equal(t, result.SearchEnd.Prompts, version.Prompts)
			set, err := st.Prompts.Set(version.Prompts)
			require.NoError(t, err)
			text, err := set.Prompts().Text("sorter")
			require.NoError(t, err)
			for _, word := range []string{"Sort the word.", hint1, hint2, hint3} {
				require.Contains(t, text, word)
			}
			requireAccount(ctx, t, st, name, result, int(asked.Load()))
			requireTree(ctx, t, st, name)
		})
	}
}

// requireTree checks what views read of a search.
func requireTree(ctx context.Context, t *testing.T, st *stack.Stack, name string) {
	t.Helper()
	s, err := promptsearch.Read(ctx, st.Store, name)
	require.NoError(t, err)
	require.NotNil(t, s.Done)
	require.Equal(t, 1, s.Promoted)
	best, ok := s.Best()
	require.True(t, ok)
	require.Equal(t, s.Done.Winner.ID, best.ID)
	require.Equal(t, 1, best.Version)
	require.True(t, best.Best)
	require.Len(t, best.Scores, 8)
	require.Equal(t, 0, s.Candidates[0].Number)
	require.Equal(t, 0, s.Candidates[0].Version)
	for _, c := range s.Candidates[1:] {
		require.NotEmpty(t, c.Parents)
		require.Less(t, c.Parents[0], c.Number, "parents come first")
		require.False(t, c.Decided.IsZero())
		if c.Merge {
			continue
		}
		asked := s.Reflections(c)
		require.NotEmpty(t, asked, "somebody wrote %s", c.ID)
		reply, err := s.Reply(ctx, st.Store, asked[len(asked)-1].ID)
		require.NoError(t, err)
		text, _ := c.Text("sorter")
		require.Contains(t, reply.Reply.Text, text)
	}
	found, ok := s.Find(best.ID[:15])
	require.True(t, ok)
	require.Equal(t, best.Number, found.Number)
}

// requireAccount checks that the budget was spent as the records say, and that each reply
// was paid once.
func requireAccount(ctx context.Context, t *testing.T, st *stack.Stack, name string, result workflows.TrainingResult, asked int) {
	t.Helper()
	reflections, err := st.Store.Reflections(ctx, name)
	require.NoError(t, err)
	require.Len(t, reflections, asked, "each reply is asked for once")
	spent := map[record.Kind]int{}
	answers, err := st.Store.SearchAnswers(ctx, name, 0)
	require.NoError(t, err)
	replies := 0
	for _, a := range answers {
		var answer search.Answer
		require.NoError(t, json.Unmarshal(a.Answer, &answer))
		if a.Reflection != "" {
			replies++
		}
		for _, r := range answer.Results {
			for _, attempt := range r.Attempts {
				address, err := record.ParseAddress(attempt.Trace)
				require.NoError(t, err)
				spent[address.Kind]++
			}
		}
	}
	require.Equal(t, search.Budget{Minibatch: spent[record.Minibatch], Validation: spent[record.Validation], Reflections: replies}, result.Search.Spent)
}

func TestASearchResetAnywhereEndsInTheSameWinner(t *testing.T) {
	t.Parallel()
	skipShort(t, "it shows nothing of goroutines that other searches don't")
	for _, algorithm := range []string{spec.AlgorithmGEPA, spec.AlgorithmAPO} {
		t.Run(algorithm, func(t *testing.T) {
			t.Parallel()
			if algorithm == spec.AlgorithmAPO {
				skipKind(t, "a search by GEPA shows it")
			}
			ctx := t.Context()
			st := sharedStack(t)
			var asked atomic.Int64
			name := "optimize-reset-" + algorithm
			s := optimizing(t, algorithm, hintingReflector(t, &asked))
			want, err := optimize(ctx, st, name, s)
			require.NoError(t, err)
			require.Equal(t, 1, want.Promoted)
			first := firstExecution(ctx, t, st.Client, name)
			ids, kinds := points(eventsOf(ctx, t, st.Client, name))
			var seen []string
			for _, event := range ids {
				if slices.Contains(seen, kinds[event]) {
					continue
				}
				seen = append(seen, kinds[event])
				run, err := reset(ctx, st.Client, name, first, event)
				require.NoError(t, err)
				var got workflows.TrainingResult
				require.NoError(t, st.Client.GetWorkflow(ctx, name, run).Get(ctx, &got), "reset to event %d: %s", event, kinds[event])
				require.Equal(t, want, got, "reset to event %d: %s", event, kinds[event])
			}
			require.Subset(t, seen, []string{"PrepareRun", "StepSearch", "CandidateWorkflow", "AskReflector", "EvaluationWorkflow", "DecidePromotion", "PromoteVersion", "FinishRun"})
			requireAccount(ctx, t, st, name, want, int(asked.Load()))
		})
	}
}

func TestASearchThatIsStoppedKeepsTheBestSoFar(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	st := sharedStack(t)
	var asked atomic.Int64
	s := optimizing(t, spec.AlgorithmGEPA, hintingReflector(t, &asked))
	s.Optimizer.Perfect = new(float64)
	*s.Optimizer.Perfect = 2 // so that it goes on
	s.Optimizer.Budget = spec.OptimizerBudget{Minibatch: 40000, Validation: 40000, Reflections: 40000}
	ended := make(chan error, 1)
	var result workflows.TrainingResult
	go func() {
		var err error
		result, err = optimize(ctx, st, "optimize-stop", s)
		ended <- err
	}()
	require.Eventually(t, func() bool { return asked.Load() > 15 }, 5*time.Minute, 20*time.Millisecond)
	update(ctx, t, st, "optimize-stop", workflows.UpdateStop, workflows.ControlInput{By: "ada"})
	require.NoError(t, <-ended)
	require.Equal(t, search.EndStopped, result.SearchEnd.Reason)
	require.Equal(t, "ada", result.Stopped.By)
	require.Equal(t, 1, result.SearchEnd.Version, "it had found something better")
	run, err := st.Store.Run(ctx, "optimize-stop")
	require.NoError(t, err)
	require.Equal(t, record.Stopped, run.Status)
}

func TestSearchesThatCanNotBeMadeAreRefusedBeforeAnythingBegins(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	st := sharedStack(t)
	for name, c := range map[string]struct {
		change func(*spec.Spec)
		want   string
	}{
		"budget":     {func(s *spec.Spec) { s.Optimizer.Budget.Validation = 9 }, "too small for a single candidate"},
		"validation": {func(s *spec.Spec) { s.Tasks.Validation = "" }, "tasks.validation"},
		"optimizer":  {func(s *spec.Spec) { s.Optimizer = nil }, "optimizer"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var asked atomic.Int64
			s := optimizing(t, spec.AlgorithmGEPA, hintingReflector(t, &asked))
			c.change(&s)
			_, err := optimize(ctx, st, "optimize-refused-"+name, s)
			require.ErrorContains(t, err, c.want)
			run, err := st.Store.Run(ctx, "optimize-refused-"+name)
			require.NoError(t, err)
			require.Equal(t, record.Refused, run.Status)
			require.Zero(t, asked.Load())
		})
	}
	var asked atomic.Int64
	s := optimizing(t, spec.AlgorithmGEPA, hintingReflector(t, &asked))
	_, err := train(ctx, st, "optimize-refused-training", s)
	require.ErrorContains(t, err, "PromptWorkflow")
}
