package activities_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/hf"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
)

// entry is an attempt that is recorded without running an agent.
type entry struct {
	says    []string // for each call the agent and what it observes, "agent: observation"
	rewards []record.Reward
	spans   []record.Span
	outcome record.Outcome // completed if empty
	reward  float64
	open    bool  // never sealed
	cut     []int // calls whose replies were cut off
	byAgent bool  // each call was answered by the policy that is called as its agent
}

// moment returns a time of an attempt.
func moment(second int) time.Time { return time.Date(2026, 11, 21, 10, 0, second, 0, time.UTC) }

// callID returns the id of a call that an entry records.
func callID(seq int) string { return fmt.Sprintf("chatcmpl-%d", seq) }

// failedTool returns the span of a tool that failed after a call.
func failedTool(seq int) record.Span {
	return record.Span{Trace: "t", ID: fmt.Sprint(seq), Kind: record.ToolSpan, Failed: true, Started: moment(10*seq + 5), Ended: moment(10*seq + 6)}
}

// record records groups as a step of the run, and returns the input that asks for their
// credit.
func (w *testEnv) record(step int, groups ...[]entry) activities.AssignCreditInput {
	w.t.Helper()
	in := activities.AssignCreditInput{Run: "demo", Policy: model.DefaultPolicy, Step: step}
	for task, entries := range groups {
		g := activities.Group{Task: task}
		for sample, p := range entries {
			id := record.RolloutID{Run: "demo", Kind: record.Train, Step: step, Task: task, Sample: sample}
			g.Attempts = append(g.Attempts, w.put(id, p))
			g.Rewards = append(g.Rewards, p.reward)
		}
		in.Groups = append(in.Groups, g)
	}
	return in
}

func (w *testEnv) put(id record.RolloutID, p entry) (attempt int) {
	w.t.Helper()
	ctx := w.t.Context()
	a, err := w.store.BeginAttempt(ctx, id, "a", record.Terms{Policy: model.DefaultPolicy, Temperature: 1}, "key")
	require.NoError(w.t, err)
	for seq, said := range p.says {
		c := callOf(a, seq, said)
		if p.byAgent {
			c.Policy = c.Agent
		}
		if slices.Contains(p.cut, seq) {
			c.Finish = record.FinishLength
		}
		require.NoError(w.t, w.store.AppendCall(ctx, &c))
	}
	for _, r := range p.rewards {
		r.Address, r.Source = a, "agent"
		require.NoError(w.t, w.store.PutReward(ctx, r))
	}
	require.NoError(w.t, w.store.PutSpans(ctx, a, p.spans))
	if p.open {
		return a.Attempt
	}
	sealed := record.Attempt{Address: a, Outcome: cmp.Or(p.outcome, record.OutcomeCompleted)}
	if sealed.Outcome != record.InfraFault {
		stored := p.reward
		if math.IsNaN(stored) || math.IsInf(stored, 0) {
			stored = 0 // the store accepts no such numbers
		}
		sealed.Reward = &stored
	}
	require.NoError(w.t, w.store.SealAttempt(ctx, sealed))
	return a.Attempt
}

// callOf returns a call. Its prompt has four tokens, of which the last ones depend on the
// observation. Its completion has three tokens, of which the last had no alternative.
func callOf(a record.Address, seq int, said string) record.Exchange {
	var agent, observation string
	for i := range said {
		if said[i] == ':' {
			agent, observation = said[:i], said[i+2:]
			break
		}
	}
	request, err := json.Marshal(map[string]any{"model": "m", "messages": []any{map[string]any{"role": "user", "content": observation}}})
	if err != nil {
		panic(err) // plain values
	}
	first := int32(observation[0]) % 50
	return record.Exchange{Call: record.Call{
		Address: a, Seq: seq, ID: callID(seq), Parent: -1, Agent: agent, Policy: model.DefaultPolicy, Weights: "w",
		Key: fmt.Sprintf("%d %s", seq, said), Prompt: []int32{1, int32(seq) + 2, first, int32(len(observation)) % 50},
		Completion: []int32{5, 6 + int32(a.Sample), 7}, Logprobs: []float32{-0.5, -1, -0.25}, Untrained: []bool{false, false, true},
		Seed: uint64(seq) + 1, Temperature: 1, Finish: "stop", Started: moment(10 * seq), Duration: time.Second,
	}, Request: request, Response: json.RawMessage(`{"choices":[{"message":{"content":"so"}}]}`)}
}

// made assigns the credit of in and returns the batch.
func (w *testEnv) made(in activities.AssignCreditInput) (model.Batch, activities.AssignCreditResult) {
	w.t.Helper()
	got, err := do[activities.AssignCreditResult](w.t, w.coordinator.AssignCredit, in)
	require.NoError(w.t, err)
	data, err := w.blobs.Get(w.t.Context(), got.Batch)
	require.NoError(w.t, err)
	b, err := hf.DecodeBatch(data)
	require.NoError(w.t, err)
	return b, got
}

// given returns the advantages of the calls of each trajectory. Calls without a trained
// token are absent.
func given(b model.Batch) []map[int32][]float32 {
	out := make([]map[int32][]float32, len(b.Trajectories))
	for i := range out {
		out[i] = map[int32][]float32{}
	}
	for _, r := range b.Rows {
		for t, sampled := range r.Sampled {
			if sampled {
				of := out[r.Trajectory]
				of[r.Calls[t]] = append(of[r.Calls[t]], r.Advantages[t])
			}
		}
	}
	return out
}

// credited prepares a run that assigns credit by c.
func (w *testEnv) credited(c spec.Credit) *testEnv {
	w.t.Helper()
	s := w.spec()
	s.Credit = c
	w.prepare(s)
	return w
}

// values stores a critic's values, each of which depends on its token's place, and
// returns their digest.
func (w *testEnv) values(in activities.AssignCreditInput, change func(*model.Values)) string {
	w.t.Helper()
	v := model.Values{Policy: "critic"}
	for _, g := range in.Groups {
		for range g.Attempts {
			v.Calls = append(v.Calls, slices.Repeat([][]float32{{0.25, 0.5, 9}}, 2))
		}
	}
	change(&v)
	data, err := hf.EncodeValues(v)
	require.NoError(w.t, err)
	digest, err := w.blobs.Put(w.t.Context(), data)
	require.NoError(w.t, err)
	return digest
}
