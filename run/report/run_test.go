package report_test

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/hf"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/report"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/store"
	"github.com/fulgurite/fulgurite/store/blob"
	"github.com/fulgurite/fulgurite/tasks"
	"github.com/fulgurite/fulgurite/tasks/stream"
)

const (
	seed    = 7
	perStep = 3
	samples = 2
)

// testRun is a run with two finished steps and one that is running. In step 2, a task was
// quarantined, and so was its first replacement.
type testRun struct {
	t       testing.TB
	path    string
	store   *store.Store
	blobs   *blob.Store
	tasks   []tasks.Task
	samples int
	// batches holds the attempts on which each step trains, until they are written.
	batches map[int][]record.Address
	// earned holds the rewards of attempts that differ from usual.
	earned map[record.Address]float64
	// edit changes the batch of a step before it is written.
	edit func(step int, b *model.Batch)
	// versionBatch holds the batch that a version names, if it is not its step's batch.
	versionBatch map[int]string
	// metrics holds the metrics of versions, by step.
	metrics map[int]map[string]float64
	// choices are those of a curriculum, by step.
	choices map[int]record.Choice
}

func newTestRun(t testing.TB) *testRun {
	t.Helper()
	run := newEmptyRun(t, spec.Training{Steps: 4, TasksPerStep: perStep, SamplesPerTask: samples})
	for step := 1; step <= 2; step++ {
		for i := range perStep {
			if p := (step-1)*perStep + i; p != 4 {
				run.group(step, record.Train, p)
			}
		}
	}
	run.quarantine(record.Train, 4)
	run.quarantine(record.Reserve, 0)
	run.group(2, record.Reserve, 1)
	run.begin(record.RolloutID{Run: "demo", Kind: record.Train, Step: 3, Task: 6})
	return run
}

// newEmptyRun returns a run without any steps.
func newEmptyRun(t testing.TB, training spec.Training) *testRun {
	t.Helper()
	return newRunWith(t, spec.Spec{Seed: seed, Training: training})
}

func newRunWith(t testing.TB, s spec.Spec) *testRun {
	t.Helper()
	dir := t.TempDir()
	run := &testRun{t: t, path: filepath.Join(dir, "store.db"), samples: samples, batches: map[int][]record.Address{}, versionBatch: map[int]string{}, earned: map[record.Address]float64{}}
	var err error
	run.store, err = store.Open(t.Context(), run.path, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, run.store.Close()) })
	require.NoError(t, run.store.Migrate(t.Context()))
	run.blobs, err = blob.Open(filepath.Join(dir, "blobs"))
	require.NoError(t, err)
	for i := range 5 {
		run.tasks = append(run.tasks, tasks.Task{ID: fmt.Sprintf("task-%d", i), Input: "1+1"})
	}
	text, err := json.Marshal(s)
	require.NoError(t, err)
	data, err := tasks.Encode(run.tasks)
	require.NoError(t, err)
	digest, err := run.blobs.Put(t.Context(), data)
	require.NoError(t, err)
	_, _, err = run.store.CreateRun(t.Context(), record.Run{
		Name: "demo", Spec: text, Splits: map[record.Kind]record.Split{record.Train: {Digest: digest, Count: len(run.tasks)}},
	})
	require.NoError(t, err)
	return run
}

// group makes attempts for all samples of a task and trains on them.
func (run *testRun) group(step int, kind record.Kind, task int) {
	for sample := range samples {
		a := run.begin(record.RolloutID{Run: "demo", Kind: kind, Step: step, Task: task, Sample: sample})
		run.seal(a, record.OutcomeCompleted)
		run.batches[step] = append(run.batches[step], a)
	}
}

func (run *testRun) begin(id record.RolloutID) record.Address {
	run.t.Helper()
	a, err := run.store.BeginAttempt(run.t.Context(), id, run.task(id).ID, record.Terms{Policy: "main", Version: id.Step - 1}, "c0ffee")
	require.NoError(run.t, err)
	return a
}

// task returns the task that the streams have for a rollout.
func (run *testRun) task(id record.RolloutID) tasks.Task {
	if c, ok := run.choices[id.Step]; ok {
		return run.tasks[c.DrawOf(id.Kind, id.Task).Task]
	}
	index, _ := stream.At(seed, len(run.tasks), id.Task)
	if id.Kind == record.Reserve {
		index = stream.Reserve(seed, len(run.tasks), id.Step, id.Task)
	}
	return run.tasks[index]
}

func (run *testRun) seal(a record.Address, outcome record.Outcome) {
	run.t.Helper()
	s := record.Attempt{Address: a, Outcome: outcome}
	if outcome != record.InfraFault {
		reward := usual
		s.Reward = &reward
	}
	if outcome == record.AgentFailed {
		s.Failure = "timeout"
	}
	require.NoError(run.t, run.store.SealAttempt(run.t.Context(), s))
}

// usual is the reward of an attempt unless earned has another.
const usual = 0.5

func (run *testRun) reward(a record.Address) float64 {
	if r, ok := run.earned[a]; ok {
		return r
	}
	return usual
}

func (run *testRun) sealWith(a record.Address, reward float64) {
	run.t.Helper()
	require.NoError(run.t, run.store.SealAttempt(run.t.Context(), record.Attempt{Address: a, Outcome: record.OutcomeCompleted, Reward: &reward}))
}

func (run *testRun) quarantine(kind record.Kind, task int) { run.quarantineAt(2, kind, task) }

func (run *testRun) quarantineAt(step int, kind record.Kind, task int) {
	run.t.Helper()
	require.NoError(run.t, run.store.PutQuarantine(run.t.Context(), record.Quarantine{
		Run: "demo", Policy: "main", Step: step, Kind: kind, Task: task, Index: 1, Reason: "the grader has no answer",
	}))
}

// report writes the batches, versions and steps, and reports.
func (run *testRun) report() report.Report {
	run.t.Helper()
	for step := 1; step <= len(run.batches); step++ {
		b := model.Batch{Format: model.BatchFormat, Policy: "main", Step: step, VocabSize: 4}
		for i, a := range run.batches[step] {
			b.Trajectories = append(b.Trajectories, model.BatchTrajectory{Attempt: a.String(), Group: i / run.samples, Reward: run.reward(a)})
			b.Rows = append(b.Rows, model.BatchRow{
				Row: model.Row{Tokens: []int32{1, 2}, Temperature: 1}, Sampled: []bool{false, true}, Logprobs: []float32{0, -1},
				Advantages: []float32{0, 1}, Calls: []int32{-1, 0}, Trajectory: i,
			})
		}
		if run.edit != nil {
			run.edit(step, &b)
		}
		b.Count()
		data, err := hf.EncodeBatch(b)
		require.NoError(run.t, err)
		digest, err := run.blobs.Put(run.t.Context(), data)
		require.NoError(run.t, err)
		_, _, err = run.store.PutBatch(run.t.Context(), record.Batch{Run: "demo", Policy: "main", Step: step, Digest: digest})
		require.NoError(run.t, err)
		v := model.Version{VersionID: model.VersionID{Run: "demo", Policy: "main", Number: step}, Parent: step - 1, Batch: digest, Metrics: run.metrics[step]}
		if other, ok := run.versionBatch[step]; ok {
			v.Batch = other
		}
		_, _, err = run.store.PutVersion(run.t.Context(), v)
		require.NoError(run.t, err)
		require.NoError(run.t, run.store.PutStep(run.t.Context(), record.Step{Run: "demo", Policy: "main", Step: step, Batch: digest}))
	}
	return run.read()
}

func (run *testRun) read() report.Report {
	run.t.Helper()
	r, err := report.Of(run.t.Context(), run.store, run.blobs, "demo", "main")
	require.NoError(run.t, err)
	return r
}

func at(step int, kind record.Kind, task, sample, attempt int) record.Address {
	return record.Address{RolloutID: record.RolloutID{Run: "demo", Kind: kind, Step: step, Task: task, Sample: sample}, Attempt: attempt}
}
