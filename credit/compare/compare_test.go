package compare_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/credit"
	"github.com/fulgurite/fulgurite/credit/compare"
	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/hf"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/store"
	"github.com/fulgurite/fulgurite/store/blob"
)

// trainedRun is a run "r" with one trained step. In each of its groups, two attempts go
// left and are rewarded, and two go right and fail at a tool.
type trainedRun struct {
	t     *testing.T
	store *store.Store
	blobs *blob.Store
	// unnamed is the task whose attempts lack the reward "style"; 0 if nothing needs it.
	unnamed int
}

func newRun(t *testing.T, c spec.Credit, groups int, values bool) *trainedRun {
	t.Helper()
	return newRunWithout(t, 0, c, groups, values)
}

// newRunWithout is newRun with a task whose attempts lack the reward "style".
func newRunWithout(t *testing.T, unnamed int, c spec.Credit, groups int, values bool) *trainedRun {
	t.Helper()
	b := &trainedRun{t: t, unnamed: unnamed}
	dir := t.TempDir()
	var err error
	b.store, err = store.Open(t.Context(), filepath.Join(dir, "store.db"), nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.store.Close()) })
	require.NoError(t, b.store.Migrate(t.Context()))
	b.blobs, err = blob.Open(filepath.Join(dir, "blobs"))
	require.NoError(t, err)
	text, err := json.Marshal(spec.Spec{Credit: c}.WithDefaults())
	require.NoError(t, err)
	_, _, err = b.store.CreateRun(t.Context(), record.Run{Name: "r", Spec: text})
	require.NoError(t, err)
	in := activities.AssignCreditInput{Run: "r", Policy: model.DefaultPolicy, Step: 1}
	for task := range groups {
		g := activities.Group{Task: task}
		for i, way := range []string{"left", "right", "right", "left"} {
			reward := map[string]float64{"left": 1}[way]
			g.Attempts, g.Rewards = append(g.Attempts, b.attempt(task, i, way, reward)), append(g.Rewards, reward)
		}
		in.Groups = append(in.Groups, g)
	}
	if values {
		in.Values = b.values(4 * groups)
	}
	if c.KLInReward != nil {
		in.Reference = b.values(4 * groups)
	}
	if c.Assignment == credit.Judge {
		scores, err := json.Marshal(record.Judgments{Scores: slices.Repeat([][]float64{{10, 0}, {0, 10}}, 2*groups)})
		require.NoError(t, err)
		in.Judgments, err = b.blobs.Put(t.Context(), scores)
		require.NoError(t, err)
	}
	coordinator := activities.Coordinator{Runs: b.store, Ledger: b.store, Attempts: b.store, Blobs: b.blobs, Codecs: dialog.Named}
	_, err = coordinator.AssignCredit(t.Context(), in)
	require.NoError(t, err)
	return b
}

func (b *trainedRun) attempt(task, i int, way string, reward float64) int {
	b.t.Helper()
	ctx := b.t.Context()
	id := record.RolloutID{Run: "r", Kind: record.Train, Step: 1, Task: task, Sample: i}
	a, err := b.store.BeginAttempt(ctx, id, "a", record.Terms{Policy: model.DefaultPolicy, Temperature: 1}, "key")
	require.NoError(b.t, err)
	for seq, sees := range []string{"door", way} {
		request := fmt.Sprintf(`{"model":"m","messages":[{"role":"user","content":%q}]}`, sees)
		require.NoError(b.t, b.store.AppendCall(ctx, &record.Exchange{Call: record.Call{
			Address: a, Seq: seq, ID: fmt.Sprintf("chatcmpl-%d", seq), Parent: -1, Agent: "solo", Policy: model.DefaultPolicy, Key: sees,
			Prompt: []int32{1, int32(sees[0]) % 50}, Completion: []int32{5, 6}, Logprobs: []float32{-0.5, -1}, Temperature: 1, Finish: "stop", Started: time.Unix(int64(10*seq), 0),
		}, Request: json.RawMessage(request), Response: json.RawMessage(`{}`)}))
	}
	if b.unnamed > 0 && task != b.unnamed {
		require.NoError(b.t, b.store.PutReward(ctx, record.Reward{Address: a, Name: "style", Value: reward, Source: "agent"}))
	}
	if way == "right" {
		require.NoError(b.t, b.store.PutSpans(ctx, a, []record.Span{{
			Trace: "t", ID: "1", Kind: record.ToolSpan, Failed: true, Started: time.Unix(15, 0), Ended: time.Unix(16, 0),
		}}))
	}
	require.NoError(b.t, b.store.SealAttempt(ctx, record.Attempt{Address: a, Outcome: record.OutcomeCompleted, Reward: &reward}))
	return a.Attempt
}

// values stores a critic's values for n attempts, which are 0.25 on average, and returns
// their digest.
func (b *trainedRun) values(n int) string {
	b.t.Helper()
	v := model.Values{Policy: "critic"}
	for range n {
		v.Calls = append(v.Calls, [][]float32{{0.125, 0.375}, {0.125, 0.375}})
	}
	data, err := hf.EncodeValues(v)
	require.NoError(b.t, err)
	digest, err := b.blobs.Put(b.t.Context(), data)
	require.NoError(b.t, err)
	return digest
}

func (b *trainedRun) open() *compare.Step {
	b.t.Helper()
	step, err := compare.Open(b.t.Context(), b.store, b.blobs, "r", model.DefaultPolicy, 0)
	require.NoError(b.t, err)
	require.Equal(b.t, 1, step.Number)
	return step
}

// compare returns the report and the text that WriteText writes.
func (b *trainedRun) compare(names ...string) (compare.Report, string) {
	b.t.Helper()
	step := b.open()
	settings, err := compare.Settings(step.Spec, names)
	require.NoError(b.t, err)
	r, err := step.Compare(settings)
	require.NoError(b.t, err)
	var out bytes.Buffer
	require.NoError(b.t, r.WriteText(&out))
	return r, out.String()
}

func TestGroupsThatWereLeftOutHaveNoPartInAComparison(t *testing.T) {
	t.Parallel()
	named := map[string]float64{"final": 1, "style": 1}
	for name, c := range map[string]spec.Credit{
		"values":     {Tokens: "gae", Whiten: "none", Discount: 1, Lambda: 1, Rewards: named},
		"reference":  {Mean: "none", Std: "none", KLInReward: &spec.KL{Weight: 0.25}, Rewards: named},
		"judgments":  {Assignment: "judge", Judge: &spec.Judge{URL: "http://judge/v1", Model: "m"}, Rewards: named},
		"trajectory": {Std: "none", Rewards: named},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newRunWithout(t, 1, c, 4, name == "values")
			r, text := b.compare()
			require.Equal(t, []int{3, 12, 24, 48}, []int{r.Groups, r.Attempts, r.Calls, r.Tokens})
			require.InDelta(t, 0, r.Difference, 1e-6)
			require.Contains(t, text, "1 of the step's 4 groups was left out of its batch and earned no credit")
			_, err := b.open().Calls(record.Address{RolloutID: record.RolloutID{Run: "r", Kind: record.Train, Step: 1, Task: 1}, Attempt: 1}, nil)
			require.ErrorIs(t, err, compare.ErrNotTrained)
		})
	}
}

func TestSettingsAreComparedWithTheRunsOwn(t *testing.T) {
	t.Parallel()
	b := newRun(t, spec.Credit{Std: "none"}, 8, false)
	r, text := b.compare("last_call", "discounted", "rloo", "maxrl")
	require.Equal(t, []int{8, 32, 64, 128}, []int{r.Groups, r.Attempts, r.Calls, r.Tokens})
	require.Less(t, r.Difference, 1e-6)
	own := r.Settings[0].ByCall
	require.InDelta(t, 0, own.Mean, 1e-12)
	require.InDelta(t, 0.25, own.Variance, 1e-12)
	require.InDelta(t, 1, *own.Correlation, 1e-12)
	last := r.Settings[1].ByCall
	require.InDelta(t, 0.5, last.Zero, 0)
	require.Zero(t, last.Opposite, "nothing is no other sign")
	require.InDelta(t, 0.125, last.Variance, 1e-12)
	require.InDelta(t, 1/1.4142135623730951, *last.Correlation, 1e-12)
	require.Equal(t, []float64{0, 0.5}, r.Settings[1].Positions)
	require.InDelta(t, 0.475, r.Settings[2].Positions[0], 1e-12, "discounted by the default, 0.95")
	require.InDelta(t, 0.25*16/9, r.Settings[3].ByToken.Variance, 1e-12, "leave one out of four")
	require.InDelta(t, 1, *r.Settings[4].ByToken.Correlation, 1e-12)
	require.Empty(t, r.Remarks)
	require.Contains(t, text, "Step 1 of r: 8 groups, 32 attempts, 64 calls, 128 trained tokens\n")
	require.Contains(t, text, "identical (own)")
	require.NotContains(t, text, "computed anew")

	var svg bytes.Buffer
	svg.Write(r.Plot().SVG())
	require.Contains(t, svg.String(), "last_call")
}

func TestEstimatesStandInForACritic(t *testing.T) {
	t.Parallel()
	b := newRun(t, spec.Credit{}, 8, false)
	r, text := b.compare("value_difference", "turn_gae", "ppo", "gigpo")
	require.Equal(t, "value_difference", r.Settings[1].Name)
	positions := r.Settings[1].Positions
	require.Greater(t, positions[0], 2*positions[1], "at the door it was decided")
	require.Len(t, r.Remarks, 2)
	require.Contains(t, text, "turn_gae: the step has no values of a critic")
	require.Equal(t, credit.Identical, r.Settings[3].Assignment, "ppo is the algorithm's, not the run's")
}

func TestACriticsOwnValuesAreUsed(t *testing.T) {
	t.Parallel()
	b := newRun(t, spec.Credit{Tokens: "gae", Whiten: "none", Discount: 1, Lambda: 1}, 1, true)
	r, _ := b.compare("identical", "gigpo")
	require.Less(t, r.Difference, 1e-6)
	require.Empty(t, r.Remarks, "one group is enough where nothing has to be learned")
	require.InDelta(t, 0.25, r.Settings[0].ByCall.Mean, 1e-9, "half of the rewards are 1, all are expected to be 0.25")
	require.InDelta(t, 0, r.Settings[1].ByCall.Mean, 1e-9, "and a group's mean takes the critic's place")
}

func TestAJudgesScoresAreTheRunsOwn(t *testing.T) {
	t.Parallel()
	b := newRun(t, spec.Credit{Assignment: "judge", Judge: &spec.Judge{URL: "http://judge/v1", Model: "m"}}, 2, false)
	r, _ := b.compare("identical", "judge")
	require.Less(t, r.Difference, 1e-6)
	require.Less(t, *r.Settings[1].ByCall.Correlation, 0.9)
	require.InDelta(t, 1, *r.Settings[2].ByCall.Correlation, 1e-12)
}

func TestTheKLInRewardsIsTheRunsOwn(t *testing.T) {
	t.Parallel()
	b := newRun(t, spec.Credit{Mean: "none", Std: "none", KLInReward: &spec.KL{Weight: 0.25}}, 2, false)
	r, _ := b.compare("dr_grpo")
	require.Less(t, r.Difference, 1e-6)
	// The sum of log-ratios of every attempt is 2·(−0.5 − 0.125) + 2·(−1 − 0.375) = −4.
	require.InDelta(t, 0.5+0.25*4, r.Settings[0].ByCall.Mean, 1e-9)
	require.InDelta(t, 0, r.Settings[1].ByCall.Mean, 1e-9)
}

func TestWhatCannotBeEstimatedIsSaid(t *testing.T) {
	t.Parallel()
	step := newRun(t, spec.Credit{}, 1, false).open()
	settings, err := compare.Settings(step.Spec, []string{"value_difference"})
	require.NoError(t, err)
	_, err = step.Compare(settings)
	require.ErrorContains(t, err, "value_difference: bad estimate")
}

func TestTheCallsOfAnAttemptShowWhyTheyGotTheirCredit(t *testing.T) {
	t.Parallel()
	b := newRun(t, spec.Credit{Assignment: "gigpo", Std: "none", Signals: map[string]float64{"tool_error": -0.5}}, 4, false)
	step := b.open()
	settings, err := compare.Settings(step.Spec, []string{"identical"})
	require.NoError(t, err)
	address, err := record.ParseAddress("r/train-1/2/1/1")
	require.NoError(t, err)
	got, err := step.Calls(address, settings)
	require.NoError(t, err)
	require.Equal(t, []string{"gigpo (own)", "identical"}, got.Settings)
	require.Len(t, got.List, 2)
	require.InDelta(t, -0.5, got.List[1].Earned, 0)
	require.Equal(t, "tool_error", got.List[1].Signals[0].Name)
	require.NotEqual(t, got.List[0].State, got.List[1].State)
	require.NotNil(t, got.List[0].Expected)
	require.Len(t, got.List[0].Advantages, 2)
	var out bytes.Buffer
	require.NoError(t, got.WriteText(&out))
	require.Contains(t, out.String(), "r/train-1/2/1/1: reward 0\n")
	require.Regexp(t, `(?m)^1 +solo +[0-9a-f]{8} +2 +\S+ +-0\.5 .*tool_error$`, out.String())

	address.Attempt = 2
	_, err = step.Calls(address, settings)
	require.ErrorIs(t, err, compare.ErrNotTrained)
}

func TestStepsAndNamesThatAreNotThereAreSaid(t *testing.T) {
	t.Parallel()
	b := newRun(t, spec.Credit{}, 2, false)
	_, err := compare.Open(t.Context(), b.store, b.blobs, "r", model.DefaultPolicy, 7)
	require.ErrorIs(t, err, compare.ErrNoBatch)
	require.ErrorContains(t, err, "the last one is that of step 1")
	_, err = compare.Open(t.Context(), b.store, b.blobs, "s", model.DefaultPolicy, 1)
	require.ErrorIs(t, err, record.ErrNotFound)
	_, _, err = b.store.CreateRun(context.Background(), record.Run{Name: "s", Spec: json.RawMessage(`{}`)})
	require.NoError(t, err)
	_, err = compare.Open(t.Context(), b.store, b.blobs, "s", model.DefaultPolicy, 0)
	require.ErrorIs(t, err, compare.ErrNoBatch)
	_, err = compare.Settings(spec.Spec{}, []string{"guess"})
	require.ErrorIs(t, err, compare.ErrUnknown)
	step := b.open()
	settings, err := compare.Settings(step.Spec, []string{"judge"})
	require.NoError(t, err)
	_, err = step.Compare(settings)
	require.ErrorContains(t, err, "judge: bad estimate: no judge has scored the calls of r/train-1/0/0/1")
}

func TestRecordsThatCameLaterAreNoticed(t *testing.T) {
	t.Parallel()
	b := newRun(t, spec.Credit{Assignment: "discounted", Signals: map[string]float64{"tool_error": -0.5}}, 2, false)
	r, _ := b.compare()
	require.Less(t, r.Difference, 1e-6)
	a, err := record.ParseAddress("r/train-1/0/0/1")
	require.NoError(t, err)
	require.NoError(t, b.store.PutSpans(t.Context(), a, []record.Span{{
		Trace: "t", ID: "late", Kind: record.ToolSpan, Failed: true, Started: time.Unix(5, 0), Ended: time.Unix(6, 0),
	}}))
	r, text := b.compare()
	require.Greater(t, r.Difference, 0.01)
	require.Contains(t, text, "computed again, is up to")
}

func TestEveryNameIsOneThatSpecsTake(t *testing.T) {
	t.Parallel()
	b := newRun(t, spec.Credit{}, 4, false)
	names := append([]string{"identical", "discounted", "last_call", "turn_gae", "value_difference"}, spec.Algorithms()...)
	r, text := b.compare(names...)
	require.Len(t, r.Settings, len(names)+1)
	for _, name := range names {
		require.Contains(t, strings.ReplaceAll(text, "(own)", ""), name+"  ")
	}
}
