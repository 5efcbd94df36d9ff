package activities_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/credit"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
)

// two returns attempts of two calls each.
func two(rewards ...float64) []entry {
	var out []entry
	for _, r := range rewards {
		out = append(out, entry{says: []string{"solo: start", "solo: then"}, reward: r})
	}
	return out
}

// The digests are from a release that had only these three assignments: a run from then
// that continues with this release learns from the same bytes.
func TestOlderSpecsMakeTheBatchesThatTheyAlwaysMade(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		credit spec.Credit
		digest string
	}{
		"identical":  {spec.Credit{}, "sha256:fc3af98eff95e01fb2a8270b114e83609977be97a3f0d30c37261695d79083a1"},
		"discounted": {spec.Credit{Assignment: "discounted", Discount: 0.9, LeaveOneOut: true, Std: "none"}, "sha256:66ee98974624731040b89ccb0390407cd97614a9976810d81d34bec9a24c81ea"},
		"last call":  {spec.Credit{Assignment: "last_call", Mean: "batch", Std: "batch"}, "sha256:de6e27535634ba1af757bed49790ce2870854e2363322307e43466bb0d149f25"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newTestEnv(t).credited(c.credit)
			_, got := w.made(w.record(1, two(1, 0, 0.3), append(two(0.7), entry{outcome: record.AgentFailed, reward: -0.5})))
			require.Equal(t, c.digest, got.Batch)
		})
	}
}

func TestCallsOfOtherAgentsAreContext(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t).credited(spec.Credit{TrainAgents: "write|rewrite"})
	group := []entry{
		{says: []string{"write: start", "check: it", "rewrite: it"}, reward: 1},
		{says: []string{"write: start", "writer: it"}, reward: 0},
	}
	b, got := w.made(w.record(1, group))
	require.Len(t, b.Rows, 3, "a sequence that only others said is left out")
	for _, r := range b.Rows {
		require.Equal(t, 2, r.Trained())
	}
	calls := given(b)
	require.Len(t, calls[0], 2)
	require.Contains(t, calls[0], int32(0))
	require.Contains(t, calls[0], int32(2))
	require.Len(t, calls[1], 1, "a name that begins alike is another")
	require.Equal(t, 6, b.Denominators.Tokens, "nobody else's tokens are counted")
	require.InDelta(t, 5, got.Metrics["batch/calls"], 0)
	require.InDelta(t, 3*7, got.Metrics["batch/tokens_unmerged"], 0)
}

func TestOthersInADialogStayInItsRow(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t).credited(spec.Credit{TrainAgents: "write"})
	in := w.record(1, []entry{{says: []string{"write: a"}, reward: 1}, {reward: 0}})
	// The third call continues the first two, of which one was made by another agent and
	// one by the writer.
	ctx := t.Context()
	id := record.RolloutID{Run: "demo", Kind: record.Train, Step: 1, Task: 1}
	a, err := w.store.BeginAttempt(ctx, id, "a", record.Terms{Policy: model.DefaultPolicy, Temperature: 1}, "key")
	require.NoError(t, err)
	var before []int32
	for seq, agent := range []string{"write", "check", "write"} {
		c := callOf(a, seq, agent+": a")
		c.Prompt = append(append([]int32{}, before...), 40+int32(seq))
		c.Parent = seq - 1
		before = append(append([]int32{}, c.Prompt...), c.Completion...)
		require.NoError(t, w.store.AppendCall(ctx, &c))
	}
	reward := 1.0
	require.NoError(t, w.store.SealAttempt(ctx, record.Attempt{Address: a, Outcome: record.OutcomeCompleted, Reward: &reward}))
	in.Groups = append(in.Groups, activities.Group{Task: 1, Attempts: []int{1}, Rewards: []float64{1}})

	b, got := w.made(in)
	require.Len(t, b.Rows, 2)
	row := b.Rows[1]
	require.Len(t, row.Tokens, 12, "three prompts of one new token and three completions")
	require.Equal(t, 4, row.Trained())
	for i := 4; i < 8; i++ { // the prompt and completion of the other agent's call
		require.False(t, row.Sampled[i])
		require.Equal(t, int32(-1), row.Calls[i])
		require.Zero(t, row.Logprobs[i])
		require.Zero(t, row.Advantages[i])
	}
	require.InDelta(t, 7+4+12, got.Metrics["batch/tokens_unmerged"], 0, "what training one by one would read of the trained calls")
	require.InDelta(t, 7+12, got.Metrics["batch/tokens"], 0)
}

func TestACriticsValuesReachTheirTokens(t *testing.T) {
	t.Parallel()
	for _, c := range []spec.Credit{{Assignment: "turn_gae", Whiten: "none"}, {Tokens: "gae", Whiten: "none"}} {
		w := newTestEnv(t).credited(c)
		in := w.record(1, two(1, 0))
		in.Values = w.values(in, func(*model.Values) {})
		b, _ := w.made(in)
		require.Equal(t, in.Values, b.Values, "the batch says what it was made of")
		trained := 0
		for _, r := range b.Rows {
			require.Len(t, r.Returns, len(r.Tokens))
			for i, sampled := range r.Sampled {
				if !sampled {
					require.Zero(t, r.Returns[i])
					continue
				}
				trained++
				value := []float32{0.25, 0.5}[(i-4)%7] // four tokens of prompt before
				if c.Tokens == credit.GAE {
					require.InDelta(t, value+r.Advantages[i], r.Returns[i], 1e-6, "a return is value and advantage")
				}
			}
		}
		require.Equal(t, 8, trained)
	}
}

func TestValuesOfAnotherStepAreRefused(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t).credited(spec.Credit{Assignment: "turn_gae"})
	in := w.record(1, two(1, 0))
	for name, change := range map[string]func(*model.Values){
		"an attempt less": func(v *model.Values) { v.Calls = v.Calls[1:] },
		"one too many":    func(v *model.Values) { v.Calls = append(v.Calls, v.Calls[0]) },
		"a call less":     func(v *model.Values) { v.Calls[1] = v.Calls[1][1:] },
		"a token less":    func(v *model.Values) { v.Calls[1] = [][]float32{{1, 2, 3}, {1, 2}} },
	} {
		in.Values = w.values(in, change)
		_, err := do[activities.AssignCreditResult](t, w.coordinator.AssignCredit, in)
		requireFinal(t, err, "values of other attempts", in.Values)
		require.NotEmpty(t, name)
	}
	in.Values = ""
	_, err := do[activities.AssignCreditResult](t, w.coordinator.AssignCredit, in)
	requireFinal(t, err, "bad estimate", "demo/train-1/0/0/1")
}

// judgments stores a judge's scores and returns their digest.
func (w *testEnv) judgments(scores ...[]float64) string {
	w.t.Helper()
	data, err := json.Marshal(record.Judgments{Scores: scores})
	require.NoError(w.t, err)
	digest, err := w.blobs.Put(w.t.Context(), data)
	require.NoError(w.t, err)
	return digest
}

func TestAJudgesScoresReachTheirCalls(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t).credited(spec.Credit{Assignment: "judge", Judge: &spec.Judge{URL: "http://judge/v1", Model: "m"}})
	in := w.record(1, two(1, 1))
	for _, scores := range [][][]float64{{{1, 2}}, {{1, 2}, {1}}, {{1, 2}, {1, 2}, {1, 2}}} {
		in.Judgments = w.judgments(scores...)
		_, err := do[activities.AssignCreditResult](t, w.coordinator.AssignCredit, in)
		requireFinal(t, err, "judgments of other attempts", in.Judgments)
	}
	in.Judgments = ""
	_, err := do[activities.AssignCreditResult](t, w.coordinator.AssignCredit, in)
	requireFinal(t, err, "no judge has scored the calls of demo/train-1/0/0/1")

	in.Judgments = w.judgments([]float64{10, 0}, []float64{0, 10})
	b, _ := w.made(in)
	require.Equal(t, in.Judgments, b.Judgments, "the batch says what it was made of")
	calls := given(b)
	require.Positive(t, calls[0][0][0])
	require.Negative(t, calls[0][1][0])
	require.Negative(t, calls[1][0][0])
	require.Positive(t, calls[1][1][0])
}
