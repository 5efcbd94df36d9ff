package report_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/internal/golden"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/report"
	"github.com/fulgurite/fulgurite/store/blob"
)

func TestEveryPromptIsAccountedFor(t *testing.T) {
	t.Parallel()
	r := newTestRun(t).report()
	require.Empty(t, r.Faults)
	require.True(t, r.OK())
	require.Equal(t, report.Prompts{Issued: 6, Refills: 2, Quarantined: 2, Trained: 6, UnderWay: 1}, r.Prompts)
	require.Equal(t, 12, r.Samples)
	require.Equal(t, []int{2, 4}, []int{r.Steps, r.Planned})
	require.Equal(t, []report.Step{
		{Step: 1, Prompts: report.Prompts{Issued: 3, Trained: 3}, Samples: 6, Attempts: 6},
		{Step: 2, Prompts: report.Prompts{Issued: 3, Refills: 2, Quarantined: 2, Trained: 3}, Samples: 6, Attempts: 6},
	}, r.ByStep)
	require.Len(t, r.Quarantines, 2)
	var text bytes.Buffer
	require.NoError(t, r.WriteText(&text))
	require.Contains(t, text.String(), "train-2/4")
	golden.Compare(t, "report", text.String())
}

// In each of these cases, a store is damaged.
func TestAReportSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	first := at(1, record.Train, 0, 0, 1)
	faults := map[string]*string{}
	t.Cleanup(func() {
		messages := map[string]string{}
		for name, said := range faults {
			messages[name] = *said
		}
		if !t.Failed() {
			golden.Table(t, "faults", messages)
		}
	})
	for name, c := range map[string]struct {
		damage func(run *testRun)
		want   report.Prompts // except for UnderWay
		fault  string
	}{
		"an attempt twice": {
			func(run *testRun) { run.batches[1] = append(run.batches[1], first) },
			report.Prompts{Issued: 6, Refills: 2, Quarantined: 2, Trained: 5, Duplicated: 1}, "train-1/0 ",
		},
		"a group twice, in two steps": {
			func(run *testRun) { run.batches[2] = append(run.batches[2], run.batches[1][:samples]...) },
			report.Prompts{Issued: 6, Refills: 2, Quarantined: 2, Trained: 5, Duplicated: 1}, "demo/train-1/0/0/1 ",
		},
		"a missing group": {
			func(run *testRun) { run.batches[1] = run.batches[1][samples:] },
			report.Prompts{Issued: 6, Refills: 2, Quarantined: 2, Trained: 5, Skipped: 1}, "train-1/0 ",
		},
		"a missing replacement": {
			func(run *testRun) { run.batches[2] = run.batches[2][:2*samples] },
			report.Prompts{Issued: 6, Refills: 2, Quarantined: 2, Trained: 5, Skipped: 1}, "reserve-2/1 ",
		},
		"a missing sample": {
			func(run *testRun) { run.batches[1] = run.batches[1][1:] },
			report.Prompts{Issued: 6, Refills: 2, Quarantined: 2, Trained: 5, Skipped: 1}, "train-1/0 ",
		},
		"a quarantined task": {
			func(run *testRun) { run.quarantine(record.Train, 3) },
			report.Prompts{Issued: 6, Refills: 3, Quarantined: 3, Trained: 5, Skipped: 1, Unexpected: 1}, "train-2/3 ",
		},
		"a task of no stream": {
			func(run *testRun) { run.group(2, record.Train, 0) },
			report.Prompts{Issued: 6, Refills: 2, Quarantined: 2, Trained: 6, Unexpected: 1}, "train-2/0 ",
		},
		"a task that was tried for nothing": {
			func(run *testRun) { run.begin(at(1, record.Reserve, 0, 0, 1).RolloutID) },
			report.Prompts{Issued: 6, Refills: 2, Quarantined: 2, Trained: 6, Unexpected: 1}, "reserve-1/0 ",
		},
		"an attempt that a fault ended": {
			func(run *testRun) {
				a := run.begin(first.RolloutID)
				run.seal(a, record.InfraFault)
				run.batches[1][0] = a
			},
			report.Prompts{Issued: 6, Refills: 2, Quarantined: 2, Trained: 6}, `demo/train-1/0/0/2 `,
		},
		"an attempt that has no end": {
			func(run *testRun) { run.batches[1][0] = run.begin(first.RolloutID) },
			report.Prompts{Issued: 6, Refills: 2, Quarantined: 2, Trained: 6}, `its outcome is ""`,
		},
		"an attempt that nobody made": {
			func(run *testRun) { run.batches[1][0].Attempt = 9 },
			report.Prompts{Issued: 6, Refills: 2, Quarantined: 2, Trained: 6}, "demo/train-1/0/0/9 ",
		},
		"an attempt of another run": {
			func(run *testRun) { run.batches[1][0].Run = "other" },
			report.Prompts{Issued: 6, Refills: 2, Quarantined: 2, Trained: 5, Skipped: 1}, `"other/train-1/0/0/1", no attempt of this run`,
		},
		"another reward": {
			func(run *testRun) {
				run.edit = func(step int, b *model.Batch) { b.Trajectories[0].Reward = float64(step) }
			},
			report.Prompts{Issued: 6, Refills: 2, Quarantined: 2, Trained: 6}, "with reward 1, but 0.5 is on record",
		},
		"a step with another batch than was made": {
			func(run *testRun) {
				_, _, err := run.store.PutBatch(run.t.Context(), record.Batch{Run: "demo", Policy: "main", Step: 2, Digest: "sha256:11"})
				require.NoError(run.t, err)
			},
			report.Prompts{Issued: 6, Refills: 2, Quarantined: 2, Trained: 6}, "but sha256:11 is the batch of that step",
		},
		"a version of another batch": {
			func(run *testRun) { run.versionBatch[2] = "sha256:00" },
			report.Prompts{Issued: 6, Refills: 2, Quarantined: 2, Trained: 6}, "version 2 was trained on batch sha256:00",
		},
	} {
		said := new(string)
		faults[name] = said
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run := newTestRun(t)
			c.damage(run)
			r := run.report()
			require.False(t, r.OK())
			r.Prompts.UnderWay = 0
			require.Equal(t, c.want, r.Prompts)
			require.True(t, slices.ContainsFunc(r.Faults, func(f string) bool { return strings.Contains(f, c.fault) }), "%q", r.Faults)
			var text bytes.Buffer
			require.NoError(t, r.WriteText(&text))
			require.Contains(t, text.String(), r.Faults[0])
			*said = strings.Join(r.Faults, "\n")
		})
	}
}

func TestATaskThatTheStreamDoesNotHaveThereIsAFault(t *testing.T) {
	t.Parallel()
	run := newTestRun(t)
	a, err := run.store.BeginAttempt(t.Context(), at(1, record.Train, 0, 0, 1).RolloutID, "another", record.Terms{Policy: "main"}, "c0ffee")
	require.NoError(t, err)
	run.seal(a, record.OutcomeCompleted)
	run.batches[1][0] = a
	r := run.report()
	require.Len(t, r.Faults, 1)
	require.Contains(t, r.Faults[0], `demo/train-1/0/0/2 tried task "another"`)
}

func TestABatchThatCannotBeReadIsAFault(t *testing.T) {
	t.Parallel()
	run := newTestRun(t)
	run.report()
	b, err := run.store.Batch(t.Context(), "demo", "main", 2)
	require.NoError(t, err)
	r, err := report.Of(t.Context(), run.store, without{run.blobs, b.Digest}, "demo", "main")
	require.NoError(t, err)
	require.Equal(t, 3, r.Prompts.Skipped, "its prompts are not known to be trained")
	require.Contains(t, r.Faults[0], "batch of step 2")
}

// without holds blobs of which one is missing.
type without struct {
	*blob.Store
	digest string
}

func (w without) Get(ctx context.Context, digest string) ([]byte, error) {
	if digest == w.digest {
		return nil, errors.New("gone")
	}
	return w.Store.Get(ctx, digest)
}

func TestAMissingStepIsAFault(t *testing.T) {
	t.Parallel()
	run := newTestRun(t)
	delete(run.batches, 2)
	run.report()
	require.NoError(t, run.store.PutStep(t.Context(), record.Step{Run: "demo", Policy: "main", Step: 3, Batch: "sha256:00"}))
	r := run.read()
	require.Contains(t, r.Faults[0], "step 2 is not on record")
}

func TestAttemptsAreCountedByWhatBecameOfThem(t *testing.T) {
	t.Parallel()
	run := newTestRun(t)
	id := at(1, record.Gate, 0, 0, 1).RolloutID
	lost := run.begin(id)
	require.NoError(t, run.store.AppendCall(t.Context(), &record.Exchange{Call: record.Call{
		Address: lost, Parent: -1, Policy: "main", Key: "k", Prompt: []int32{1}, Completion: []int32{2, 3}, Logprobs: []float32{-1, -1}, Temperature: 1,
	}}))
	run.seal(run.begin(id), record.InfraFault)
	run.seal(run.begin(id), record.OutcomeCompleted) // its result was lost
	last := run.begin(id)
	require.NoError(t, run.store.AppendCall(t.Context(), &record.Exchange{Call: record.Call{
		Address: last, Parent: -1, Policy: "main", Key: "k", Prompt: []int32{1}, Completion: []int32{2, 3}, Logprobs: []float32{-1, -1}, Temperature: 1,
		ReplayedFrom: 1,
	}}))
	run.seal(last, record.AgentFailed)
	r := run.report()
	require.True(t, r.OK(), "%q", r.Faults)
	require.Equal(t, report.Attempts{
		Total: 4, Completed: 1, AgentFailed: 1, Failures: map[string]int{"timeout": 1}, InfraFault: 1, Lost: 1, Repeated: 1,
		Calls: report.Calls{Recorded: 2, Sampled: 1, Replayed: 1, Tokens: 4, TokensSaved: 2},
	}, r.ByKind[record.Gate])
	require.Equal(t, 1, r.ByKind[record.Train].Running, "of step 3")
	require.Equal(t, 17, r.Attempts.Total)
	require.Equal(t, 2, r.Interruptions.Count)
	require.Less(t, r.Interruptions.Seconds, time.Minute.Seconds())
}

func TestRefusedCallsAreReportedByCode(t *testing.T) {
	t.Parallel()
	run := newTestRun(t)
	none, err := json.Marshal(run.report())
	require.NoError(t, err)
	require.Contains(t, string(none), `"refusals":[]`)
	for i, r := range []record.Refusal{{Code: "invalid_json", Message: "no JSON"}, {Code: "call_limit", Message: "all of its 8 calls", Count: 2}, {Code: "call_limit", Message: "all of its 8 calls"}} {
		r.Address, r.Last = at(1, record.Train, 0, i%2, 1), time.Unix(int64(100+i), 0)
		require.NoError(t, run.store.AddRefusal(t.Context(), r))
	}
	r := run.read()
	require.True(t, r.OK(), "an agent that was refused is not wrong with the run")
	require.Len(t, r.Refusals, 2)
	require.Equal(t, []any{"call_limit", 3, 2, "demo/train-1/0/0/1"}, []any{r.Refusals[0].Code, r.Refusals[0].Count, r.Refusals[0].Attempts, r.Refusals[0].Attempt})
	var text bytes.Buffer
	require.NoError(t, r.WriteText(&text))
	require.Regexp(t, `call_limit: 3 .* 2 .* demo/train-1/0/0/1`, text.String())
	golden.Compare(t, "refusals", text.String())
	got, err := json.Marshal(r)
	require.NoError(t, err)
	require.Contains(t, string(got), `"refusals":[{"code":"call_limit","message":"all of its 8 calls","count":3,`)
}

func TestTheHistoryOfThePointerIsTold(t *testing.T) {
	t.Parallel()
	run := newTestRun(t)
	for _, p := range []record.Promotion{
		{DecisionID: "gate-0", Version: 0, Previous: -1, Reason: "it is the first"},
		{DecisionID: "pin-1", Version: 1, Previous: 0, Source: record.SourcePin, By: "ada@host", Reason: "a hunch"},
	} {
		p.Run, p.Policy = "demo", "main"
		require.NoError(t, run.store.Promote(t.Context(), p))
	}
	require.NoError(t, run.store.PutDecision(t.Context(), record.Decision{Run: "demo", Policy: "main", DecisionID: "gate-2", Candidate: 2, Verdict: "pinned", Reason: "held"}))
	r := run.report()
	require.Equal(t, 1, *r.Promoted)
	require.True(t, r.Pinned)
	require.Equal(t, map[record.Source]int{record.SourceGate: 1, record.SourcePin: 1}, r.Pointer)
	var text bytes.Buffer
	require.NoError(t, r.WriteText(&text))
	for _, want := range []string{"0 → 1", "ada@host", "a hunch", "held"} {
		require.Contains(t, text.String(), want)
	}
	golden.Compare(t, "pinned", text.String())
}

func TestAReportIsTheSameEachTime(t *testing.T) {
	t.Parallel()
	run := newTestRun(t)
	run.batches[1] = run.batches[1][1:]
	run.group(2, record.Train, 0)
	first, err := json.Marshal(run.report())
	require.NoError(t, err)
	for range 5 {
		again, err := json.Marshal(run.read())
		require.NoError(t, err)
		require.JSONEq(t, string(first), string(again))
		require.Equal(t, string(first), string(again))
	}
}
