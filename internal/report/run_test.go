package report_test

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/internal/report"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/hf"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/store"
	"github.com/fulgurite/fulgurite/store/blob"
	"github.com/fulgurite/fulgurite/tasks"
	"github.com/fulgurite/fulgurite/trace"
)

const (
	seed    = 7
	perStep = 3
	samples = 2
)

// ledger is a run of two finished steps and one under way. In step 2 a task was
// quarantined, and so was the first that stood in for it.
type ledger struct {
	t       testing.TB
	path    string
	store   *store.Store
	blobs   *blob.Store
	tasks   []tasks.Task
	samples int
	// batches are the attempts that each step trains on, until they are written.
	batches map[int][]trace.Address
	// earned are the rewards of attempts that are not the usual one.
	earned map[trace.Address]float64
	// edit changes the batch of a step before it is written.
	edit func(step int, b *model.Batch)
	// versionBatch is what versions say they were trained on, where not the batch.
	versionBatch map[int]string
}

func newLedger(t testing.TB) *ledger {
	t.Helper()
	l := emptyLedger(t, spec.Training{Steps: 4, TasksPerStep: perStep, SamplesPerTask: samples})
	for step := 1; step <= 2; step++ {
		for i := range perStep {
			if p := (step-1)*perStep + i; p != 4 {
				l.group(step, trace.Train, p)
			}
		}
	}
	l.quarantine(trace.Train, 4)
	l.quarantine(trace.Reserve, 0)
	l.group(2, trace.Reserve, 1)
	l.begin(trace.RolloutID{Run: "demo", Kind: trace.Train, Step: 3, Task: 6})
	return l
}

// emptyLedger is a run without any step.
func emptyLedger(t testing.TB, training spec.Training) *ledger {
	t.Helper()
	return emptyLedgerOf(t, spec.Spec{Seed: seed, Training: training})
}

func emptyLedgerOf(t testing.TB, s spec.Spec) *ledger {
	t.Helper()
	dir := t.TempDir()
	l := &ledger{t: t, path: filepath.Join(dir, "store.db"), samples: samples, batches: map[int][]trace.Address{}, versionBatch: map[int]string{}, earned: map[trace.Address]float64{}}
	var err error
	l.store, err = store.Open(t.Context(), l.path, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.store.Close()) })
	require.NoError(t, l.store.Migrate(t.Context()))
	l.blobs, err = blob.Open(filepath.Join(dir, "blobs"))
	require.NoError(t, err)
	for i := range 5 {
		l.tasks = append(l.tasks, tasks.Task{ID: fmt.Sprintf("task-%d", i), Input: "1+1"})
	}
	text, err := json.Marshal(s)
	require.NoError(t, err)
	data, err := tasks.Encode(l.tasks)
	require.NoError(t, err)
	digest, err := l.blobs.Put(t.Context(), data)
	require.NoError(t, err)
	_, _, err = l.store.CreateRun(t.Context(), record.Run{
		Name: "demo", Spec: text, Splits: map[trace.Kind]record.Split{trace.Train: {Digest: digest, Count: len(l.tasks)}},
	})
	require.NoError(t, err)
	return l
}

// group runs all samples of a task and trains on them.
func (l *ledger) group(step int, kind trace.Kind, task int) {
	for sample := range samples {
		a := l.begin(trace.RolloutID{Run: "demo", Kind: kind, Step: step, Task: task, Sample: sample})
		l.seal(a, trace.Completed)
		l.batches[step] = append(l.batches[step], a)
	}
}

func (l *ledger) begin(id trace.RolloutID) trace.Address {
	l.t.Helper()
	a, err := l.store.BeginAttempt(l.t.Context(), id, l.task(id).ID, trace.Terms{Policy: "main", Version: id.Step - 1}, "c0ffee")
	require.NoError(l.t, err)
	return a
}

// task is what the streams have for a rollout.
func (l *ledger) task(id trace.RolloutID) tasks.Task {
	index, _ := tasks.At(seed, len(l.tasks), id.Task)
	if id.Kind == trace.Reserve {
		index = tasks.Reserve(seed, len(l.tasks), id.Step, id.Task)
	}
	return l.tasks[index]
}

func (l *ledger) seal(a trace.Address, outcome trace.Outcome) {
	l.t.Helper()
	s := trace.Attempt{Address: a, Outcome: outcome}
	if outcome != trace.InfraFault {
		reward := usual
		s.Reward = &reward
	}
	if outcome == trace.AgentFailed {
		s.Failure = "timeout"
	}
	require.NoError(l.t, l.store.SealAttempt(l.t.Context(), s))
}

// usual is the reward of an attempt of which nothing else is said.
const usual = 0.5

func (l *ledger) reward(a trace.Address) float64 {
	if r, ok := l.earned[a]; ok {
		return r
	}
	return usual
}

func (l *ledger) sealWith(a trace.Address, reward float64) {
	l.t.Helper()
	require.NoError(l.t, l.store.SealAttempt(l.t.Context(), trace.Attempt{Address: a, Outcome: trace.Completed, Reward: &reward}))
}

func (l *ledger) quarantine(kind trace.Kind, task int) { l.quarantineAt(2, kind, task) }

func (l *ledger) quarantineAt(step int, kind trace.Kind, task int) {
	l.t.Helper()
	require.NoError(l.t, l.store.PutQuarantine(l.t.Context(), record.Quarantine{
		Run: "demo", Policy: "main", Step: step, Kind: kind, Task: task, Index: 1, Reason: "the grader has no answer",
	}))
}

// report writes the batches, versions and steps, and reports.
func (l *ledger) report() report.Report {
	l.t.Helper()
	for step := 1; step <= len(l.batches); step++ {
		b := model.Batch{Format: model.BatchFormat, Policy: "main", Step: step, VocabSize: 4}
		for i, a := range l.batches[step] {
			b.Trajectories = append(b.Trajectories, model.BatchTrajectory{Attempt: a.String(), Group: i / l.samples, Reward: l.reward(a)})
			b.Rows = append(b.Rows, model.BatchRow{
				Row: model.Row{Tokens: []int32{1, 2}, Temperature: 1}, Sampled: []bool{false, true}, Logprobs: []float32{0, -1},
				Advantages: []float32{0, 1}, Calls: []int32{-1, 0}, Trajectory: i,
			})
		}
		if l.edit != nil {
			l.edit(step, &b)
		}
		b.Count()
		data, err := hf.EncodeBatch(b)
		require.NoError(l.t, err)
		digest, err := l.blobs.Put(l.t.Context(), data)
		require.NoError(l.t, err)
		_, _, err = l.store.PutBatch(l.t.Context(), record.Batch{Run: "demo", Policy: "main", Step: step, Digest: digest})
		require.NoError(l.t, err)
		v := model.Version{VersionID: model.VersionID{Run: "demo", Policy: "main", Number: step}, Parent: step - 1, Batch: digest}
		if other, ok := l.versionBatch[step]; ok {
			v.Batch = other
		}
		_, _, err = l.store.PutVersion(l.t.Context(), v)
		require.NoError(l.t, err)
		require.NoError(l.t, l.store.PutStep(l.t.Context(), record.Step{Run: "demo", Policy: "main", Step: step, Batch: digest}))
	}
	return l.read()
}

func (l *ledger) read() report.Report {
	l.t.Helper()
	r, err := report.Of(l.t.Context(), l.store, l.blobs, "demo", "main")
	require.NoError(l.t, err)
	return r
}

func at(step int, kind trace.Kind, task, sample, attempt int) trace.Address {
	return trace.Address{RolloutID: trace.RolloutID{Run: "demo", Kind: kind, Step: step, Task: task, Sample: sample}, Attempt: attempt}
}
