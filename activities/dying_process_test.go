package activities_test

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/credit"
	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/hf"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/catalog"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/store"
	"github.com/fulgurite/fulgurite/store/blob"
)

// copied returns a copy of the testEnv in another folder. The caller discards it.
func (w *testEnv) copied(t testing.TB) *testEnv {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "copy")
	require.NoError(t, os.CopyFS(dir, os.DirFS(w.dir)))
	return open(t, dir)
}

// open opens the files that another process left in dir. The caller discards the result.
func open(t testing.TB, dir string) *testEnv {
	t.Helper()
	w := &testEnv{t: t, dir: dir}
	var err error
	w.store, err = store.Open(t.Context(), filepath.Join(dir, "store.db"), nil)
	require.NoError(t, err)
	w.blobs, err = blob.Open(filepath.Join(dir, "blobs"))
	require.NoError(t, err)
	w.catalog = catalog.Catalog{Store: w.store, Blobs: w.blobs}
	return w
}

// discard closes a copied testEnv and removes its files.
func (w *testEnv) discard() {
	w.t.Helper()
	require.NoError(w.t, w.store.Close())
	require.NoError(w.t, os.RemoveAll(w.dir))
}

// death names how a process dies at an operation. Dying before an operation leaves the
// same files as dying after the operation before it, so it is not tested separately.
type death string

const (
	half  death = "half through the writing of a blob"
	after death = "after an operation, before its result is known"
)

// dyingProcess is a testEnv for a process that dies at one of its operations. Everything
// that the process does afterwards has no effect.
type dyingProcess struct {
	*testEnv
	at  int // number of the operation, from 1
	how death

	mu   sync.Mutex
	n    int
	dead bool
}

var errDead = errors.New("this process is dead")

func (w *dyingProcess) operate(op func() error, part func()) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.dead {
		return errDead
	}
	if part == nil && w.how == half {
		return op()
	}
	if w.n++; w.n != w.at {
		return op()
	}
	w.dead = true
	if w.how == half {
		part()
	} else {
		_ = op()
	}
	return errDead
}

func (w *dyingProcess) trainer() *activities.Trainer {
	t := w.testEnv.trainer()
	t.Runs, t.Versions, t.Blobs = dyingStore{w.store, w}, dyingStore{w.store, w}, dyingBlobs{w}
	return t
}

type dyingBlobs struct{ *dyingProcess }

func (w dyingBlobs) Put(ctx context.Context, data []byte) (digest string, err error) {
	err = w.operate(func() (err error) {
		digest, err = w.blobs.Put(ctx, data)
		return err
	}, func() { _ = os.WriteFile(filepath.Join(w.dir, "blobs", ".put-half"), data[:len(data)/2], 0o600) })
	return digest, err
}

func (w dyingBlobs) Get(ctx context.Context, digest string) (data []byte, err error) {
	err = w.operate(func() (err error) {
		data, err = w.blobs.Get(ctx, digest)
		return err
	}, nil)
	return data, err
}

func (w dyingBlobs) Beside(digest, name string) string { return w.blobs.Beside(digest, name) }

func (w dyingBlobs) PutFrom(ctx context.Context, r io.Reader) (string, error) {
	return putWhole(ctx, w, r)
}

func (w dyingBlobs) Open(ctx context.Context, digest string) (content io.ReadCloser, size int64, err error) {
	err = w.operate(func() (err error) {
		content, size, err = w.blobs.Open(ctx, digest)
		return err
	}, nil)
	return content, size, err
}

// putWhole implements PutFrom with the Put of blobs that count or spoil content.
func putWhole(ctx context.Context, blobs activities.Blobs, r io.Reader) (string, error) {
	data, err := io.ReadAll(r)
	if err != nil {
		return "", err
	}
	return blobs.Put(ctx, data)
}

type dyingStore struct {
	*store.Store
	*dyingProcess
}

func (w dyingStore) Run(ctx context.Context, name string) (run record.Run, err error) {
	err = w.operate(func() (err error) {
		run, err = w.Store.Run(ctx, name)
		return err
	}, nil)
	return run, err
}

func (w dyingStore) Version(ctx context.Context, id model.VersionID) (v model.Version, err error) {
	err = w.operate(func() (err error) {
		v, err = w.Store.Version(ctx, id)
		return err
	}, nil)
	return v, err
}

func (w dyingStore) PutVersion(ctx context.Context, in model.Version) (v model.Version, created bool, err error) {
	err = w.operate(func() (err error) {
		v, created, err = w.Store.PutVersion(ctx, in)
		return err
	}, nil)
	return v, created, err
}

func (w dyingStore) Progress(ctx context.Context, id model.VersionID) (p model.Progress, err error) {
	err = w.operate(func() (err error) {
		p, err = w.Store.Progress(ctx, id)
		return err
	}, nil)
	return p, err
}

func (w dyingStore) PutProgress(ctx context.Context, p model.Progress) error {
	return w.operate(func() error { return w.Store.PutProgress(ctx, p) }, nil)
}

func (w dyingStore) NoteFile(ctx context.Context, id model.VersionID, digest string) error {
	return w.operate(func() error { return w.Store.NoteFile(ctx, id, digest) }, nil)
}

// several returns the spec of a run with four updates in a step and with everything that
// a step can have.
func (w *testEnv) several() spec.Spec {
	s := w.spec()
	s.Training.TasksPerStep = 4
	s.Training.Passes, s.Training.Minibatches = 2, 2
	s.Loss.Correction = credit.Decoupled
	return s
}

// files returns the files of a version.
func (w *testEnv) files(number int) map[string]model.File {
	w.t.Helper()
	text, err := w.blobs.Get(w.t.Context(), w.manifest(number))
	require.NoError(w.t, err)
	m, err := model.ParseManifest(text)
	require.NoError(w.t, err)
	return m.Files
}

// groups stores a batch with count groups of two attempts for a step. Another version
// than the parent sampled them.
func (w *testEnv) groups(step, count int) string {
	w.t.Helper()
	b := model.Batch{Format: model.BatchFormat, Policy: model.DefaultPolicy, Step: step, VocabSize: dialog.Compact().VocabSize()}
	for i := range 2 * count {
		advantage := float64(1 - 2*(i%2))
		b.Trajectories = append(b.Trajectories, model.BatchTrajectory{Attempt: "demo/train-1/0/0/1", Group: i / 2, Advantage: advantage})
		r := model.BatchRow{Row: model.Row{Temperature: 1}, Trajectory: i}
		for k := range 5 + i {
			sampled := k >= 3
			r.Tokens = append(r.Tokens, int32(20+(7*step+11*i+3*k*k)%90))
			r.Sampled = append(r.Sampled, sampled)
			r.Logprobs, r.Advantages, r.Calls = append(r.Logprobs, 0), append(r.Advantages, 0), append(r.Calls, -1)
			if sampled {
				r.Logprobs[k], r.Advantages[k], r.Calls[k] = sampledAt+0.3*float32(k%5-2), float32(advantage), 0
			}
		}
		b.Rows = append(b.Rows, r)
	}
	b.Count()
	data, err := hf.EncodeBatch(b)
	require.NoError(w.t, err)
	digest, err := w.blobs.Put(w.t.Context(), data)
	require.NoError(w.t, err)
	return digest
}

// eachDeath runs produce in processes that die, one at each operation and in every way.
// Each time another process makes the version afterwards.
func eachDeath(t *testing.T, template *testEnv, number, saveEvery int, produce func(*activities.Trainer) (activities.VersionResult, error)) {
	t.Helper()
	eachDeathOf(t, template, model.VersionID{Run: "demo", Policy: model.DefaultPolicy, Number: number}, saveEvery, produce)
}

func eachDeathOf(t *testing.T, template *testEnv, id model.VersionID, saveEvery int, produce func(*activities.Trainer) (activities.VersionResult, error)) {
	t.Helper()
	finish := func(trainer *activities.Trainer) (activities.VersionResult, error) {
		trainer.SaveEvery = saveEvery
		defer trainer.Close()
		return produce(trainer)
	}
	undisturbed := template.copied(t)
	defer undisturbed.discard()
	want, err := finish(undisturbed.trainer())
	require.NoError(t, err)
	recorded, err := undisturbed.store.Version(t.Context(), id)
	require.NoError(t, err)
	step := 1
	if testing.Short() { // with -short, only to find races
		step = 4
	}
	for how, least := range map[death]int{half: 7, after: 16} {
		t.Run(string(how), func(t *testing.T) {
			t.Parallel()
			for at, over := 1, false; !over; at += step {
				w := template.copied(t)
				dyingProcess := &dyingProcess{testEnv: w, at: at, how: how}
				_, err := finish(dyingProcess.trainer())
				if over = !dyingProcess.dead; over {
					require.NoError(t, err)
					require.Greater(t, at, least, "operations in all")
				} else {
					require.ErrorContains(t, err, errDead.Error(), "operation %d", at)
					got, err := finish(w.trainer())
					require.NoError(t, err, "after operation %d", at)
					require.Equal(t, want, got, "after operation %d", at)
					v, err := w.store.Version(t.Context(), id)
					require.NoError(t, err)
					require.Equal(t, recorded.Manifest, v.Manifest, "the moments, canaries and metrics too, after operation %d", at)
					require.Empty(t, w.leftOver(), "after operation %d", at)
				}
				w.discard()
			}
		})
	}
}

func TestAStepThatIsKilledAnywhereEndsInTheSameBits(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	w.start(w.several())
	in := trainStep(1, w.groups(1, 4))
	eachDeath(t, w, 1, 1, func(trainer *activities.Trainer) (activities.VersionResult, error) {
		return do[activities.VersionResult](t, trainer.TrainStep, in)
	})
}

func TestAWarmStartThatIsKilledAnywhereEndsInTheSameBits(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	s := w.warm()
	s.Model.WarmStart.Updates = 7
	w.prepare(s)
	eachDeath(t, w, 0, 3, func(trainer *activities.Trainer) (activities.VersionResult, error) {
		return do[activities.VersionResult](t, trainer.InitPolicy, initPolicy())
	})
}
