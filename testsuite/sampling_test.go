package testsuite_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/fulgurite/fulgurite/agent"
	"github.com/fulgurite/fulgurite/internal/report"
	"github.com/fulgurite/fulgurite/internal/stack"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/testsuite/fickle"
	"github.com/fulgurite/fulgurite/workflows"
)

// sampled is a run that replaces groups whose rewards are all equal.
func sampled(lag, steps int) spec.Spec {
	s := lagging(lag, steps)
	s.Training.DynamicSampling = 3
	return s
}

// judged is such a run whose calls the judge at url scores.
func judged(url string, steps int) spec.Spec {
	s := small(steps)
	s.Credit = spec.Credit{Assignment: spec.AssignmentJudge, Judge: &spec.Judge{URL: url, Model: "fickle"}}
	s.Training.DynamicSampling = 2
	return s.WithDefaults()
}

// fickleJudge is a judge and where it is.
func fickleJudge(t *testing.T) (url string, judge *fickle.Judge) {
	t.Helper()
	judge = fickle.New(0)
	server := httptest.NewServer(judge)
	t.Cleanup(server.Close)
	return server.URL + "/v1", judge
}

// accounted is the report of a run, which has to find every prompt.
func accounted(ctx context.Context, t *testing.T, st *stack.Stack, name string) report.Report {
	t.Helper()
	r, err := report.Of(ctx, st.Store, st.Blobs, name, model.DefaultPolicy)
	require.NoError(t, err)
	require.Empty(t, r.Faults)
	p := r.Prompts
	require.Equal(t, p.Issued+p.Refills, p.Trained+p.Quarantined+p.Flat)
	require.Positive(t, p.Flat)
	return r
}

func TestRunsWithDynamicSamplingEndInTheSameBits(t *testing.T) {
	t.Parallel()
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
				return st.Close()
			})
		}
		require.NoError(t, g.Wait())
		require.Equal(t, results[0].Weights, results[1].Weights, "lag %d", lag)
		require.Equal(t, prompts[0], prompts[1], "lag %d", lag)
	}
}

// A judge does not repeat itself; runs do.
func TestEqualRunsWithAJudgeEndInTheSameBits(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	st := start(ctx, t, t.TempDir())
	defer func() { require.NoError(t, st.Close()) }()
	url, judge := fickleJudge(t)
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
		require.NotEqual(t, versions[i].Weights, versions[i+1].Weights, "each step taught something")
	}
	accounted(ctx, t, st, "judged-again")
}
