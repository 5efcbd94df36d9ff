package page_test

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/hf"
	"github.com/fulgurite/fulgurite/page"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/store"
	"github.com/fulgurite/fulgurite/store/blob"
	"github.com/fulgurite/fulgurite/tasks"
	"github.com/fulgurite/fulgurite/tasks/stream"
)

const (
	seed    = 7
	perStep = 2
	samples = 4
)

// hostile is a text with which an agent could try to take over the page or a terminal, or
// to deceive the reader.
const hostile = "<script>document.title='taken'</script>\"><img src=x onerror=\"document.title='taken'\">{{.}} \x1b[31mred\x1b[0m \u202eback\x07 \xff\xfe &amp; javascript:alert(1)"

// recorded is a real store with the run "demo": two finished steps whose credit was
// assigned as in any run, one under way, evaluations, promotions, a quarantine.
type recorded struct {
	t     testing.TB
	store *store.Store
	blobs *blob.Store
	tasks []tasks.Task
	text  string // the text of agents
	name  string // of the run
	// turns is the number of an attempt's calls after the first. agents are the agents
	// that make these calls in turn.
	turns   int
	agents  []string
	trained string // credit.train_agents
	critic  bool
	runs    int
	said    int                   // pieces of feedback
	answers []record.SearchAnswer // of searches that are kept in memory
	// says is what the policy replies in an evaluation of measured. nil makes no calls.
	says func(version, task, sample int) string
}

func newRecorded(t testing.TB, text string) *recorded {
	t.Helper()
	r := newEmpty(t, text)
	r.createRun()
	for step := 1; step <= 2; step++ {
		r.step(step)
	}
	r.begin(record.RolloutID{Run: r.name, Kind: record.Train, Step: 3, Task: 2 * perStep})
	r.decide()
	return r
}

// newEmpty makes a store without runs.
func newEmpty(t testing.TB, text string) *recorded {
	t.Helper()
	r := &recorded{t: t, text: text, name: "demo", turns: 1, agents: []string{"solo"}}
	dir := t.TempDir()
	var err error
	r.store, err = store.Open(t.Context(), filepath.Join(dir, "store.db"), nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.store.Close()) })
	require.NoError(t, r.store.Migrate(t.Context()))
	r.blobs, err = blob.Open(filepath.Join(dir, "blobs"))
	require.NoError(t, err)
	for i := range 5 {
		r.tasks = append(r.tasks, tasks.Task{ID: fmt.Sprintf("task-%d %s", i, printable(text)), Input: strings.ToValidUTF8(text, "?"), Answer: "2"})
	}
	return r
}

// printable returns text with only the characters that an id in a task file may have.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return -1
	}, strings.ToValidUTF8(text, "?"))
}

func (r *recorded) createRun() {
	r.t.Helper()
	sp := spec.Spec{
		Seed: seed, Training: spec.Training{Steps: 4, TasksPerStep: perStep, SamplesPerTask: samples}, Credit: spec.Credit{Std: "none"},
		Agent: spec.Agent{Command: []string{"agent", r.text}, Environment: map[string]string{"API_KEY": "very-secret"}},
	}
	sp.Credit.TrainAgents = r.trained
	if r.critic {
		sp.Algorithm = "ppo"
	}
	sp = sp.WithDefaults()
	text, err := json.Marshal(sp)
	require.NoError(r.t, err)
	data, err := tasks.Encode(r.tasks)
	require.NoError(r.t, err)
	digest, err := r.blobs.Put(r.t.Context(), data)
	require.NoError(r.t, err)
	split := record.Split{Digest: digest, Count: len(r.tasks)}
	_, _, err = r.store.CreateRun(r.t.Context(), record.Run{
		Name: r.name, WorkflowID: r.name, ExecutionID: "e", Spec: text, Splits: map[record.Kind]record.Split{record.Train: split, record.Gate: split},
	})
	require.NoError(r.t, err)
}

// step runs the groups of a step, gives them credit and finishes it.
func (r *recorded) step(step int) {
	r.t.Helper()
	ctx := r.t.Context()
	in := activities.AssignCreditInput{Run: r.name, Policy: model.DefaultPolicy, Step: step}
	for i := range perStep {
		g := activities.Group{Task: (step-1)*perStep + i}
		for sample := range samples {
			reward := float64((sample + i) % 2)
			id := record.RolloutID{Run: r.name, Kind: record.Train, Step: step, Task: g.Task, Sample: sample}
			g.Attempts, g.Rewards = append(g.Attempts, r.rollout(id, reward)), append(g.Rewards, reward)
		}
		in.Groups = append(in.Groups, g)
	}
	coordinator := activities.Coordinator{Runs: r.store, Ledger: r.store, Attempts: r.store, Blobs: r.blobs, Codecs: dialog.Named}
	if r.critic {
		in.Values = r.values(step)
	}
	_, err := coordinator.AssignCredit(ctx, in)
	require.NoError(r.t, err)
	batch, err := r.store.Batch(ctx, r.name, model.DefaultPolicy, step)
	require.NoError(r.t, err)
	v := model.Version{
		VersionID: model.VersionID{Run: r.name, Policy: model.DefaultPolicy, Number: step}, Parent: step - 1, Weights: fmt.Sprintf("sha256:%064d", step), Batch: batch.Digest,
	}
	if step == 1 { // the other step has a trainer of an older release, which kept no scores
		v.Scores = r.scores(batch.Digest)
	}
	_, _, err = r.store.PutVersion(ctx, v)
	require.NoError(r.t, err)
	r.finish(step, batch.Digest)
}

// scores records the scores of a trainer that read all tokens of a batch except the
// first. It found each an eighth of a nat likelier than the sampler did.
func (r *recorded) scores(batch string) string {
	r.t.Helper()
	data, err := r.blobs.Get(r.t.Context(), batch)
	require.NoError(r.t, err)
	b, err := hf.DecodeBatch(data)
	require.NoError(r.t, err)
	s := model.Scores{Batch: batch}
	for _, row := range b.Rows {
		for i, sampled := range row.Sampled {
			if sampled {
				s.Logprobs, s.Entropies = append(s.Logprobs, row.Logprobs[i]+0.125), append(s.Entropies, 1.5)
			}
		}
	}
	s.Logprobs[0], s.Entropies[0] = float32(math.NaN()), float32(math.NaN())
	file, err := hf.EncodeScores(s)
	require.NoError(r.t, err)
	digest, err := r.blobs.Put(r.t.Context(), file)
	require.NoError(r.t, err)
	return digest
}

func (r *recorded) finish(step int, batch string) {
	r.t.Helper()
	metrics := map[string]float64{
		"reward/min": 0, "reward/max": 1, "batch/tokens": 80, "reward/mean": 0.5, "reward/std": 0.5, "train/entropy": 1 / float64(step), "train/gradient_norm": 1, "train/kl": 0.001, "train/mismatch": 0, "batch/trained_tokens": 64, "batch/rollouts": 8,
	}
	if r.critic {
		metrics["critic/loss"], metrics["critic/explained_variance"] = 0.1, 0.5
	}
	require.NoError(r.t, r.store.PutStep(r.t.Context(), record.Step{Run: r.name, Policy: model.DefaultPolicy, Step: step, Batch: batch, Metrics: metrics, At: r.at(step)}))
}

// at returns when a step was finished: one every ten seconds after the run was created.
func (r *recorded) at(step int) time.Time {
	r.t.Helper()
	run, err := r.store.Run(r.t.Context(), r.name)
	require.NoError(r.t, err)
	return run.Created.Add(time.Duration(step) * 10 * time.Second)
}

func (r *recorded) begin(id record.RolloutID) record.Address {
	r.t.Helper()
	index, _ := stream.At(seed, len(r.tasks), id.Task)
	a, err := r.store.BeginAttempt(r.t.Context(), id, r.tasks[index].ID, record.Terms{Policy: model.DefaultPolicy, Version: max(0, id.Step-1), Codec: dialog.CompactName, Temperature: 1}, "c0ffee")
	require.NoError(r.t, err)
	return a
}

// rollout records an attempt with two calls. The first attempt at the very first sample
// was lost after its first call, and the second attempt replayed that call.
func (r *recorded) rollout(id record.RolloutID, reward float64) int {
	r.t.Helper()
	a := r.begin(id)
	first := r.call(a, 0, -1, nil)
	if id.Step == 1 && id.Task == 0 && id.Sample == 0 {
		require.NoError(r.t, r.store.AppendCall(r.t.Context(), &first))
		a = r.begin(id)
		first.Address, first.ReplayedFrom = a, 1
	}
	require.NoError(r.t, r.store.AppendCall(r.t.Context(), &first))
	for seq, last := 1, first; seq <= r.turns; seq++ {
		last = r.call(a, seq, seq-1, append(append([]int32{}, last.Prompt...), last.Completion...))
		require.NoError(r.t, r.store.AppendCall(r.t.Context(), &last))
	}
	end := record.Attempt{Address: a, Outcome: record.OutcomeCompleted, Reward: &reward, Result: r.text, Output: record.Output{Stdout: r.text, Stderr: r.text}}
	if id.Sample == 1 && id.Task%2 == 0 {
		end.Outcome, end.Failure, end.Error = record.AgentFailed, "timeout", r.text
	}
	require.NoError(r.t, r.store.PutSpans(r.t.Context(), a, []record.Span{{
		Trace: "t", ID: "1", Kind: record.ToolSpan, Tool: r.text, Failed: true, Message: r.text, Started: time.Unix(15, 0), Ended: time.Unix(16, 0),
	}}))
	require.NoError(r.t, r.store.SealAttempt(r.t.Context(), end))
	return a.Attempt
}

func (r *recorded) call(a record.Address, seq, parent int, before []int32) record.Exchange {
	r.t.Helper()
	codec := dialog.Compact()
	messages := []map[string]any{{"role": "user", "content": strings.ToValidUTF8(r.text, "?")}}
	if seq > 0 {
		messages = append(messages, map[string]any{"role": "assistant", "content": "4"}, map[string]any{"role": "tool", "tool_call_id": "c", "content": r.text})
	}
	request, err := json.Marshal(map[string]any{"model": "m", "messages": messages, "tools": []any{map[string]any{
		"type": "function", "function": map[string]any{"name": "calculator", "description": r.text, "parameters": map[string]any{"type": "object"}},
	}}})
	require.NoError(r.t, err)
	completion := codec.Encode(fmt.Sprintf("4*%d+%d", a.Sample+1, a.Step))
	logprobs := make([]float32, len(completion))
	for i := range logprobs {
		logprobs[i] = -float32(i) / 2
	}
	reply, err := json.Marshal(map[string]any{"choices": []any{map[string]any{"message": map[string]any{"role": "assistant", "content": r.text, "tool_calls": []any{
		map[string]any{"id": "c", "type": "function", "function": map[string]any{"name": "calculator", "arguments": r.text}},
	}}}}})
	require.NoError(r.t, err)
	return record.Exchange{Call: record.Call{
		Address: a, Seq: seq, ID: fmt.Sprintf("chatcmpl-%d", seq), Parent: parent, Agent: r.agents[seq%len(r.agents)], Policy: model.DefaultPolicy, Version: a.Step - 1, Key: fmt.Sprint(seq),
		Prompt: append(before, codec.Encode("1+1")...), Completion: completion, Logprobs: logprobs, Temperature: 1, Finish: "stop", ParseError: strings.ToValidUTF8(r.text, "?"), Started: time.Unix(int64(10*seq), 0),
	}, Request: request, Response: reply}
}

// decide evaluates versions and moves the promoted pointer.
func (r *recorded) decide() {
	r.t.Helper()
	ctx := r.t.Context()
	_, _, err := r.store.PutVersion(ctx, model.Version{VersionID: model.VersionID{Run: r.name, Policy: model.DefaultPolicy}, Parent: -1, Weights: fmt.Sprintf("sha256:%064d", 9)})
	require.NoError(r.t, err)
	for version := range 3 {
		a := r.begin(record.RolloutID{Run: r.name, Kind: record.Gate, Step: version})
		require.NoError(r.t, r.store.SealAttempt(ctx, record.Attempt{Address: a, Outcome: record.OutcomeCompleted, Reward: new(float64)}))
		require.NoError(r.t, r.store.PutEvaluation(ctx, record.Evaluation{Run: r.name, Policy: model.DefaultPolicy, EvaluationResult: record.EvaluationResult{
			Kind: record.Gate, Version: version, Tasks: 5, Rollouts: 5, Mean: 0.25 * float64(version+1), StdError: 0.05,
		}}))
	}
	require.NoError(r.t, r.store.Promote(ctx, record.Promotion{Run: r.name, Policy: model.DefaultPolicy, DecisionID: "gate-0", Version: 0, Previous: -1, Source: record.SourceGate, Reason: "it is the first"}))
	require.NoError(r.t, r.store.Promote(ctx, record.Promotion{Run: r.name, Policy: model.DefaultPolicy, DecisionID: "gate-1", Version: 1, Previous: 0, Source: record.SourceGate, Reason: r.text}))
	require.NoError(r.t, r.store.PutDecision(ctx, record.Decision{Run: r.name, Policy: model.DefaultPolicy, DecisionID: "gate-2", Candidate: 2, Promoted: 1, Verdict: "refused", Reason: r.text}))
	require.NoError(r.t, r.store.PutQuarantine(ctx, record.Quarantine{Run: r.name, Policy: model.DefaultPolicy, Step: 3, Kind: record.Train, Task: 5, Index: 1, Reason: r.text}))
}

// serve serves the page of the store.
func (r *recorded) serve(live page.Live) *httptest.Server {
	r.t.Helper()
	p, err := page.New(page.Options{Records: r.store, Blobs: r.blobs, Codecs: dialog.Named, Live: live, Poll: time.Millisecond, Patience: time.Hour})
	require.NoError(r.t, err)
	server := httptest.NewServer(p)
	r.t.Cleanup(func() {
		p.Close()
		server.Close()
	})
	return server
}

// answer is what a request got.
type answer struct {
	StatusCode int
	Header     http.Header
}

// get fetches a page and returns its body and the response.
func get(t testing.TB, address string) (string, answer) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
	require.NoError(t, err)
	reply, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer func() { require.NoError(t, reply.Body.Close()) }()
	body, err := io.ReadAll(reply.Body)
	require.NoError(t, err)
	return string(body), answer{reply.StatusCode, reply.Header}
}
