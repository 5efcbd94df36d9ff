package checker_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/internal/pgtest"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/hf"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/store"
	"github.com/fulgurite/fulgurite/store/blob"
	"github.com/fulgurite/fulgurite/testsuite/chaos/checker"
)

// TestRecordsAreReadFromBothDatabases writes through the product's store and
// reads by the checker's own statements.
func TestRecordsAreReadFromBothDatabases(t *testing.T) {
	t.Parallel()
	for name, url := range map[string]func(t *testing.T) string{
		"sqlite":   func(t *testing.T) string { return filepath.Join(t.TempDir(), "fulgurite.db") },
		"postgres": func(t *testing.T) string { return pgtest.URL(t) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at := url(t)
			began := time.Now()
			fill(t, at)
			readAndCompare(t, at, began)
		})
	}
}

const textOfSpec = `{"seed": 18446744073709551615, "training": {"steps": 1, "tasks_per_step": 2, "samples_per_task": 3, "dynamic_sampling": 4}, "critic": {"passes": 2}}`

func fill(t *testing.T, url string) {
	t.Helper()
	ctx := t.Context()
	s, err := store.Open(ctx, url, nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	require.NoError(t, s.Migrate(ctx))
	_, _, err = s.CreateRun(ctx, record.Run{
		Name: "chaos", ExecutionID: "execution", Spec: []byte(textOfSpec), Status: record.Running,
		Splits: map[record.Kind]record.Split{record.Train: {Digest: digest("d", 1), Count: 5}},
	})
	require.NoError(t, err)
	id := record.RolloutID{Run: "chaos", Kind: record.Train, Step: 1, Task: 2, Sample: 1}
	attemptTwice(t, s, id, true)
	attemptTwice(t, s, record.RolloutID{Run: "without-journal", Kind: record.Train, Step: 1}, false)
	reward := 1.0
	require.NoError(t, s.SealAttempt(ctx, record.Attempt{Address: record.Address{RolloutID: id, Attempt: 2}, Outcome: record.OutcomeCompleted, Reward: &reward}))
	_, made, err := s.PutJudgment(ctx, record.Judgment{Key: "key", Model: "m", Scores: []float64{1, 0.5}, Run: "chaos", Policy: "main", Step: 1})
	require.NoError(t, err)
	require.True(t, made)
	for policy, weights := range map[string]string{"main": digest("a", 0), "critic": digest("c", 0)} {
		id := model.VersionID{Run: "chaos", Policy: policy}
		_, _, err = s.PutVersion(ctx, model.Version{VersionID: id, Parent: -1, Manifest: digest("e", 0), Weights: weights})
		require.NoError(t, err)
	}
	_, _, err = s.PutBatch(ctx, record.Batch{Run: "chaos", Policy: "main", Step: 1, Digest: digest("b", 1)})
	require.NoError(t, err)
}

// attemptTwice makes two attempts with the same call, the second answered from the
// record or sampled again.
func attemptTwice(t *testing.T, s *store.Store, id record.RolloutID, replay bool) {
	t.Helper()
	ctx := t.Context()
	for range 2 {
		address, err := s.BeginAttempt(ctx, id, "t2", record.Terms{Policy: "main"}, "hash")
		require.NoError(t, err)
		call := record.Exchange{Call: record.Call{
			Address: address, ID: "id", Parent: -1, Policy: "main", Weights: "weights", Key: "key",
			Prompt: []int32{1}, Completion: []int32{5, 300, 7}, Logprobs: []float32{-1, -1, -1}, Seed: 1<<64 - 1,
		}, Request: []byte("{}"), Response: []byte("{}")}
		if replay {
			call.ReplayedFrom = address.Attempt - 1
		}
		require.NoError(t, s.AppendCall(ctx, &call))
	}
}

func readAndCompare(t *testing.T, url string, began time.Time) {
	t.Helper()
	ctx := t.Context()
	d, err := checker.OpenDatabase(url)
	require.NoError(t, err)
	defer func() { require.NoError(t, d.Close()) }()
	r, err := d.Records(ctx, "chaos")
	require.NoError(t, err)
	address := checker.RolloutAddress{Kind: "train", Step: 1, Task: 2, Sample: 1}
	for i := range r.Calls {
		require.WithinRange(t, r.Calls[i].Recorded, began, time.Now())
		r.Calls[i].Recorded = time.Time{}
	}
	for i := range r.Judgments {
		require.WithinRange(t, r.Judgments[i].At, began, time.Now())
		r.Judgments[i].At = time.Time{}
	}
	call := checker.Call{RolloutAddress: address, Attempt: 1, Policy: "main", Weights: "weights", Seed: 1<<64 - 1, Tokens: []int32{5, 300, 7}}
	replayed := call
	replayed.Attempt, replayed.ReplayedFrom = 2, 1
	require.Empty(t, cmp.Diff(checker.Records{
		Run: "chaos", Status: "running", Execution: "execution", Seed: 1<<64 - 1, Steps: 1, TasksPer: 2, Samples: 3, TrainTasks: 5, FlatLimit: 4, HasCritic: true,
		Versions: []checker.Version{{Weights: digest("a", 0)}}, Critics: []checker.Version{{Weights: digest("c", 0)}}, Policies: map[string][]checker.Version{}, PolicyCritics: map[string][]checker.Version{},
		Judgments: []checker.Judgment{{Key: "key", Scores: []float64{1, 0.5}}},
		Attempts:  []checker.Attempt{{RolloutAddress: address, Number: 1}, {RolloutAddress: address, Number: 2, Outcome: "completed"}},
		Calls:     []checker.Call{call, replayed}, Batches: map[int]string{1: digest("b", 1)}, Promoted: -1,
	}, r))

	progress, err := d.Progress(ctx)
	require.NoError(t, err)
	require.EqualValues(t, 4+4+1+1+2+1, progress, "calls, attempts, a seal, a batch, versions, a judgment")
	for after, want := range map[time.Time]int{began: 1, time.Now(): 0} {
		midway, err := d.Midway(ctx, "chaos", after)
		require.NoError(t, err)
		require.Equal(t, want, midway)
	}
	again, err := d.TriedAgain(ctx, "chaos", began)
	require.NoError(t, err)
	require.Equal(t, 1, again)
	recorded, err := d.RecordedAgain(ctx)
	require.NoError(t, err)
	require.Equal(t, 1, recorded, "the other second attempt's call was replayed")
	leases, err := d.Leases(ctx, "gateway")
	require.NoError(t, err)
	require.Zero(t, leases)
	status, err := d.Status(ctx, "nobody")
	require.NoError(t, err)
	require.Empty(t, status)
	_, err = d.Records(ctx, "nobody")
	require.ErrorContains(t, err, "read store of run nobody")
}

const specOfPair = `{"training": {"steps": 1, "tasks_per_step": 1, "samples_per_task": 2}, "algorithm": "ppo", "critic": {"passes": 2},
"policies": {"checker": {"credit": {"tokens": "uniform"}}, "writer": {"match": [{"agent": "w"}]}}}`

func TestTheCriticOfAPolicyIsReadAsThat(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	at := filepath.Join(t.TempDir(), "fulgurite.db")
	s, err := store.Open(ctx, at, nil)
	require.NoError(t, err)
	require.NoError(t, s.Migrate(ctx))
	_, _, err = s.CreateRun(ctx, record.Run{Name: "pair", Spec: []byte(specOfPair), Status: record.Running, Splits: map[record.Kind]record.Split{record.Train: {Digest: digest("d", 1), Count: 5}}})
	require.NoError(t, err)
	for i, policy := range []string{model.DefaultPolicy, "checker", "writer", model.CriticName("writer")} {
		_, _, err = s.PutVersion(ctx, model.Version{VersionID: model.VersionID{Run: "pair", Policy: policy}, Parent: -1, Manifest: digest("e", i), Weights: digest("a", i)})
		require.NoError(t, err)
	}
	require.NoError(t, s.Close())
	d, err := checker.OpenDatabase(at)
	require.NoError(t, err)
	defer func() { require.NoError(t, d.Close()) }()
	r, err := d.Records(ctx, "pair")
	require.NoError(t, err)
	require.Equal(t, []string{"checker", "writer"}, r.PolicyNames)
	require.Equal(t, []string{"writer"}, r.CriticNames, "the credit of the checker needs none")
	require.False(t, r.HasCritic, "no critic is that of the run")
	require.Equal(t, map[string][]checker.Version{"writer": {{Weights: digest("a", 3)}}}, r.PolicyCritics)
	require.Len(t, r.Policies, 2)
}

func TestABatchIsReadFromItsFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	blobs, err := blob.Open(dir)
	require.NoError(t, err)
	b := model.Batch{
		Format: model.BatchFormat, Policy: "main", Step: 1, VocabSize: 9,
		Trajectories: []model.BatchTrajectory{{Attempt: "chaos/train-1/2/1/3"}, {Attempt: "chaos/reserve-1/0/0/1"}},
		Rows: []model.BatchRow{{
			Row:     model.Row{Tokens: []int32{1, 2}, Temperature: 1},
			Sampled: []bool{false, true}, Logprobs: []float32{0, -1}, Advantages: []float32{0, 1}, Calls: []int32{-1, 0},
		}},
	}
	b.Count()
	data, err := hf.EncodeBatch(b)
	require.NoError(t, err)
	name, err := blobs.Put(t.Context(), data)
	require.NoError(t, err)
	trained, err := checker.ReadBatch(dir, name)
	require.NoError(t, err)
	require.Equal(t, []checker.Trained{
		{RolloutAddress: checker.RolloutAddress{Kind: "train", Step: 1, Task: 2, Sample: 1}, Attempt: 3},
		{RolloutAddress: checker.RolloutAddress{Kind: "reserve", Step: 1}, Attempt: 1},
	}, trained)

	_, err = checker.ReadBatch(dir, digest("0", 0))
	require.Error(t, err, "no such file")
	_, err = checker.ReadBatch(dir, "b1")
	require.ErrorContains(t, err, "no digest")
	spoiled := filepath.Join(dir, name[7:9], name[7:])
	require.NoError(t, os.Chmod(spoiled, 0o600))
	require.NoError(t, os.WriteFile(spoiled, data[1:], 0o600))
	_, err = checker.ReadBatch(dir, name)
	require.ErrorContains(t, err, "not what its name says")
}

func TestTheSamplersLogIsRead(t *testing.T) {
	t.Parallel()
	const line = `{"id":"a","run":"chaos","policy":"main","version":2,"seed":"18446744073709551615","prompt_tokens":[1],"tokens":[4,5],"weights":"sha256:ab","started":"2026-11-21T10:00:00.5Z","finished":"2026-11-21T10:00:01Z"}` + "\n"
	all, err := checker.ReadGenerations(strings.NewReader(line + line))
	require.NoError(t, err)
	require.Len(t, all, 2)
	require.Equal(t, checker.Generation{
		ID: "a", Run: "chaos", Version: 2, Seed: 1<<64 - 1, Tokens: []int32{4, 5}, Weights: "sha256:ab",
		Started: time.Date(2026, 11, 21, 10, 0, 0, 5e8, time.UTC), Finished: time.Date(2026, 11, 21, 10, 0, 1, 0, time.UTC),
	}, all[1])
	for _, bad := range []string{line + "{\n", line[:40], "{}\n"} {
		_, err := checker.ReadGenerations(strings.NewReader(bad))
		require.Error(t, err)
	}
}
