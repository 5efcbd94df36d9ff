package retention_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/hf"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/provenance"
	"github.com/fulgurite/fulgurite/run/retention"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/store"
	"github.com/fulgurite/fulgurite/tasks"
)

// histories are those of runs in a Temporal that has none of them any more, except for one
// workflow that may be under way. The tests in testsuite use a real one.
type histories struct {
	open  string
	texts *[]string // gets those that are searched for
}

func (h histories) Open(context.Context, record.Run) (string, error) { return h.open, nil }
func (histories) Count(context.Context, record.Run) (int, error)     { return 0, nil }
func (histories) Delete(context.Context, record.Run, func(string) bool) (int, error) {
	return 0, nil
}

func (h histories) Containing(_ context.Context, _ record.Run, texts []string) ([]string, error) {
	if h.texts != nil {
		*h.texts = texts
	}
	return nil, nil
}

func (r records) forgetter() *retention.Forgetter {
	return &retention.Forgetter{Store: r.store, Blobs: r.blobs, Histories: histories{}}
}

// files returns the names of all blobs.
func (r records) files() (out []string) {
	r.t.Helper()
	require.NoError(r.t, filepath.WalkDir(r.blobs.Directory(), func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			out = append(out, filepath.Base(path))
		}
		return err
	}))
	slices.Sort(out)
	return out
}

// trained makes a run of two steps that has ended, with tasks "a" and "b" in its train split.
// Step 1 is trained on both, step 2 on "b" alone. source is the version that it starts from,
// or empty. All runs but "alone" have equal weights and values.
func (r records) trained(name, source string) {
	r.t.Helper()
	ctx := r.t.Context()
	sp, err := json.Marshal(spec.Spec{
		Training: spec.Training{Steps: 2}, Model: spec.Model{Version: source}, Critic: &spec.Critic{}, Credit: spec.Credit{Judge: &spec.Judge{Model: "judge-1"}},
	})
	require.NoError(r.t, err)
	list, err := tasks.Encode([]tasks.Task{
		{ID: "a", Input: "what is the secret of " + name, Answer: "the answer of " + name, Metadata: map[string]any{"note": "a note of " + name, "more": []any{map[string]any{"deep": "a deep note of " + name}, 12345678}}}, {ID: "b", Input: "harmless"},
	})
	require.NoError(r.t, err)
	split, err := r.blobs.Put(ctx, list)
	require.NoError(r.t, err)
	_, _, err = r.store.CreateRun(ctx, record.Run{
		Name: name, WorkflowID: name, ExecutionID: "x", Spec: sp, Splits: map[record.Kind]record.Split{record.Train: {Digest: split, Count: 2}},
		Created: time.Now(), SpecDigest: "digest of " + name,
	})
	require.NoError(r.t, err)
	values, seed := "values of step", uint64(0)
	if name == "alone" {
		values, seed = "values of alone in step", 50
	}
	require.NoError(r.t, r.put(r.version(name, 0, seed)))
	for step, ids := range map[int][]string{1: {"a", "b"}, 2: {"b"}} {
		values, err := r.blobs.Put(ctx, fmt.Appendf(nil, "%s %d", values, step))
		require.NoError(r.t, err)
		b := model.Batch{Policy: model.DefaultPolicy, Step: step, VocabSize: 12, Values: values}
		for i, id := range ids {
			b.Trajectories = append(b.Trajectories, model.BatchTrajectory{Attempt: r.attempt(name, step, i, id).String(), Group: i, Reward: 0.5})
			b.Rows = append(b.Rows, model.BatchRow{
				Row: model.Row{Tokens: []int32{1, 2, 3}, Temperature: 1}, Sampled: []bool{false, true, true}, Logprobs: []float32{0, -1, -2}, Advantages: []float32{0, 1, 1}, Calls: []int32{-1, 0, 0}, Returns: make([]float32, 3), Trajectory: i,
			})
		}
		b.Count()
		data, err := hf.EncodeBatch(b)
		require.NoError(r.t, err)
		digest, err := r.blobs.Put(ctx, data)
		require.NoError(r.t, err)
		_, _, err = r.store.PutBatch(ctx, record.Batch{Run: name, Policy: model.DefaultPolicy, Step: step, Digest: digest})
		require.NoError(r.t, err)
		require.NoError(r.t, r.store.PutNonsense(ctx, record.Nonsense{Run: name, Policy: model.DefaultPolicy, Step: step, Judgment: "k", Try: 1, Answer: "the judge on " + name}))
		_, _, err = r.store.PutJudgment(ctx, record.Judgment{Key: fmt.Sprint(name, step), Scores: []float64{1}, Run: name, Policy: model.DefaultPolicy, Step: step})
		require.NoError(r.t, err)
	}
	batches, err := r.store.Batches(ctx, name, model.DefaultPolicy)
	require.NoError(r.t, err)
	for _, b := range batches {
		v := r.version(name, b.Step, seed+uint64(b.Step))
		v.Batch, v.Fingerprint = b.Digest, "f"
		v.Scores, err = r.blobs.Put(ctx, fmt.Appendf(nil, "scores of %s, %d", name, b.Step))
		require.NoError(r.t, err)
		require.NoError(r.t, r.put(v))
		require.NoError(r.t, r.store.PutStep(ctx, record.Step{Run: name, Policy: model.DefaultPolicy, Step: b.Step, Batch: b.Digest}))
	}
	failure := record.Failure{Error: "the grader said: the answer of " + name}
	require.NoError(r.t, r.store.FinishRun(ctx, name, record.Failed, failure.Result()))
}

// attempt makes an attempt that has ended.
func (r records) attempt(run string, step, task int, id string) record.Address {
	r.t.Helper()
	ctx := r.t.Context()
	a, err := r.store.BeginAttempt(ctx, record.RolloutID{Run: run, Kind: record.Train, Step: step, Task: task}, id, record.Terms{Policy: model.DefaultPolicy, Graded: true}, "k")
	require.NoError(r.t, err)
	require.NoError(r.t, r.store.AppendCall(ctx, &record.Exchange{
		Call: record.Call{Address: a, ID: "c", Parent: -1, Policy: model.DefaultPolicy, Key: "k", Prompt: []int32{1}, Completion: []int32{2, 3}, Logprobs: []float32{-1, -2}}, Request: []byte(`"request of ` + id + `"`), Response: []byte(`"reply"`),
	}))
	require.NoError(r.t, r.store.SealAttempt(ctx, record.Attempt{Address: a, Outcome: record.OutcomeCompleted, Result: "a result of " + id, Output: record.Output{Stdout: "printed by " + id}}))
	require.NoError(r.t, r.store.PutReward(ctx, record.Reward{Address: a, Name: "final", Value: 0.5, Source: store.Grader}))
	return a
}

// walk returns what a version was made of.
func (r records) walk(run string, version int) (provenance.Provenance, []provenance.Step) {
	r.t.Helper()
	var steps []provenance.Step
	p, err := provenance.Walker{Store: r.store, Blobs: r.blobs}.Of(r.t.Context(), model.VersionID{Run: run, Policy: model.DefaultPolicy, Number: version}, func(s provenance.Step) error {
		steps = append(steps, s)
		return nil
	})
	require.NoError(r.t, err)
	return p, steps
}

func TestAForgottenRunTakesItsFilesExceptThoseOfOthers(t *testing.T) {
	t.Parallel()
	r := open(t)
	ctx := t.Context()
	r.trained("other", "")
	before := r.files()
	r.trained("demo", "")
	r.trained("later", "demo@1")
	require.NotEqual(t, before, r.files())

	plan, err := r.forgetter().PlanRun(ctx, "demo")
	require.NoError(t, err)
	require.True(t, plan.DryRun)
	require.Positive(t, plan.Bytes)
	require.Equal(t, []string{"later@0 to later@2"}, plan.StartedFromIt)
	done, err := r.forgetter().ForgetRun(ctx, "demo", "me", "asked to")
	require.NoError(t, err)
	plan.DryRun, plan.Forgotten = false, done.Forgotten
	require.Equal(t, plan, done, "a dry run says what will be")
	_, err = r.store.Run(ctx, "demo")
	require.ErrorIs(t, err, record.ErrForgotten)
	require.Equal(t, []int{0, 1, 2}, r.loads("later", 2))
	require.Equal(t, []int{0, 1, 2}, r.loads("other", 2))

	_, err = r.forgetter().ForgetRun(ctx, "later", "me", "")
	require.NoError(t, err)
	require.Equal(t, before, r.files(), "all that only these had is gone, and no more")
	_, err = r.forgetter().ForgetRun(ctx, "other", "me", "")
	require.NoError(t, err)
	require.Empty(t, r.files())
	_, err = r.forgetter().ForgetRun(ctx, "none", "me", "")
	require.ErrorIs(t, err, record.ErrNotFound)
	again, err := r.forgetter().ForgetRun(ctx, "demo", "other", "again")
	require.NoError(t, err)
	require.Equal(t, "asked to", again.Forgotten.Reason)
	require.Equal(t, done.Rows, again.Rows, "it is the report of the removal")
	_, err = r.forgetter().PlanRun(ctx, "demo")
	require.ErrorIs(t, err, record.ErrForgotten)
}

func TestAForgottenRunThatWasKilledIsForgottenByTheNext(t *testing.T) {
	t.Parallel()
	for left, ended := 0, false; !ended; left++ {
		r := open(t)
		r.trained("other", "")
		before := r.files()
		r.trained("alone", "")
		f := r.forgetter()
		f.Blobs = &dying{r.blobs, left}
		_, err := f.ForgetRun(t.Context(), "alone", "me", "first")
		if ended = err == nil; !ended {
			require.ErrorIs(t, err, errKilled)
			run, err := r.store.RunToForget(t.Context(), "alone")
			require.NoError(t, err)
			require.Equal(t, record.Forgetting, run.Status)
			report, err := r.forgetter().ForgetRun(t.Context(), "alone", "other", "second")
			require.NoError(t, err)
			require.Equal(t, "first", report.Forgotten.Reason)
			require.Equal(t, record.Failed, report.Status, "it is the report of what the run had")
		}
		require.Equal(t, before, r.files())
		require.Equal(t, []int{0, 1, 2}, r.loads("other", 2))
	}
}

// The tasks of a new run may be those of a run that is forgotten at that moment.
func TestARunOrVersionThatLacksAFileIsNotPutOnRecord(t *testing.T) {
	t.Parallel()
	r := open(t)
	ctx := t.Context()
	digest, err := r.blobs.Put(ctx, []byte(`{"id":"a","input":"x"}`))
	require.NoError(t, err)
	require.NoError(t, r.blobs.Remove(ctx, digest))
	run := record.Run{Name: "demo", Splits: map[record.Kind]record.Split{record.Train: {Digest: digest}}}
	_, _, err = r.store.CreateRun(ctx, run)
	require.ErrorIs(t, err, store.ErrFileGone)
	_, err = r.store.Run(ctx, "demo")
	require.ErrorIs(t, err, record.ErrNotFound)
	v := r.version("demo", 0, 0)
	v.Scores = digest
	require.ErrorIs(t, r.put(v), store.ErrFileGone)
	_, err = r.blobs.Put(ctx, []byte(`{"id":"a","input":"x"}`))
	require.NoError(t, err)
	_, _, err = r.store.CreateRun(ctx, run)
	require.NoError(t, err)
	require.NoError(t, r.put(v))
}

func TestARunThatHasNotEndedIsNotForgotten(t *testing.T) {
	t.Parallel()
	r := open(t)
	ctx := t.Context()
	r.trained("closed", "")
	f := r.forgetter()
	f.Histories = histories{open: "closed/train-1/0"}
	_, err := f.ForgetRun(ctx, "closed", "me", "")
	require.ErrorIs(t, err, retention.ErrRefused)
	require.ErrorContains(t, err, "closed/train-1/0")
	_, err = f.ForgetTask(ctx, "a", "", "me", "", false)
	require.ErrorIs(t, err, retention.ErrRefused)

	r.run("demo", nil, 1)
	_, err = r.forgetter().ForgetRun(ctx, "demo", "me", "")
	require.ErrorIs(t, err, retention.ErrRefused)
	require.ErrorContains(t, err, "run demo has not ended")
	require.Equal(t, []int{0, 1}, r.loads("demo", 1))

	require.NoError(t, r.store.FinishRun(ctx, "demo", record.Completed, nil))
	text, err := json.Marshal(spec.Spec{Model: spec.Model{Version: "demo@1"}})
	require.NoError(t, err)
	_, _, err = r.store.CreateRun(ctx, record.Run{Name: "next", Spec: text})
	require.NoError(t, err)
	_, err = r.forgetter().ForgetRun(ctx, "demo", "me", "")
	require.ErrorIs(t, err, retention.ErrRefused)
	require.ErrorContains(t, err, "run next starts from demo@1 and has not read it yet")
	require.NoError(t, r.put(r.version("next", 0, 1)))
	_, err = r.forgetter().ForgetRun(ctx, "demo", "me", "")
	require.NoError(t, err)
	require.Equal(t, []int{0}, r.loads("next", 0))
}

func TestAForgottenRunTakesTheConfigsOfItsCollectedVersions(t *testing.T) {
	t.Parallel()
	r := open(t)
	ctx := t.Context()
	wide := model.Architecture{
		VocabSize: 12, HiddenSize: 8, Layers: 1, Heads: 2, KVHeads: 1, HeadDim: 4,
		FeedForward: 16, MaxPositions: 16, RopeTheta: 10000, NormEpsilon: 1e-6,
	}
	for i, name := range []string{"demo", "other"} {
		r.run(name, &spec.Keep{Last: 1}, 0)
		require.NoError(t, r.put(r.versionOf(wide, name, 1, uint64(10*i+1))))
		for n := 2; n <= 4; n++ {
			require.NoError(t, r.put(r.version(name, n, uint64(10*i+n))))
		}
		require.NoError(t, r.store.FinishRun(ctx, name, record.Completed, nil))
		require.NoError(t, r.collector().Collect(ctx, name))
		require.NotContains(t, r.loads(name, 4), 1)
	}
	v, err := r.store.Version(ctx, model.VersionID{Run: "other", Policy: model.DefaultPolicy, Number: 1})
	require.NoError(t, err)
	text, err := r.blobs.Get(ctx, v.Manifest)
	require.NoError(t, err)
	m, err := model.ParseManifest(text)
	require.NoError(t, err)
	config := m.Files[model.ConfigFile].Digest

	_, err = r.forgetter().ForgetRun(ctx, "demo", "me", "")
	require.NoError(t, err)
	has, err := r.blobs.Has(ctx, config)
	require.NoError(t, err)
	require.True(t, has, "the other run has the same")
	_, err = r.forgetter().ForgetRun(ctx, "other", "me", "")
	require.NoError(t, err)
	require.Empty(t, r.files())
}

// meanwhile is a store in which something happens just before a tombstone is put on record.
type meanwhile struct {
	*store.Store
	happens func()
}

func (m *meanwhile) BeginForgetting(ctx context.Context, r record.Run, f record.Forgotten) (record.Forgotten, bool, error) {
	if m.happens != nil {
		m.happens()
		m.happens = nil
	}
	return m.Store.BeginForgetting(ctx, r, f)
}

func TestARunThatIsStartedFromAnotherWhileThatIsForgottenKeepsItsFiles(t *testing.T) {
	t.Parallel()
	r := open(t)
	ctx := t.Context()
	r.trained("alone", "")
	text, err := json.Marshal(spec.Spec{Model: spec.Model{Version: "alone@2"}})
	require.NoError(t, err)
	f := r.forgetter()
	f.Store = &meanwhile{r.store, func() {
		_, _, err := r.store.CreateRun(ctx, record.Run{Name: "next", Spec: text})
		require.NoError(t, err)
	}}
	files := r.files()
	_, err = f.ForgetRun(ctx, "alone", "me", "")
	require.ErrorIs(t, err, retention.ErrRefused)
	require.ErrorContains(t, err, "run next starts from alone@2 and has not read it yet")
	require.Equal(t, files, r.files())
	_, err = r.store.Run(ctx, "alone")
	require.ErrorIs(t, err, record.ErrForgotten, "nobody else starts from it")
	_, err = r.Spec(ctx, "alone")
	require.ErrorIs(t, err, record.ErrForgotten)

	require.NoError(t, r.put(r.version("next", 0, 52)))
	_, err = f.ForgetRun(ctx, "alone", "me", "")
	require.NoError(t, err)
	require.Equal(t, []int{0}, r.loads("next", 0))
}

func TestAForgottenTaskLeavesCountsAndOtherTasks(t *testing.T) {
	t.Parallel()
	r := open(t)
	ctx := t.Context()
	r.trained("demo", "")
	r.trained("later", "demo@1")
	r.trained("sooner", "demo@0")
	had, err := r.store.Run(ctx, "demo")
	require.NoError(t, err)
	before, steps := r.walk("demo", 2)
	require.Equal(t, 2, before.Steps)
	require.Equal(t, 3, before.Attempts)
	require.Equal(t, 2, before.Tasks)
	require.Equal(t, 3, before.Calls)
	require.Equal(t, 6, before.Tokens)

	plan, err := r.forgetter().ForgetTask(ctx, "a", "demo", "me", "", true)
	require.NoError(t, err)
	done, err := r.forgetter().ForgetTask(ctx, "a", "demo", "me", "", false)
	require.NoError(t, err)
	plan.DryRun = false
	require.Equal(t, plan, done)
	require.Equal(t, []record.ForgottenTaskReport{{
		Run: "demo", Task: "a", Splits: []record.Kind{record.Train}, Attempts: 1, Calls: 1, Tokens: 2, Steps: []int{1}, Histories: 1,
		Versions: []string{"demo@1 to demo@2", "later@0 to later@2"}, Left: []string{},
	}}, done.Runs)

	run, err := r.store.Run(ctx, "demo")
	require.NoError(t, err)
	require.NotContains(t, run.Failure().Error, "answer")
	_, err = r.blobs.Get(ctx, had.Splits[record.Train].Digest)
	require.ErrorIs(t, err, record.ErrNotFound)
	data, err := r.blobs.Get(ctx, run.Splits[record.Train].Digest)
	require.NoError(t, err)
	list, err := tasks.Decode(data)
	require.NoError(t, err)
	require.Equal(t, []tasks.Task{{ID: "a", Input: "forgotten"}, {ID: "b", Input: "harmless"}}, list)
	after, left := r.walk("demo", 2)
	require.Equal(t, 1, after.Forgotten)
	require.Equal(t, 1, after.Attempts)
	require.Equal(t, steps[0], left[0], "step 2 is as it was")
	require.True(t, left[1].Forgotten)
	gone := record.Address{RolloutID: record.RolloutID{Run: "demo", Kind: record.Train, Step: 1}, Attempt: 1}
	attempt, err := r.store.Attempt(ctx, gone)
	require.NoError(t, err)
	require.Empty(t, attempt.Result)
	require.Equal(t, 0.5, *attempt.Reward)
	calls, err := r.store.Calls(ctx, gone)
	require.NoError(t, err)
	require.Empty(t, calls)
	gone.Task = 1
	calls, err = r.store.Calls(ctx, gone)
	require.NoError(t, err)
	require.Len(t, calls, 1, "of the other task")
	judged, err := r.store.Judged(ctx, "demo", model.DefaultPolicy, 1)
	require.NoError(t, err)
	require.Zero(t, judged)
	nonsense, err := r.store.Nonsense(ctx, "demo", model.DefaultPolicy, 1)
	require.NoError(t, err)
	require.Empty(t, nonsense)
	require.ErrorIs(t, retention.Refusal(ctx, r.store, "demo", 1, 0, true), record.ErrForgotten)
	require.ErrorIs(t, retention.Refusal(ctx, r.store, "demo", 0, 0, true), record.ErrForgotten)
	require.NoError(t, retention.Refusal(ctx, r.store, "demo", 2, 0, true))
	require.ErrorIs(t, retention.Refusal(ctx, r.store, "demo", 2, 1, true), record.ErrForgotten, "it reads step 1, too")
	require.ErrorIs(t, retention.Refusal(ctx, r.store, "demo", 5, 4, true), record.ErrForgotten)
	require.NoError(t, retention.Refusal(ctx, r.store, "demo", 6, 4, true))
	require.NoError(t, retention.Refusal(ctx, r.store, "later", 0, 0, true))
	require.Equal(t, []int{0, 1, 2}, r.loads("demo", 2), "weights stay")

	again, err := r.forgetter().ForgetTask(ctx, "a", "", "me", "", false)
	require.NoError(t, err)
	require.Equal(t, []string{"demo"}, again.Already)
	require.Len(t, again.Runs, 2)
	_, err = r.forgetter().ForgetTask(ctx, "none", "", "me", "", false)
	require.ErrorIs(t, err, record.ErrNotFound)
	_, err = r.forgetter().ForgetTask(ctx, "none", "demo", "me", "", false)
	require.ErrorIs(t, err, record.ErrNotFound)
	_, err = r.forgetter().ForgetTask(ctx, "a", "nowhere", "me", "", false)
	require.ErrorIs(t, err, record.ErrNotFound)
}

func TestATaskOfARunThatHasNotEndedIsNotForgotten(t *testing.T) {
	t.Parallel()
	r := open(t)
	ctx := t.Context()
	r.run("demo", nil, 0)
	_, err := r.store.BeginAttempt(ctx, record.RolloutID{Run: "demo", Kind: record.Train, Step: 1}, "a", record.Terms{Policy: model.DefaultPolicy}, "k")
	require.NoError(t, err)
	_, err = r.forgetter().ForgetTask(ctx, "a", "", "me", "", false)
	require.ErrorIs(t, err, retention.ErrRefused)
	require.ErrorContains(t, err, "demo")
	r.trained("ended", "")
	report, err := r.forgetter().ForgetTask(ctx, "a", "", "me", "", false)
	require.NoError(t, err)
	require.Equal(t, []string{"demo"}, report.UnderWay)
	require.Len(t, report.Runs, 1)
}

// slowly is a store that dies before, or after, each of its writes that forget a task.
type slowly struct {
	*store.Store
	left int
}

func (s *slowly) dies() error {
	if s.left--; s.left < 0 {
		return errKilled
	}
	return nil
}

func (s *slowly) BeginForgetting(ctx context.Context, r record.Run, f record.Forgotten) (record.Forgotten, bool, error) {
	if err := s.dies(); err != nil {
		return f, false, err
	}
	stone, created, err := s.Store.BeginForgetting(ctx, r, f)
	return stone, created, errors.Join(err, s.dies())
}

func (s *slowly) EmptyAttempt(ctx context.Context, a record.Address) error {
	return errors.Join(s.Store.EmptyAttempt(ctx, a), s.dies())
}

func (s *slowly) RemoveJudgments(ctx context.Context, run string, step int) error {
	return errors.Join(s.Store.RemoveJudgments(ctx, run, step), s.dies())
}

func (s *slowly) SetSplits(ctx context.Context, run string, splits map[record.Kind]record.Split) error {
	if err := s.dies(); err != nil {
		return err
	}
	return errors.Join(s.Store.SetSplits(ctx, run, splits), s.dies())
}

func (s *slowly) SetResult(ctx context.Context, run string, result []byte) error {
	return errors.Join(s.Store.SetResult(ctx, run, result), s.dies())
}

func (s *slowly) EndForgetting(ctx context.Context, f record.Forgotten) error {
	if err := s.dies(); err != nil {
		return err
	}
	return s.Store.EndForgetting(ctx, f)
}

func TestAForgottenTaskThatWasKilledIsForgottenByTheNext(t *testing.T) {
	t.Parallel()
	whole := open(t)
	whole.trained("demo", "")
	_, err := whole.forgetter().ForgetTask(t.Context(), "a", "", "me", "", false)
	require.NoError(t, err)
	for _, blobs := range []bool{false, true} {
		for left, ended := 0, false; !ended; left++ {
			r := open(t)
			r.trained("demo", "")
			f := r.forgetter()
			if blobs {
				f.Blobs = &dying{r.blobs, left}
			} else {
				f.Store = &slowly{r.store, left}
			}
			_, err := f.ForgetTask(t.Context(), "a", "", "me", "", false)
			if ended = err == nil; !ended {
				require.ErrorIs(t, err, errKilled)
				_, err = r.forgetter().ForgetTask(t.Context(), "a", "", "me", "", false)
				require.NoError(t, err)
			}
			require.Equal(t, whole.files(), r.files())
			run, err := r.store.Run(t.Context(), "demo")
			require.NoError(t, err)
			want, err := whole.store.Run(t.Context(), "demo")
			require.NoError(t, err)
			require.Equal(t, want.Splits, run.Splits)
			require.Equal(t, want.Result, run.Result)
			stones, err := r.store.Forgotten(t.Context(), "demo")
			require.NoError(t, err)
			require.Len(t, stones, 1)
			require.False(t, stones[0].Ended.IsZero())
		}
	}
}

func TestATaskIsNotForgottenWhileTheRemovalOfAnotherHasNotEnded(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	for left, ended := 0, false; !ended; left++ {
		r := open(t)
		r.trained("demo", "")
		f := r.forgetter()
		f.Store = &slowly{r.store, left}
		_, err := f.ForgetTask(ctx, "a", "", "me", "", false)
		ended = err == nil
		stones, err := r.store.Forgotten(ctx, "demo")
		require.NoError(t, err)
		if len(stones) > 0 && !ended {
			_, err = r.forgetter().ForgetTask(ctx, "b", "", "me", "", false)
			require.ErrorIs(t, err, retention.ErrRefused)
			require.ErrorContains(t, err, "forget --task a --in demo --yes")
			_, err = r.forgetter().ForgetRun(ctx, "demo", "me", "")
			require.ErrorIs(t, err, retention.ErrRefused)
			_, err = r.forgetter().ForgetTask(ctx, "a", "", "me", "", false)
			require.NoError(t, err)
		}
		_, err = r.forgetter().ForgetTask(ctx, "b", "", "me", "", false)
		require.NoError(t, err)
		if len(stones) == 0 {
			continue
		}
		run, err := r.store.Run(ctx, "demo")
		require.NoError(t, err)
		data, err := r.blobs.Get(ctx, run.Splits[record.Train].Digest)
		require.NoError(t, err)
		list, err := tasks.Decode(data)
		require.NoError(t, err)
		require.Equal(t, []tasks.Task{{ID: "a", Input: "forgotten"}, {ID: "b", Input: "forgotten"}}, list)
	}
}

// A task that is drawn again is quarantined again for the reason of the first time, without an
// attempt.
func TestAForgottenTaskTakesTheReasonsOfItsQuarantines(t *testing.T) {
	t.Parallel()
	r := open(t)
	ctx := t.Context()
	r.trained("demo", "")
	quarantine := func(step, index int, reason string) {
		require.NoError(t, r.store.PutQuarantine(ctx, record.Quarantine{
			Run: "demo", Policy: model.DefaultPolicy, Step: step, Kind: record.Train, Task: index + 1, Index: index, Reason: reason, At: time.Now(),
		}))
	}
	quarantine(3, 0, "agent failed: could not open\nthe secret vault\nshort")
	quarantine(4, 0, "quarantined since step 3: agent failed: could not open\nthe secret vault\nshort")
	quarantine(4, 1, "the other task")
	var texts []string
	f := r.forgetter()
	f.Histories = histories{texts: &texts}
	_, err := f.ForgetTask(ctx, "a", "", "me", "", false)
	require.NoError(t, err)
	all, err := r.store.Quarantines(ctx, "demo", model.DefaultPolicy)
	require.NoError(t, err)
	var reasons []string
	for _, q := range all {
		reasons = append(reasons, q.Reason)
	}
	require.Equal(t, []string{store.ForgottenError, store.ForgottenError, "the other task"}, reasons)
	for _, text := range []string{"what is the secret of demo", "the answer of demo", "a note of demo", "a deep note of demo", "a result of a", "the secret vault"} {
		require.Contains(t, texts, text)
	}
	require.NotContains(t, texts, "short")
	require.NotContains(t, texts, "the other task")
}

func TestHistoriesAreSearchedForWhatAnAttemptSaidOfATask(t *testing.T) {
	t.Parallel()
	r := open(t)
	ctx := t.Context()
	r.run("demo", nil, 0)
	a, err := r.store.BeginAttempt(ctx, record.RolloutID{Run: "demo", Kind: record.Train, Step: 1}, "a", record.Terms{Policy: model.DefaultPolicy}, "k")
	require.NoError(t, err)
	require.NoError(t, r.store.SealAttempt(ctx, record.Attempt{
		Address: a, Outcome: record.AgentFailed, Error: "exit: 1\nthe text of the error", Verdict: "the text of the verdict",
		Output: record.Output{Stdout: "the printed text", Stderr: "the text on standard error"},
	}))
	r.finish("demo")
	var texts []string
	f := r.forgetter()
	f.Histories = histories{texts: &texts}
	_, err = f.ForgetTask(ctx, "a", "", "me", "", false)
	require.NoError(t, err)
	for _, text := range []string{"the text of the error", "the text of the verdict", "the printed text", "the text on standard error"} {
		require.Contains(t, texts, text)
	}
}

func TestAVersionMayHaveATaskWhoseBatchWentWithAnother(t *testing.T) {
	t.Parallel()
	r := open(t)
	ctx := t.Context()
	r.trained("demo", "")
	_, err := r.forgetter().ForgetTask(ctx, "a", "", "me", "", false)
	require.NoError(t, err)
	report, err := r.forgetter().ForgetTask(ctx, "b", "", "me", "", false)
	require.NoError(t, err)
	require.Equal(t, []int{2}, report.Runs[0].Steps)
	require.Equal(t, []string{"demo@1 to demo@2"}, report.Runs[0].Versions)
	require.Equal(t, []string{"whether the batch of step 1, which went with another task, had it is not known: the versions count as trained on it"}, report.Runs[0].Left)
}

func TestASnapshotThatAnotherRunKeepsIsReportedUnlessItGoesThereToo(t *testing.T) {
	t.Parallel()
	r := open(t)
	ctx := t.Context()
	r.trained("demo", "")
	demo, err := r.store.Run(ctx, "demo")
	require.NoError(t, err)
	for _, name := range []string{"twin", "running"} {
		_, _, err = r.store.CreateRun(ctx, record.Run{Name: name, WorkflowID: name, ExecutionID: "x", Spec: demo.Spec, Splits: demo.Splits, Created: time.Now()})
		require.NoError(t, err)
	}
	r.finish("twin")
	left := func(name string) string {
		return "run " + name + " has the same tasks in its split train, so their snapshot stays until the task is forgotten there, too"
	}
	alone, err := r.forgetter().ForgetTask(ctx, "a", "demo", "me", "", true)
	require.NoError(t, err)
	require.ElementsMatch(t, []string{left("twin"), left("running")}, alone.Runs[0].Left)
	plan, err := r.forgetter().ForgetTask(ctx, "a", "", "me", "", true)
	require.NoError(t, err)
	done, err := r.forgetter().ForgetTask(ctx, "a", "", "me", "", false)
	require.NoError(t, err)
	plan.DryRun = false
	require.Equal(t, plan, done)
	require.Len(t, done.Runs, 2)
	for _, one := range done.Runs {
		require.Equal(t, []string{left("running")}, one.Left)
	}
}

// unsearchable is a store whose attempts of all runs can't be read.
type unsearchable struct{ *store.Store }

func (unsearchable) RunsOnTask(context.Context, string) ([]string, error) {
	return nil, errors.New("reads all attempts")
}

func TestATaskOfOneRunIsFoundWithoutTheAttemptsOfOthers(t *testing.T) {
	t.Parallel()
	r := open(t)
	r.trained("demo", "")
	f := r.forgetter()
	f.Store = unsearchable{r.store}
	report, err := f.ForgetTask(t.Context(), "a", "demo", "me", "", false)
	require.NoError(t, err)
	require.Equal(t, 1, report.Runs[0].Attempts)
	_, err = f.ForgetTask(t.Context(), "b", "", "me", "", false)
	require.ErrorContains(t, err, "reads all attempts")
}
