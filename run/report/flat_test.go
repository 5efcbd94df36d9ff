package report_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/report"
	"github.com/fulgurite/fulgurite/spec"
)

// newFlatRun returns a run of one step that may replace two flat groups. Of its tasks,
// the first was flat and the second quarantined. The replacement of the first was flat,
// too. The replacement of that one was also flat, but was trained, since no replacement
// was left.
func newFlatRun(t *testing.T) *testRun {
	t.Helper()
	run := newEmptyRun(t, spec.Training{Steps: 2, TasksPerStep: perStep, SamplesPerTask: samples, DynamicSampling: 2})
	run.rewarded(1, record.Train, 0, false, 0.5, 0.5)
	run.begin(at(1, record.Train, 1, 0, 1).RolloutID)
	run.quarantineAt(1, record.Train, 1)
	run.rewarded(1, record.Train, 2, true, 0, 1)
	run.rewarded(1, record.Reserve, 0, false, 1, 1) // for the first
	run.rewarded(1, record.Reserve, 1, true, 1, 0)  // for the second
	run.rewarded(1, record.Reserve, 2, true, 0, 0)  // replaces the replacement of the first; no replacement is left for it
	return run
}

// rewarded adds a group with these rewards, and trains on it if train is true. Each
// sample first has an attempt that a fault ended.
func (run *testRun) rewarded(step int, kind record.Kind, task int, train bool, rewards ...float64) {
	for sample, reward := range rewards {
		id := record.RolloutID{Run: "demo", Kind: kind, Step: step, Task: task, Sample: sample}
		run.seal(run.begin(id), record.InfraFault)
		a := run.begin(id)
		require.NoError(run.t, run.store.AppendCall(run.t.Context(), &record.Exchange{Call: record.Call{
			Address: a, Parent: -1, Policy: "main", Version: step - 1, Key: "k", Prompt: []int32{1}, Completion: []int32{2}, Logprobs: []float32{-1}, Temperature: 1,
		}}))
		run.sealWith(a, reward)
		if train {
			run.batches[step] = append(run.batches[step], a)
			run.earned[a] = reward
		}
	}
}

// A group that sampled nothing can be replaced, whatever its rewards are.
func TestAReplacedGroupThatSampledNothingIsAccountedFor(t *testing.T) {
	t.Parallel()
	run := newEmptyRun(t, spec.Training{Steps: 2, TasksPerStep: 2, SamplesPerTask: samples, DynamicSampling: 2})
	for sample := range samples {
		run.sealWith(run.begin(record.RolloutID{Run: "demo", Kind: record.Train, Step: 1, Sample: sample}), float64(sample))
	}
	run.rewarded(1, record.Train, 1, true, 0, 1)
	run.rewarded(1, record.Reserve, 0, true, 1, 0)
	r := run.report()
	require.Empty(t, r.Faults)
	require.Equal(t, 1, r.Prompts.Flat)
	require.Equal(t, 2, r.Prompts.Trained)
}

func TestReplacedFlatPromptsAreAccountedFor(t *testing.T) {
	t.Parallel()
	r := newFlatRun(t).report()
	require.Empty(t, r.Faults)
	want := report.Prompts{Issued: 3, Refills: 3, Quarantined: 1, Flat: 2, FlatSamples: 4, Trained: 3}
	require.Equal(t, want, r.Prompts)
	require.Len(t, r.ByStep, 1)
	require.InDelta(t, r.Interruptions.Seconds, r.ByStep[0].InterruptedSeconds, 1e-9)
	r.ByStep[0].InterruptedSeconds = 0
	require.Equal(t, []report.Step{{Step: 1, Prompts: want, Samples: 6, Attempts: 21, Interrupted: r.Interruptions.Count}}, r.ByStep)
	require.NotZero(t, r.Interruptions.Count)
	var text bytes.Buffer
	require.NoError(t, r.WriteText(&text))
	require.Contains(t, text.String(), "flat                     2  (4 samples; not trained: no advantage)")
}

// If credit depends on more than final rewards, groups with equal rewards may be trained,
// and others replaced.
func TestWhatCreditReplacedIsAccountedFor(t *testing.T) {
	t.Parallel()
	run := newRunWith(t, spec.Spec{
		Seed: seed, Credit: spec.Credit{FormatPenalty: 0.5},
		Training: spec.Training{Steps: 2, TasksPerStep: perStep, SamplesPerTask: samples, DynamicSampling: 1},
	})
	run.rewarded(1, record.Train, 0, true, 1, 1)
	run.rewarded(1, record.Train, 1, false, 1, 0.5)
	run.rewarded(1, record.Train, 2, true, 0, 1)
	run.rewarded(1, record.Reserve, 0, true, 0, 0)
	r := run.report()
	require.Empty(t, r.Faults)
	require.Equal(t, report.Prompts{Issued: 3, Refills: 1, Flat: 1, FlatSamples: 2, Trained: 3}, r.Prompts)
}

func TestAReportSaysWhatIsWrongWithFlatPrompts(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		damage func(run *testRun)
		want   report.Prompts
		fault  string
	}{
		"a group that varies is left out": {
			func(run *testRun) { run.batches[1] = run.batches[1][samples:] },
			report.Prompts{Issued: 3, Refills: 3, Quarantined: 1, Flat: 2, FlatSamples: 4, Trained: 2, Skipped: 1}, "train-1/2 was neither trained nor quarantined",
		},
		"one flat group too many is left out": {
			func(run *testRun) { run.batches[1] = run.batches[1][:2*samples] },
			report.Prompts{Issued: 3, Refills: 3, Quarantined: 1, Flat: 2, FlatSamples: 4, Trained: 2, Skipped: 1}, "reserve-1/2 was neither trained nor quarantined",
		},
		"a flat group is trained instead of replaced": {
			func(run *testRun) {
				for sample := range samples {
					run.batches[1] = append(run.batches[1], at(1, record.Train, 0, sample, 2))
					run.earned[at(1, record.Train, 0, sample, 2)] = 0.5
				}
			},
			report.Prompts{Issued: 3, Refills: 2, Quarantined: 1, Flat: 1, FlatSamples: 2, Trained: 3, Unexpected: 1},
			"train-1/0 was trained, although its rewards are all equal and the step could still replace 2",
		},
		"a replacement for nothing": {
			func(run *testRun) { run.begin(at(1, record.Reserve, 3, 0, 1).RolloutID) },
			report.Prompts{Issued: 3, Refills: 3, Quarantined: 1, Flat: 2, FlatSamples: 4, Trained: 3, Unexpected: 1}, "reserve-1/3 was tried, but no stream has it",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run := newFlatRun(t)
			c.damage(run)
			r := run.report()
			require.False(t, r.OK())
			require.True(t, slices.ContainsFunc(r.Faults, func(f string) bool { return strings.Contains(f, c.fault) }), "%q", r.Faults)
			require.Equal(t, c.want, r.Prompts)
		})
	}
}

func TestWithoutDynamicSamplingNoPromptIsFlat(t *testing.T) {
	t.Parallel()
	run := newEmptyRun(t, spec.Training{Steps: 1, TasksPerStep: perStep, SamplesPerTask: samples})
	run.rewarded(1, record.Train, 0, false, 0.5, 0.5)
	run.rewarded(1, record.Train, 1, true, 0, 1)
	run.rewarded(1, record.Train, 2, true, 0, 0)
	r := run.report()
	require.Equal(t, report.Prompts{Issued: 3, Trained: 2, Skipped: 1}, r.Prompts)
}

func TestAGroupThatLacksARewardIsNotFlat(t *testing.T) {
	t.Parallel()
	run := newEmptyRun(t, spec.Training{Steps: 1, TasksPerStep: perStep, SamplesPerTask: samples, DynamicSampling: 3})
	run.rewarded(1, record.Train, 0, false, 0.5)
	run.rewarded(1, record.Train, 1, true, 0, 1)
	run.rewarded(1, record.Train, 2, true, 1, 0)
	r := run.report()
	require.Equal(t, report.Prompts{Issued: 3, Trained: 2, Skipped: 1}, r.Prompts)
}

func TestASingleSampleIsNotFlat(t *testing.T) {
	t.Parallel()
	run := newEmptyRun(t, spec.Training{Steps: 1, TasksPerStep: perStep, SamplesPerTask: 1, DynamicSampling: 3})
	run.samples = 1
	for task := range perStep {
		run.rewarded(1, record.Train, task, true, 0.5)
	}
	r := run.report()
	require.Empty(t, r.Faults)
	require.Equal(t, report.Prompts{Issued: 3, Trained: 3}, r.Prompts)
}
