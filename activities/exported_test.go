package activities_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/parquet-go/parquet-go"
	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/sampler/serve"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/dataset"
)

// recordConversation records an attempt of four calls. The first is the writer's and held
// to a schema. The second is the writer's, free, and extends the first. The third is the
// critic's; it extends both and is not trained. The fourth is the writer's and separate.
func (w *testEnv) recordConversation(s *serve.Sampler, task, sample int) int {
	w.t.Helper()
	a, err := w.store.BeginAttempt(w.t.Context(), rollout(task, sample).Rollout, fmt.Sprint(task), record.Terms{Temperature: 0.8}, fmt.Sprint(task, sample))
	require.NoError(w.t, err)
	prompt := []int32{5, 6, int32(7 + task)}
	for seq, who := range []string{"writer", "writer", "critic", "writer"} {
		if seq == 3 {
			prompt = []int32{9, int32(8 + sample)}
		}
		request := model.DecodeRequest{Prompt: prompt, MaxTokens: 12, Temperature: 0.8, Seed: uint64(100*task + 10*sample + seq)}
		c := record.Exchange{Call: record.Call{
			Address: a, Seq: seq, ID: fmt.Sprint("chatcmpl-", task, sample, seq), Parent: seq - 1, Agent: who, Policy: model.DefaultPolicy,
			Key: fmt.Sprint("key", seq), Prompt: prompt, Seed: request.Seed, Temperature: 0.8,
		}, Request: json.RawMessage(`{}`), Response: json.RawMessage(`{}`)}
		switch seq {
		case 0:
			request.Form = &model.Form{Codec: "few", Schema: json.RawMessage(`{"type":"object"}`)}
			c.Form, err = json.Marshal(request.Form)
			require.NoError(w.t, err)
		case 3:
			c.Parent = -1
		}
		completion, weights, err := s.Sample(w.t.Context(), model.VersionID{Run: "demo", Policy: model.DefaultPolicy}, request)
		require.NoError(w.t, err)
		c.Weights, c.Completion, c.Logprobs, c.Untrained, c.Finish = weights, completion.Tokens, completion.Logprobs, completion.Forced, completion.Finish
		require.NoError(w.t, w.store.AppendCall(w.t.Context(), &c))
		prompt = append(append(slices.Clone(prompt), completion.Tokens...), 30)
	}
	reward := float64(sample)
	require.NoError(w.t, w.store.SealAttempt(w.t.Context(), record.Attempt{Address: a, Outcome: record.OutcomeCompleted, Reward: &reward}))
	return a.Attempt
}

// newRecordedRun returns a run with one recorded step in which only the writer is
// trained, its batch, and the source of its data.
func newRecordedRun(t *testing.T) (*testEnv, model.Batch, dataset.Source) {
	t.Helper()
	w := newTestEnv(t)
	sp := w.spec()
	sp.Credit.TrainAgents = "write(r)?"
	w.start(sp)
	engine, err := engines("native")
	require.NoError(t, err)
	s := serve.New(engine, w.catalog, 1)
	s.Constrain = fewTokens
	t.Cleanup(s.Close)
	in := activities.AssignCreditInput{Run: "demo", Policy: model.DefaultPolicy, Step: 1}
	for task := range 2 {
		g := activities.Group{Task: task, Rewards: []float64{0, 1}}
		for sample := range 2 {
			g.Attempts = append(g.Attempts, w.recordConversation(s, task, sample))
		}
		in.Groups = append(in.Groups, g)
	}
	b, _ := w.made(in)
	return w, b, dataset.Source{Store: w.store, Blobs: w.blobs, Run: "demo", Policy: model.DefaultPolicy}
}

// exported writes rows in the format. It reads them back knowing only the columns' names.
func exported[T any](t *testing.T, format string, write func(path string) (int, error)) []T {
	t.Helper()
	path := filepath.Join(t.TempDir(), "rows"+format)
	n, err := write(path)
	require.NoError(t, err)
	var rows []T
	if format == ".parquet" {
		rows, err = parquet.ReadFile[T](path)
		require.NoError(t, err)
	} else {
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		for line := range bytes.Lines(data) {
			var row T
			require.NoError(t, json.Unmarshal(line, &row))
			rows = append(rows, row)
		}
	}
	require.Len(t, rows, n)
	return rows
}

// allowed returns the sets of tokens from which a form let the tokens of a completion be
// chosen.
func allowed(t *testing.T, form string, completion []int32, vocab int) []model.TokenSet {
	t.Helper()
	var f model.Form
	require.NoError(t, json.Unmarshal([]byte(form), &f))
	c, err := fewTokens(f)
	require.NoError(t, err)
	sets := make([]model.TokenSet, len(completion))
	for i, token := range completion {
		set := model.NewTokenSet(vocab)
		if c.Allowed(set) {
			sets[i] = set
		}
		c.Accept(token)
	}
	return sets
}

// rescored returns the log-probabilities of the tokens after the first, under the version
// that sampled them.
func (w *testEnv) rescored(tokens []int32, temperature float64, allowed []model.TokenSet) []float32 {
	w.t.Helper()
	return w.proximal(model.Batch{Rows: []model.BatchRow{{Row: model.Row{Tokens: tokens, Temperature: temperature, Allowed: allowed}}}})[0]
}

func TestExportedTransitionsAreWhatTrainingSaw(t *testing.T) {
	t.Parallel()
	w, b, source := newRecordedRun(t)
	for _, format := range []string{".jsonl", ".parquet"} {
		rows := exported[dataset.Transition](t, format, func(path string) (int, error) {
			return dataset.WriteFile(t.Context(), path, source.Transitions)
		})
		require.Len(t, rows, 16)
		trained, advantages, plain := 0, map[string][]float32{}, 0.0
		for _, r := range rows {
			require.Equal(t, r.Agent == "writer", slices.Contains(r.LossMask, 1), "%s: the writer alone is trained", r.ID)
			require.Equal(t, r.Masked, r.Form != "")
			require.Equal(t, r.Call == 0, r.Masked)
			prompt := len(r.PromptIDs)
			tokens := slices.Concat(r.PromptIDs, r.CompletionIDs)
			sets := make([]model.TokenSet, len(tokens)-1)
			if r.Masked {
				copy(sets[prompt-1:], allowed(t, r.Form, r.CompletionIDs, b.VocabSize))
			}
			again, free := w.rescored(tokens, r.Temperature, sets), w.rescored(tokens, r.Temperature, nil)
			for i, mask := range r.LossMask {
				require.InDelta(t, r.Logprobs[i], again[prompt-1+i], 1e-5, "%s %s token %d", format, r.ID, i)
				if r.Masked {
					plain = max(plain, math.Abs(float64(r.Logprobs[i]-free[prompt-1+i])))
				}
				require.False(t, mask == 1 && r.Forced[i] == 1)
				if mask == 1 {
					trained++
					advantages[r.Attempt] = append(advantages[r.Attempt], r.Advantages[i])
				}
			}
		}
		require.Greater(t, plain, 0.5, "without its form a reply had another probability")
		require.Equal(t, b.Denominators.Tokens, trained)
		want := map[string][]float32{}
		for _, r := range b.Rows {
			for i, sampled := range r.Sampled {
				if sampled {
					name := b.Trajectories[r.Trajectory].Attempt
					want[name] = append(want[name], r.Advantages[i])
				}
			}
		}
		for name := range want {
			slices.Sort(want[name])
			slices.Sort(advantages[name])
		}
		require.Equal(t, want, advantages)
	}
}

func TestExportedSequencesAreWhatTrainingSaw(t *testing.T) {
	t.Parallel()
	w, b, source := newRecordedRun(t)
	for _, format := range []string{".jsonl", ".parquet"} {
		rows := exported[dataset.Sequence](t, format, func(path string) (int, error) {
			return dataset.WriteFile(t.Context(), path, source.Sequences)
		})
		require.Len(t, rows, len(b.Rows))
		trained, forced, others := 0, 0, 0
		for k, r := range rows {
			require.Equal(t, b.Rows[k].Advantages, r.Advantages)
			sets := make([]model.TokenSet, len(r.InputIDs)-1)
			for _, f := range r.Forms {
				copy(sets[f.Start-1:], allowed(t, f.Form, r.InputIDs[f.Start:f.Start+f.Length], b.VocabSize))
				for i := f.Start; i < f.Start+f.Length; i++ {
					require.Equal(t, int32(1), r.Masked[i])
					require.Zero(t, r.Calls[i], "a forced token is not one of the context")
				}
			}
			again := w.rescored(r.InputIDs, r.Temperature, sets)
			for i, mask := range r.LossMask {
				switch {
				case mask == 1:
					trained++
					require.InDelta(t, r.Logprobs[i], again[i-1], 1e-5, "%s row %d token %d", format, k, i)
					require.GreaterOrEqual(t, r.Calls[i], int32(0))
				case r.Forced[i] == 1:
					forced++
					require.GreaterOrEqual(t, r.Calls[i], int32(0))
				case r.Calls[i] >= 0:
					others++
					require.Equal(t, int32(2), r.Calls[i], "the critic's reply")
				}
			}
		}
		require.Equal(t, b.Denominators.Tokens, trained)
		require.Equal(t, 4*2, forced, "every fifth token of a form had no alternative")
		require.Equal(t, 4*12, others)
	}
}
