package atif_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/atif"
	"github.com/fulgurite/fulgurite/run/dataset"
	"github.com/fulgurite/fulgurite/store"
	"github.com/fulgurite/fulgurite/store/blob"
	"github.com/fulgurite/fulgurite/tasks"
)

// recorded is a run in the making.
type recorded struct {
	*testing.T
	db      *store.Store
	source  atif.Source
	rewards []record.Reward // that agents give
}

// begun returns a run without attempts whose train split has one task.
func begun(t *testing.T) recorded {
	t.Helper()
	ctx := t.Context()
	db, err := store.Open(ctx, filepath.Join(t.TempDir(), "store.db"), zap.NewNop())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	require.NoError(t, db.Migrate(ctx))
	blobs, err := blob.Open(t.TempDir())
	require.NoError(t, err)
	text, err := json.Marshal(tasks.Task{ID: "four", Input: "two and two?", Answer: "4"})
	require.NoError(t, err)
	digest, err := blobs.Put(ctx, text)
	require.NoError(t, err)
	_, _, err = db.CreateRun(ctx, record.Run{
		Name: "demo", WorkflowID: "demo", ExecutionID: "x", Spec: json.RawMessage(`{}`), Status: record.Running, Created: time.Now(),
		Splits: map[record.Kind]record.Split{record.Train: {Digest: digest, Count: 1}},
	})
	require.NoError(t, err)
	return recorded{t, db, atif.Source{Store: db, Blobs: blobs, Run: "demo", Policy: "main"}, nil}
}

// attempt records an attempt at a sample with its calls, and its end.
func (r recorded) attempt(sample int, end record.Attempt, calls ...record.Exchange) {
	r.Helper()
	ctx := r.Context()
	rollout := record.RolloutID{Run: "demo", Kind: record.Train, Step: 1, Sample: sample}
	address, err := r.db.BeginAttempt(ctx, rollout, "four", record.Terms{Policy: "main", Version: 3}, "hash")
	require.NoError(r, err)
	for i, c := range calls {
		c.Address, c.Seq, c.Key = address, i, fmt.Sprintf("k%d", i)
		if c.Policy == "" {
			c.Policy, c.Version = "main", 3
		}
		c.Weights, c.Temperature, c.Started = "w", 1, time.Date(2026, 1, 2, 3, 4, i, 0, time.UTC)
		if c.Finish == "" {
			c.Finish = "stop"
		}
		if len(c.Completion) == 0 {
			c.Prompt, c.Completion, c.Logprobs = []int32{1, 2}, []int32{3}, []float32{-0.5}
			if c.Parent >= 0 {
				c.Prompt = slices.Concat(calls[c.Parent].Prompt, calls[c.Parent].Completion, []int32{9})
			}
		}
		calls[i] = c
		require.NoError(r, r.db.AppendCall(ctx, &c))
	}
	for _, given := range r.rewards {
		given.Address, given.Source = address, "agent"
		require.NoError(r, r.db.PutReward(ctx, given))
	}
	end.Address = address
	require.NoError(r, r.db.SealAttempt(ctx, end))
}

// documents writes the run and reads it back: as it is, and as JSON of any kind, which
// keeps the rules of the format.
func (r recorded) documents() []atif.Trajectory {
	r.Helper()
	path := filepath.Join(r.TempDir(), "out.jsonl")
	n, err := dataset.WriteLines(r.Context(), path, r.source.Trajectories)
	require.NoError(r, err)
	data, err := os.ReadFile(path)
	require.NoError(r, err)
	var out []atif.Trajectory
	for line := range bytes.Lines(data) {
		var one atif.Trajectory
		require.NoError(r, json.Unmarshal(line, &one))
		out = append(out, one)
		var document object
		require.NoError(r, json.Unmarshal(line, &document))
		require.Empty(r, violations(document))
	}
	require.Len(r, out, n)
	return out
}

// asked and answered are the bodies of a call of chat completions.
func asked(body string) json.RawMessage {
	return json.RawMessage(`{"model":"m","messages":[` + body + `]}`)
}

func answered(message string) json.RawMessage {
	return json.RawMessage(`{"choices":[{"message":` + message + `}]}`)
}

const (
	instructed = `{"role":"system","content":"You add."},{"role":"user","content":"two and two?"}`
	calling    = `{"role":"assistant","content":"","tool_calls":[{"id":"call_1","type":"function","function":{"name":"add","arguments":"{\"a\":2}"}}]}`
)

func completed(reward float64, result string) record.Attempt {
	return record.Attempt{Outcome: record.OutcomeCompleted, Reward: &reward, Result: result}
}

func TestAConversationWithToolsIsOneTrajectory(t *testing.T) {
	t.Parallel()
	r := begun(t)
	r.rewards = []record.Reward{{Name: "style", Value: 1}, {Name: "useful", Value: 2, CallID: "chatcmpl-b"}}
	end := completed(0.5, "4")
	end.Verdict = "Half of it."
	r.attempt(0, end,
		record.Exchange{
			Call: record.Call{ID: "chatcmpl-a", Parent: -1, Prompt: []int32{1, 2}, Completion: []int32{3, 4}, Logprobs: []float32{-0.5, 0}, Untrained: []bool{false, true},
				Form: json.RawMessage(`{"codec":"compact","schema":{"type":"object"}}`)},
			Request:  json.RawMessage(`{"model":"m","messages":[` + instructed + `],"tools":[{"type":"function","function":{"name":"add","description":"Adds.","parameters":{"type":"object"}}}]}`),
			Response: answered(`{"role":"assistant","content":"","reasoning_content":"I add.","tool_calls":[{"id":"call_1","type":"function","function":{"name":"add","arguments":"{\"a\":2}"}}]}`),
		},
		record.Exchange{
			Call:     record.Call{ID: "chatcmpl-b", Parent: 0, Prompt: []int32{1, 2, 3, 4, 5}, Completion: []int32{6}, Logprobs: []float32{-2}, Finish: record.FinishLength, ParseError: "cut off"},
			Request:  asked(instructed + `,` + calling + `,{"role":"tool","tool_call_id":"call_1","content":"4"},{"role":"user","content":"so?"}`),
			Response: answered(`{"role":"assistant","content":"fo"}`),
		},
	)

	one, half := 1, 0.5
	call := atif.Call{Call: 0, ID: "chatcmpl-a", API: "chat", Policy: "main", Version: 3, Weights: "w", Finish: "stop"}
	last := atif.Call{Call: 1, ID: "chatcmpl-b", API: "chat", Policy: "main", Version: 3, Weights: "w", Finish: "length", ParseError: "cut off", Rewards: map[string]float64{"useful": 2}}
	got := r.documents()
	require.Len(t, got, 1)
	require.Regexp(t, "^agent-[0-9a-f]{8}$", got[0].Agent.Extra.Agent)
	got[0].Agent.Extra.Agent = "digest"
	const begun, later = "2026-01-02T03:04:00.000000Z", "2026-01-02T03:04:01.000000Z"
	require.Empty(t, cmp.Diff(atif.Trajectory{
		SchemaVersion: "ATIF-v1.7", SessionID: "demo/train-1/0/0/1", TrajectoryID: "demo/train-1/0/0/1",
		Agent: atif.Agent{
			Name: "demo", Version: "3", ModelName: "demo@3", Extra: &atif.AgentExtra{Agent: "digest", Source: "instructions"},
			Tools: []atif.Tool{{Type: "function", Function: atif.Function{Name: "add", Description: "Adds.", Parameters: json.RawMessage(`{"type":"object"}`)}}},
		},
		Steps: []atif.Step{
			{ID: 1, Timestamp: begun, Source: "system", Message: "You add."},
			{ID: 2, Timestamp: begun, Source: "user", Message: "two and two?"},
			{
				ID: 3, Timestamp: begun, Source: "agent", Reasoning: "I add.", LLMCalls: &one, Extra: &call,
				ToolCalls:   []atif.ToolCall{{ID: "call_1", Function: "add", Arguments: json.RawMessage(`{"a":2}`)}},
				Observation: &atif.Observation{Results: []atif.Result{{SourceCallID: "call_1", Content: "4"}}},
				Metrics: &atif.Metrics{
					PromptTokens: 2, CompletionTokens: 2, PromptIDs: []int32{1, 2}, CompletionIDs: []int32{3, 4}, Logprobs: []float32{-0.5, 0},
					Extra: atif.SampledWith{Temperature: 1, Forced: []int32{0, 1}, Form: json.RawMessage(`{"codec":"compact","schema":{"type":"object"}}`)},
				},
			},
			{ID: 4, Timestamp: later, Source: "user", Message: "so?"},
			{
				ID: 5, Timestamp: later, Source: "agent", Message: "fo", LLMCalls: &one, Extra: &last,
				Metrics: &atif.Metrics{PromptTokens: 5, CompletionTokens: 1, PromptIDs: []int32{1, 2, 3, 4, 5}, CompletionIDs: []int32{6}, Logprobs: []float32{-2}, Extra: atif.SampledWith{Temperature: 1}},
			},
		},
		Final: atif.FinalMetrics{PromptTokens: 7, CompletionTokens: 3, Steps: 5},
		Extra: &atif.Attempt{
			Run: "demo", Kind: "train", Step: 1, Attempt: 1, TaskID: "four", Policy: "main", Version: 3, Outcome: "completed", Result: "4", Verdict: "Half of it.", Reward: &half,
			Rewards: map[string]float64{"style": 1},
		},
	}, got[0]))
}

// sayings returns the source and the message of each step.
func sayings(t atif.Trajectory) []string {
	var out []string
	for _, s := range t.Steps {
		text := s.Source + ": " + s.Message
		if s.Copied {
			text += " (copied)"
		}
		out = append(out, text)
	}
	return out
}

func named(agent string, parent int, id, messages, reply string) record.Exchange {
	return record.Exchange{
		Call: record.Call{ID: id, Parent: parent, Agent: agent}, Request: asked(messages), Response: answered(`{"role":"assistant","content":"` + reply + `"}`),
	}
}

func TestEachAgentHasATrajectoryOfItsOwn(t *testing.T) {
	t.Parallel()
	r := begun(t)
	other := named("checker", -1, "chatcmpl-b", `{"role":"user","content":"is it 5?"}`, "no")
	other.Policy, other.Version = "other", 7
	r.attempt(0, completed(1, "4"),
		named("writer", -1, "chatcmpl-a", `{"role":"user","content":"2+2?"}`, "5"),
		other,
		named("writer", 0, "chatcmpl-c", `{"role":"user","content":"2+2?"},{"role":"assistant","content":"5"},{"role":"user","content":"no"}`, "4"),
	)
	got := r.documents()
	require.Len(t, got, 1)
	outer := got[0]
	require.Equal(t, "demo", outer.Agent.Name)
	require.Equal(t, []string{"user: two and two?", "system: writer", "system: checker"}, sayings(outer))
	require.Equal(t, []atif.Result{{Content: "4", Subagents: []atif.Ref{{TrajectoryID: "demo/train-1/0/0/1/conversation-1"}}}}, outer.Steps[1].Observation.Results)
	require.Equal(t, atif.FinalMetrics{PromptTokens: 8, CompletionTokens: 3, Steps: 3}, outer.Final)
	require.Len(t, outer.Subagents, 2)
	writer, checker := outer.Subagents[0], outer.Subagents[1]
	require.Equal(t, "writer", writer.Agent.Name)
	require.Equal(t, []string{"user: 2+2?", "agent: 5", "user: no", "agent: 4"}, sayings(writer))
	require.Equal(t, "checker", checker.Agent.Name)
	require.Equal(t, []string{"user: is it 5?", "agent: no"}, sayings(checker))
	require.Equal(t, "demo:other@7", checker.Steps[1].ModelName)
	require.Equal(t, "demo/train-1/0/0/1", checker.SessionID)
	require.Nil(t, checker.Extra, "the reward is the attempt's")
}

// An agent may ask for several choices, go back, or begin with examples.
func TestWhatContinuesNoOtherCallBeginsATrajectory(t *testing.T) {
	t.Parallel()
	r := begun(t)
	const question = `{"role":"user","content":"2+2?"}`
	r.attempt(0, completed(1, "4"),
		named("writer", -1, "chatcmpl-a", question, "5"),
		named("writer", -1, "chatcmpl-b", question, "4"), // another choice of one request
		named("writer", 1, "chatcmpl-c", question+`,{"role":"assistant","content":"4"},{"role":"user","content":"sure?"}`, "yes"),
		named("writer", 1, "chatcmpl-d", question+`,{"role":"assistant","content":"4"},{"role":"user","content":"really?"}`, "hm"),
	)
	got := r.documents()[0]
	require.Len(t, got.Subagents, 3)
	require.Equal(t, []string{"user: 2+2?", "agent: 5"}, sayings(got.Subagents[0]))
	require.Equal(t, []string{"user: 2+2?", "agent: 4", "user: sure?", "agent: yes"}, sayings(got.Subagents[1]))
	require.Equal(t, []string{"user: 2+2? (copied)", "agent: 4 (copied)", "user: really?", "agent: hm"}, sayings(got.Subagents[2]))
	require.Nil(t, got.Subagents[2].Steps[1].Metrics, "only its own calls have tokens")
}

func TestAnEditedReplyIsNotTheCallBefore(t *testing.T) {
	t.Parallel()
	r := begun(t)
	const question = `{"role":"user","content":"2+2?"}`
	r.attempt(0, completed(1, "4"),
		named("writer", -1, "chatcmpl-a", question, "5"),
		named("writer", -1, "chatcmpl-b", question+`,{"role":"assistant","content":"4"},{"role":"user","content":"sure?"}`, "yes"),
	)
	got := r.documents()[0]
	require.Len(t, got.Subagents, 2)
	require.Equal(t, []string{"user: 2+2? (copied)", "agent: 4 (copied)", "user: sure?", "agent: yes"}, sayings(got.Subagents[1]))
}

func TestRequestsOfEveryAPIAreRead(t *testing.T) {
	t.Parallel()
	r := begun(t)
	r.attempt(0, completed(1, "4"),
		record.Exchange{Call: record.Call{ID: "cmpl-a", API: "completions", Agent: "a", Parent: -1}, Request: json.RawMessage(`{"model":"m","prompt":"2+2="}`), Response: json.RawMessage(`{"choices":[{"text":"4"}]}`)},
		record.Exchange{Call: record.Call{ID: "cmpl-b", API: "completions", Agent: "a", Parent: 0}, Request: json.RawMessage(`{"model":"m","prompt":"2+2=4, 3+3="}`), Response: json.RawMessage(`{"choices":[{"text":"6"}]}`)},
	)
	r.attempt(1, completed(1, "4"),
		record.Exchange{Call: record.Call{ID: "resp_a", API: "responses", Agent: "a", Parent: -1}, Request: json.RawMessage(`{"model":"m","instructions":"You add.","input":"2+2?"}`),
			Response: json.RawMessage(`{"output":[{"type":"function_call","call_id":"call_x","name":"add","arguments":"{}"}]}`)},
		record.Exchange{Call: record.Call{ID: "resp_b", API: "responses", Agent: "a", Parent: 0},
			Request:  json.RawMessage(`{"model":"m","instructions":"You add.","previous_response_id":"resp_a","input":[{"type":"function_call_output","call_id":"call_x","output":"4"}]}`),
			Response: json.RawMessage(`{"output":[{"type":"message","content":[{"type":"output_text","text":"four"}]}]}`)},
	)
	r.attempt(2, completed(1, "4"),
		record.Exchange{Call: record.Call{ID: "msg_a", API: "messages", Agent: "a", Parent: -1}, Request: json.RawMessage(`not JSON`), Response: json.RawMessage(`{`)},
	)
	got := r.documents()
	require.Len(t, got, 3)
	require.Equal(t, []string{"user: 2+2=", "agent: 4", "user: , 3+3=", "agent: 6"}, sayings(got[0]))
	require.Equal(t, []string{"system: You add.", "user: 2+2?", "agent: ", "agent: four"}, sayings(got[1]))
	require.Equal(t, []atif.Result{{SourceCallID: "call_x", Content: "4"}}, got[1].Steps[2].Observation.Results)
	require.Equal(t, []string{"user: ", "agent: "}, sayings(got[2]))
	require.Equal(t, "not JSON", got[2].Steps[1].Extra.Request, "what can't be read is not lost")
}

func TestAttemptsThatCountAreWrittenHoweverTheyEnded(t *testing.T) {
	t.Parallel()
	r := begun(t)
	r.attempt(0, record.Attempt{Outcome: record.InfraFault, Error: "the machine went away"}, named("writer", -1, "chatcmpl-a", `{"role":"user","content":"2+2?"}`, "5"))
	failed := 0.0
	r.attempt(0, record.Attempt{Outcome: record.AgentFailed, Failure: "exit", Error: "exit code 3", Reward: &failed})
	_, err := r.db.BeginAttempt(t.Context(), record.RolloutID{Run: "demo", Kind: record.Train, Step: 1, Sample: 1}, "four", record.Terms{Policy: "main"}, "hash")
	require.NoError(t, err)
	got := r.documents()
	require.Len(t, got, 1, "neither one that was replaced, nor one that is under way")
	require.Equal(t, "demo/train-1/0/0/2", got[0].SessionID)
	require.Equal(t, []string{"user: two and two?"}, sayings(got[0]), "it made no call")
	require.Equal(t, "exit", got[0].Extra.Failure)
	require.Equal(t, "exit code 3", got[0].Extra.Error)
}

// watched counts the attempts whose calls were read.
type watched struct {
	*store.Store
	read int
}

func (w *watched) Exchanges(ctx context.Context, address record.Address) ([]record.Exchange, error) {
	w.read++
	return w.Store.Exchanges(ctx, address)
}

func TestAttemptsAreReadOneByOne(t *testing.T) {
	t.Parallel()
	r := begun(t)
	for sample := range 3 {
		r.attempt(sample, completed(1, "4"), named("writer", -1, "chatcmpl-a", `{"role":"user","content":"2+2?"}`, "4"))
	}
	w := &watched{Store: r.db}
	r.source.Store = w
	written := 0
	require.NoError(t, r.source.Trajectories(t.Context(), func(atif.Trajectory) error {
		written++
		require.Equal(t, written, w.read)
		return nil
	}))
	require.Equal(t, 3, written)
}

func TestTextFromAModelCantBreakADocument(t *testing.T) {
	t.Parallel()
	r := begun(t)
	r.attempt(0, completed(1, "4"), record.Exchange{
		Call: record.Call{ID: "chatcmpl-a", Parent: -1, Agent: "a"},
		Request: asked(`{"role":"tool","tool_call_id":"call_9","content":"an answer to nobody"},{"role":"assistant","content":null,"tool_calls":[{"id":"call_1","type":"function","function":{"name":"f","arguments":"[1]"}}]},` +
			`{"role":"tool","tool_call_id":"call_2","content":"to another call"},{"role":"user","content":"go"}`),
		Response: answered(`{"role":"assistant","content":"\u2028\"}","function_call":{"name":"f","arguments":"null"}}`),
	})
	got := r.documents()[0]
	require.Equal(t, []string{"system: ", "agent:  (copied)", "user: go", "agent: \u2028\"}"}, sayings(got))
	require.Equal(t, []atif.Result{{Content: "to another call"}}, got.Steps[1].Observation.Results)
	require.Equal(t, "call_0_0", got.Steps[3].ToolCalls[0].ID)
	require.JSONEq(t, `{}`, string(got.Steps[3].ToolCalls[0].Arguments))
	require.Equal(t, "null", got.Steps[3].ToolCalls[0].Extra.Arguments)
}
