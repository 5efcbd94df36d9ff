package testsuite_test

import (
	"context"
	"fmt"
	"math"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/fulgurite/fulgurite/agent"
	"github.com/fulgurite/fulgurite/credit"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/run/report"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/testsuite/randomjudge"
	"github.com/fulgurite/fulgurite/workers/stack"
	"github.com/fulgurite/fulgurite/workflows"
)

// sampled returns the spec of a run that replaces groups that would get no advantage.
// Without a lag, these are groups whose rewards are all equal. With a lag, their formats
// must be equal too.
func sampled(lag, steps int) spec.Spec {
	s := lagging(lag, steps)
	s.Training.DynamicSampling = 3
	if lag > 0 {
		s.Credit.FormatPenalty = 0.25
	}
	return s
}

// judged returns the spec of a run whose calls the judge at url scores. It also has a
// penalty for divergence from version 0.
func judged(url string, steps int) spec.Spec {
	s := small(steps)
	s.Credit = spec.Credit{Assignment: credit.Judge, Judge: &spec.Judge{URL: url, Model: "random"}, KLInReward: &spec.KL{Weight: 0.05}}
	return s.WithDefaults()
}

// randomJudge starts a judge and returns it with its URL.
func randomJudge(t *testing.T) (url string, judge *randomjudge.Judge) {
	t.Helper()
	judge = randomjudge.New(0)
	server := httptest.NewServer(judge)
	t.Cleanup(server.Close)
	return server.URL + "/v1", judge
}

// accounted returns the report of a run, and checks that it accounts for every prompt.
func accounted(ctx context.Context, t *testing.T, st *stack.Stack, name string) report.Report {
	t.Helper()
	r, err := report.Of(ctx, st.Store, st.Blobs, name, model.DefaultPolicy)
	require.NoError(t, err)
	require.Empty(t, r.Faults)
	p := r.Prompts
	require.Equal(t, p.Issued+p.Refills, p.Trained+p.Quarantined+p.Flat)
	return r
}

func TestRunsWithDynamicSamplingEndInTheSameBits(t *testing.T) {
	t.Parallel()
	skipKind(t, "such runs are killed and retried by other tests, and end in the same bits")
	ctx := t.Context()
	for lag := range 2 {
		results, prompts := make([]workflows.TrainingResult, 2), make([]report.Prompts, 2)
		var g errgroup.Group
		for i, events := range []int{0, 100} { // the second continues as new on its way
			g.Go(func() error {
				st, err := stack.Start(ctx, stack.Options{
					Dir: t.TempDir(), Agents: agent.Registry{"calculator": calculate}, Log: zap.NewNop(), HistoryEvents: events,
				})
				if err != nil {
					return err
				}
				name := fmt.Sprintf("sampled-%d", i)
				if results[i], err = train(ctx, st, name, sampled(lag, 5)); err != nil {
					return err
				}
				prompts[i] = accounted(ctx, t, st, name).Prompts
				require.Positive(t, prompts[i].Flat)
				return st.Close()
			})
		}
		require.NoError(t, g.Wait())
		require.Equal(t, results[0].Weights, results[1].Weights, "lag %d", lag)
		require.Equal(t, prompts[0], prompts[1], "lag %d", lag)
	}
}

// A judge never gives the same answer twice, but equal runs must get the same judgments.
func TestEqualRunsWithAJudgeEndInTheSameBits(t *testing.T) {
	t.Parallel()
	skipShort(t, "other runs use the same goroutines")
	ctx := t.Context()
	st := sharedStack(t)
	url, judge := randomJudge(t)
	results := make([]workflows.TrainingResult, 2)
	var g errgroup.Group
	for i := range results {
		g.Go(func() (err error) {
			results[i], err = train(ctx, st, fmt.Sprintf("judged-%d", i), judged(url, 4))
			return err
		})
	}
	require.NoError(t, g.Wait())
	require.Equal(t, results[0].Weights, results[1].Weights)
	before := len(judge.Answers())
	again, err := train(ctx, st, "judged-again", judged(url, 4))
	require.NoError(t, err)
	require.Equal(t, results[0].Weights, again.Weights)
	require.Len(t, judge.Answers(), before, "what was judged for one run is judged for all")

	steps, err := st.Store.Steps(ctx, "judged-0", model.DefaultPolicy)
	require.NoError(t, err)
	versions, err := st.Store.Versions(ctx, "judged-0", model.DefaultPolicy)
	require.NoError(t, err)
	for i, s := range steps {
		require.Positive(t, s.Metrics["judge/calls"])
		require.Positive(t, s.Metrics["judge/score"])
		require.Contains(t, s.Metrics, "batch/kl_penalty")
		if i == 0 {
			require.InDelta(t, 0, s.Metrics["batch/kl_ref"], 1e-5, "version 0 sampled")
		} else {
			require.Greater(t, math.Abs(s.Metrics["batch/kl_ref"]), 1e-5)
		}
		require.NotEqual(t, versions[i].Weights, versions[i+1].Weights, "each step taught something")
	}
	accounted(ctx, t, st, "judged-again")
}
