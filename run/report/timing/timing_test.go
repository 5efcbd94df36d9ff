package timing_test

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/report/timing"
)

// records are those of a policy of a run, as a store returns them.
type records struct {
	steps       []record.Step
	batches     []record.Batch
	versions    []model.Version
	evaluations []record.Evaluation
	times       map[record.Kind][]record.AttemptTimes // of all steps
}

func (r records) Steps(context.Context, string, string) ([]record.Step, error) { return r.steps, nil }

func (r records) Batches(context.Context, string, string) ([]record.Batch, error) {
	return r.batches, nil
}

func (r records) Versions(context.Context, string, string) ([]model.Version, error) {
	return r.versions, nil
}

func (r records) Evaluations(context.Context, string) ([]record.Evaluation, error) {
	return r.evaluations, nil
}

func (r records) Times(_ context.Context, _, _ string, kind record.Kind, step int) (out []record.AttemptTimes, _ error) {
	for _, t := range r.times[kind] {
		if t.Step == step {
			out = append(out, t)
		}
	}
	return out, nil
}

// second returns a moment of the run.
func second(n int) time.Time { return time.Unix(1_000_000+int64(n), 0).UTC() }

// attempt returns the times of an attempt at a step that begins, returns and is sealed at
// these moments.
func attempt(step, sample, begun, returned, ended int, calls ...record.CallTimes) record.AttemptTimes {
	return record.AttemptTimes{
		Address: record.Address{RolloutID: record.RolloutID{Run: "demo", Kind: record.Train, Step: step, Sample: sample}, Attempt: 1},
		Outcome: record.OutcomeCompleted, Begun: second(begun), Returned: second(returned), Ended: second(ended), Calls: calls,
	}
}

// sampled returns a call whose time has these parts, one after the other.
func sampled(started, other, queued, prefill, decode int) record.CallTimes {
	return record.CallTimes{
		Started: second(started), Duration: time.Duration(other+queued+prefill+decode) * time.Second,
		Sampling: record.Sampling{
			Queued: time.Duration(queued) * time.Second, Prefill: time.Duration(prefill) * time.Second, Decode: time.Duration(decode) * time.Second, Shared: 7,
		},
	}
}

// oneStep is a run whose only step has two attempts.
func oneStep() records {
	return records{
		steps:   []record.Step{{Step: 1, At: second(72)}},
		batches: []record.Batch{{Step: 1, Begun: second(42), At: second(45)}},
		versions: []model.Version{
			{VersionID: model.VersionID{Number: 0}, Begun: second(-20), Created: second(-10), Work: model.Work{Gradient: 8 * time.Second}},
			{VersionID: model.VersionID{Number: 1}, Begun: second(46), Created: second(65), Work: model.Work{
				Load: 2 * time.Second, Score: time.Second, Gradient: 10 * time.Second, Optimizer: 3 * time.Second, Save: time.Second,
			}},
		},
		evaluations: []record.Evaluation{{Policy: "", EvaluationResult: record.EvaluationResult{Kind: record.Gate, Version: 1}}},
		times: map[record.Kind][]record.AttemptTimes{
			record.Train: {
				attempt(1, 0, 0, 35, 40, sampled(5, 1, 2, 3, 4), sampled(20, 0, 0, 0, 5)),
				attempt(1, 1, 2, 12, 13, sampled(6, 0, 0, 1, 5)),
			},
			record.Gate: {attempt(1, 0, 66, 68, 68), attempt(1, 1, 67, 70, 70)},
		},
	}
}

func timesOf(t *testing.T, r records) *timing.Report {
	t.Helper()
	out, err := timing.Of(t.Context(), r, "demo", "")
	require.NoError(t, err)
	return out
}

func TestThePartsOfAStepSumToItsTime(t *testing.T) {
	t.Parallel()
	got := timesOf(t, oneStep())
	want := timing.Step{
		Step: 1, Begun: second(0), Seconds: 65,
		// The second attempt decodes from 7 to 12. The first one has its call from 5 to 15: on
		// its way from 5, queued from 6, in prefill from 8, decoding from 11.
		Rollouts: timing.Rollouts{Seconds: 40, Decode: 8 + 5, Prefill: 1, Call: 1, Grading: 5, Between: 5, Starting: 5, Ending: 10},
		Batch:    timing.Batch{Seconds: 5, Wait: 2, Make: 3},
		Update:   timing.Update{Seconds: 20, Wait: 1, Load: 2, Score: 1, Gradient: 10, Optimizer: 3, Save: 1, Other: 2},
		Next:     timing.Next{Seconds: 7, Evaluation: 4, Other: 3},
		Attempts: timing.Attempts{Count: 2, Calls: 3, SharedTokens: 21, Rollouts: timing.Rollouts{
			Seconds: 40 + 11, Decode: 4 + 5 + 5, Prefill: 3 + 1, Queued: 2, Call: 1, Grading: 5 + 1, Between: 5, Starting: 5 + 4, Ending: 10,
		}},
	}
	require.Empty(t, cmp.Diff([]timing.Step{want}, got.Steps))
	require.Equal(t, &timing.Update{Seconds: 10, Gradient: 8, Other: 2}, got.First)
	require.Len(t, got.Evaluations, 1)
	require.Equal(t, timing.Rollouts{Seconds: 4, Starting: 4}, got.Evaluations[0].Rollouts)
	want.Step, want.Begun = 0, time.Time{}
	require.Equal(t, &want, got.Mean)

	var text bytes.Buffer
	require.NoError(t, got.WriteText(&text))
	for _, line := range []string{
		"Where the time of a step went: 1 finished step",
		"  rollouts                                40.00  61.5 %            51.00",
		"    calls: decoding                       13.00  20.0 %            14.00",
		"    calls: queue of the sampler            0.00   0.0 %             2.00",
		"    forward and backward                  10.00  15.4 %",
		"  2 attempts and 3 calls a step; 21 tokens of their prompts shared with others",
		"  until the next step: 7.00 s, of it evaluation 4.00",
		"      1      65.00      40.00       5.00      20.00       7.00",
		"Version 0: 10.00 s, of it gradients 8.00, optimizer 0.00, loading 0.00, saving 0.00",
	} {
		require.Contains(t, text.String(), line+"\n")
	}
	require.NotContains(t, text.String(), "no attempt under way")
}

// A killed process leaves an attempt without an end. Until the next attempt, nothing runs.
func TestTimeWithoutAnAttemptIsIdle(t *testing.T) {
	t.Parallel()
	r := oneStep()
	lost := attempt(1, 0, 0, 0, 0, sampled(1, 0, 0, 1, 3))
	lost.Outcome, lost.Returned, lost.Ended = record.OutcomeRunning, time.Time{}, time.Time{}
	again := attempt(1, 0, 15, 30, 30, record.CallTimes{ReplayedFrom: 1, Started: second(16)}, sampled(20, 0, 0, 0, 10))
	again.Attempt = 2
	r.times[record.Train] = []record.AttemptTimes{lost, again}
	got := timesOf(t, r).Steps[0]
	require.Equal(t, timing.Rollouts{Seconds: 30, Decode: 3 + 10, Prefill: 1, Between: 4, Starting: 1 + 1, Idle: 10}, got.Rollouts)
	require.Equal(t, 2, got.Attempts.Calls)
	require.Equal(t, timing.Batch{Seconds: 15, Wait: 12, Make: 3}, got.Batch)
}

// A grader command decides after the seal, and other trainers and samplers do not say what
// they did.
func TestWhatIsNotOnRecordIsInTheRest(t *testing.T) {
	t.Parallel()
	r := oneStep()
	graded := attempt(1, 0, 0, 10, 10, record.CallTimes{Started: second(2), Duration: 8 * time.Second})
	graded.Graded = second(16)
	r.times[record.Train] = []record.AttemptTimes{graded}
	r.batches[0].Begun = time.Time{}
	r.versions = []model.Version{{VersionID: model.VersionID{Number: 1}, Created: second(65)}}
	got := timesOf(t, r)
	require.Nil(t, got.First)
	require.Equal(t, timing.Rollouts{Seconds: 16, Call: 8, Grading: 6, Starting: 2}, got.Steps[0].Rollouts)
	require.Equal(t, timing.Batch{Seconds: 29, Make: 29}, got.Steps[0].Batch)
	require.Equal(t, timing.Update{Seconds: 20, Other: 20}, got.Steps[0].Update)
}

// With training.lag, a step begins before the version of the one before is on record.
func TestStepsMayOverlap(t *testing.T) {
	t.Parallel()
	r := oneStep()
	r.steps = append(r.steps, record.Step{Step: 2, At: second(140)})
	r.batches = append(r.batches, record.Batch{Step: 2, Begun: second(100), At: second(110)})
	r.versions = append(r.versions, model.Version{VersionID: model.VersionID{Number: 2}, Begun: second(110), Created: second(130)})
	r.times[record.Train] = append(r.times[record.Train], attempt(2, 0, 50, 80, 80))
	got := timesOf(t, r)
	require.Equal(t, timing.Next{}, got.Steps[0].Next)
	require.Equal(t, timing.Batch{Seconds: 30, Wait: 20, Make: 10}, got.Steps[1].Batch)
	require.InDelta(t, 80.0, got.Steps[1].Seconds, 0)
	require.InDelta(t, (65.0+80)/2, got.Mean.Seconds, 0)
	require.InDelta(t, 10.0/2, got.Mean.Next.Seconds, 0)

	empty := timesOf(t, records{})
	require.Nil(t, empty.Mean)
	var text bytes.Buffer
	require.NoError(t, empty.WriteText(&text))
	require.Equal(t, "\nWhere the time went: no step is finished\n", text.String())
}
