package activities_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/hf"
	"github.com/fulgurite/fulgurite/model/sampler/serve"
	"github.com/fulgurite/fulgurite/record"
)

// everyFifthForced allows ten tokens, which differ from place to place. At every fifth
// place it allows only one.
type everyFifthForced struct {
	form model.Form
	n    int
}

func (f *everyFifthForced) Allowed(set model.TokenSet) bool {
	for i := range 10 {
		set.Add(int32(20 + 3*f.n + i))
		if f.n%5 == 4 {
			break
		}
	}
	return f.form.Masks()
}

func (f *everyFifthForced) Accept(int32) bool {
	f.n++
	return false
}

func fewTokens(f model.Form) (model.Constraint, error) { return &everyFifthForced{form: f}, nil }

// sampleFormed records an attempt of three calls that extend each other: one is held to a
// schema, one is free, and one may be ended by a stop text.
func (w *testEnv) sampleFormed(s *serve.Sampler, task, sample int) int {
	w.t.Helper()
	a, err := w.store.BeginAttempt(w.t.Context(), rollout(task, sample).Rollout, fmt.Sprint(task), record.Terms{Temperature: 0.8}, fmt.Sprint(task, sample))
	require.NoError(w.t, err)
	prompt := []int32{5, 6, int32(7 + task)}
	for seq, form := range []*model.Form{{Codec: "few", Schema: json.RawMessage(`{"type":"object"}`)}, nil, {Codec: "few", Stop: []string{"END"}}} {
		request := model.DecodeRequest{Prompt: prompt, MaxTokens: 12, Temperature: 0.8, Seed: uint64(10*task + 2*sample + seq), Form: form}
		completion, weights, err := s.Sample(w.t.Context(), model.VersionID{Run: "demo", Policy: model.DefaultPolicy}, request)
		require.NoError(w.t, err)
		c := record.Exchange{Call: record.Call{
			Address: a, Seq: seq, ID: fmt.Sprint("chatcmpl-", task, sample, seq), Parent: seq - 1, Policy: model.DefaultPolicy, Weights: weights,
			Key: fmt.Sprint("key", seq), Prompt: prompt, Completion: completion.Tokens, Logprobs: completion.Logprobs, Untrained: completion.Forced,
			Seed: request.Seed, Temperature: 0.8, Finish: completion.Finish,
		}, Request: json.RawMessage(`{}`), Response: json.RawMessage(`{}`)}
		if form != nil {
			c.Form, err = json.Marshal(form)
			require.NoError(w.t, err)
		}
		require.NoError(w.t, w.store.AppendCall(w.t.Context(), &c))
		prompt = append(append(slices.Clone(prompt), completion.Tokens...), 30)
	}
	reward := float64(sample)
	require.NoError(w.t, w.store.SealAttempt(w.t.Context(), record.Attempt{Address: a, Outcome: record.OutcomeCompleted, Reward: &reward}))
	return a.Attempt
}

func TestTheTrainerSeesTheDistributionThatAFormLeft(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	w.start(w.spec())
	engine, err := engines("native")
	require.NoError(t, err)
	s := serve.New(engine, w.catalog, 1)
	s.Constrain = fewTokens
	t.Cleanup(s.Close)
	in := activities.AssignCreditInput{Run: "demo", Policy: model.DefaultPolicy, Step: 1}
	for task := range 2 {
		g := activities.Group{Task: task, Rewards: []float64{0, 1}}
		for sample := range 2 {
			g.Attempts = append(g.Attempts, w.sampleFormed(s, task, sample))
		}
		in.Groups = append(in.Groups, g)
	}
	credit, err := do[activities.AssignCreditResult](t, w.coordinator.AssignCredit, in)
	require.NoError(t, err)
	data, err := w.blobs.Get(t.Context(), credit.Batch)
	require.NoError(t, err)
	b, err := hf.DecodeBatch(data)
	require.NoError(t, err)
	require.Len(t, b.Rows, 4, "forms do not keep calls apart")
	for _, r := range b.Rows {
		require.Len(t, r.Forms, 1, "a form that only ends a reply is none")
		require.Equal(t, []int{3, 12}, []int{r.Forms[0].Start, r.Forms[0].Length})
		require.Equal(t, 34, r.Trained(), "what had no alternative is not trained")
	}

	trainer := w.trainer()
	_, err = do[activities.VersionResult](t, trainer.TrainStep, trainStep(1, credit.Batch))
	requireFinal(t, err, "supports no forms", credit.Batch)
	trainer.Constrain = dialog.Constrain
	_, err = do[activities.VersionResult](t, trainer.TrainStep, trainStep(1, credit.Batch))
	requireFinal(t, err, "row 0 form 0", credit.Batch)
	trainer.Constrain = fewTokens
	v, err := do[activities.VersionResult](t, trainer.TrainStep, trainStep(1, credit.Batch))
	require.NoError(t, err)
	require.Zero(t, v.Metrics["train/mismatch"], "the trainer has the probabilities that were sampled, to the bit")
	require.InDelta(t, 1, v.Metrics["train/ratio"], 0)
	require.Positive(t, v.Metrics["train/gradient_norm"])
}
