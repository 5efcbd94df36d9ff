package activities_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/store/blob"
)

// Two processes make the same step at the same time, and both save on the way. They wait
// for each other before they record their versions.
func TestTwoTrainersThatRaceThroughAStepMakeOneVersion(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	w.start(w.several())
	in := trainStep(1, w.groups(1, 4))
	undisturbed := w.copied(t)
	defer undisturbed.discard()
	want, err := do[activities.VersionResult](t, undisturbed.trainer().TrainStep, in)
	require.NoError(t, err)

	var all, done sync.WaitGroup
	all.Add(2)
	results, errs := make([]activities.VersionResult, 2), make([]error, 2)
	for i := range results {
		trainer := w.trainer()
		trainer.SaveEvery = 1
		trainer.Versions = meeting{w.store, &all}
		done.Go(func() { results[i], errs[i] = do[activities.VersionResult](t, trainer.TrainStep, in) })
	}
	done.Wait()
	require.NoError(t, errors.Join(errs...))
	require.Equal(t, []activities.VersionResult{want, want}, results)
	versions, err := w.store.Versions(t.Context(), "demo", model.DefaultPolicy)
	require.NoError(t, err)
	require.Len(t, versions, 2)
	requireSameManifest(t, undisturbed, w, 1)
}

// suspended has a channel that reports that a process is suspended, and one that resumes
// it.
type suspended struct{ reached, wake chan struct{} }

func newSuspended() *suspended { return &suspended{make(chan struct{}), make(chan struct{})} }

// once returns a function that sleeps only the first time. It ignores its context,
// because a process that is stopped doesn't notice that either.
func (a *suspended) once() func(context.Context) error {
	var once sync.Once
	return func(context.Context) error {
		once.Do(func() {
			close(a.reached)
			<-a.wake
		})
		return nil
	}
}

func TestAZombieThatWakesUpReturnsTheVersionThatStands(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	w.start(w.several())
	in := trainStep(1, w.groups(1, 4))
	zombie, sleep := w.trainer(), newSuspended()
	zombie.SaveEvery = 1
	seen := watch(zombie, sleep.once())
	var got activities.VersionResult
	var zombieErr error
	var done sync.WaitGroup
	done.Go(func() { got, zombieErr = do[activities.VersionResult](t, zombie.TrainStep, in) })
	<-sleep.reached

	want, err := do[activities.VersionResult](t, w.trainer().TrainStep, in)
	require.NoError(t, err)
	before, err := w.version(1)
	require.NoError(t, err)
	close(sleep.wake)
	done.Wait()
	require.NoError(t, zombieErr)
	require.Equal(t, want, got)
	require.Len(t, seen.made, 4, "it went on where it slept")
	after, err := w.version(1)
	require.NoError(t, err)
	require.Equal(t, before, after)

	// The weights in its memory are those of the recorded version, so it may continue
	// from them.
	next := trainStep(2, w.groups(2, 4))
	other := w.copied(t)
	defer other.discard()
	want, err = do[activities.VersionResult](t, other.trainer().TrainStep, next)
	require.NoError(t, err)
	got, err = do[activities.VersionResult](t, zombie.TrainStep, next)
	require.NoError(t, err)
	require.Equal(t, want, got)
}

func TestAVersionOfAnotherBatchIsNotReturned(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	w.start(w.spec())
	in := trainStep(1, w.batch(1, sampledAt))
	_, err := do[activities.VersionResult](t, w.trainer().TrainStep, in)
	require.NoError(t, err)
	other := trainStep(1, w.batch(1, sampledAt-1))
	_, err = do[activities.VersionResult](t, w.trainer().TrainStep, other)
	requireNoRetry(t, err, "version demo@1 exists", in.Batch, other.Batch)

	// The same holds if the trainer sees the version only when it records its own.
	trainer := w.trainer()
	trainer.Versions = hidesVersion{w.store, 1}
	_, err = do[activities.VersionResult](t, trainer.TrainStep, other)
	requireNoRetry(t, err, "version demo@1 exists", in.Batch, other.Batch)
}

func TestABatchOfAnotherStepOrPolicyIsRefused(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	w.start(w.spec())
	_, err := do[activities.VersionResult](t, w.trainer().TrainStep, trainStep(1, w.batch(2, sampledAt)))
	requireFinal(t, err, "version demo@1", "step 2")
	w.requireNoVersion(1)
}

func TestAParentWhoseManifestIsAnothersIsRefused(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	w.start(w.spec())
	first, err := do[activities.VersionResult](t, w.trainer().TrainStep, trainStep(1, w.batch(1, sampledAt)))
	require.NoError(t, err)
	zero, one := w.parent(), w.manifest(1)
	_, created, err := w.store.PutVersion(t.Context(), model.Version{
		VersionID: model.VersionID{Run: "demo", Policy: model.DefaultPolicy, Number: 2}, Parent: 1, Manifest: zero.Manifest, Weights: first.Weights,
	})
	require.NoError(t, err)
	require.True(t, created)
	require.NotEqual(t, one, zero.Manifest)
	_, err = do[activities.VersionResult](t, w.trainer().TrainStep, trainStep(3, w.batch(3, sampledAt)))
	requireRetryable(t, err, "load the parent of version demo@3", "corrupt checkpoint", "version 0")
	w.requireNoVersion(3)
}

// Whatever is wrong with a file, the step names the file, what it belongs to, and what to
// do. It continues by itself when the file is restored.
func TestASpoiltFileIsReportedAndMended(t *testing.T) {
	t.Parallel()
	template := newTestEnv(t)
	template.start(template.spec())
	trainer := template.trainer()
	_, err := do[activities.VersionResult](t, trainer.TrainStep, trainStep(1, template.batch(1, sampledAt)))
	require.NoError(t, err)
	in := trainStep(2, template.batch(2, sampledAt))
	undisturbed := template.copied(t)
	defer undisturbed.discard()
	want, err := do[activities.VersionResult](t, undisturbed.trainer().TrainStep, in)
	require.NoError(t, err)

	m := template.files(1)
	for name, digest := range map[string]string{
		"batch": in.Batch, "manifest": template.manifest(1),
		model.WeightsFile: m[model.WeightsFile].Digest, model.OptimizerFile: m[model.OptimizerFile].Digest,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := template.copied(t)
			defer w.discard()
			path := w.path(digest)
			whole, err := os.ReadFile(path)
			require.NoError(t, err)
			require.NoError(t, os.Chmod(path, 0o600))
			for what, spoilt := range map[string][]byte{
				"emptied": {}, "without its end": whole[:len(whole)-1], "only its header": whole[:8], "longer": append(whole[:len(whole):len(whole)], 0),
				"one bit flipped": flipped(whole),
			} {
				require.NoError(t, os.WriteFile(path, spoilt, 0o600))
				trainer := w.trainer()
				_, err := do[activities.VersionResult](t, trainer.TrainStep, in)
				requireRetryable(t, err, digest, path, "version demo@2", "corrupt", "put a copy of the file back", "demo@1")
				w.requireNoVersion(2)
				trainer.Close()
				require.NotEmpty(t, what)
			}
			require.NoError(t, os.WriteFile(path, whole, 0o600))
			got, err := do[activities.VersionResult](t, w.trainer().TrainStep, in)
			require.NoError(t, err)
			require.Equal(t, want, got)
		})
	}
}

func flipped(b []byte) []byte {
	b = append([]byte(nil), b...)
	b[len(b)/2] ^= 0x10
	return b
}

// A trainer that has the parent in memory does not need its files.
func TestACorruptedParentDoesNotStopWhoHasItInMemory(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	w.start(w.spec())
	trainer := w.trainer()
	_, err := do[activities.VersionResult](t, trainer.TrainStep, trainStep(1, w.batch(1, sampledAt)))
	require.NoError(t, err)
	in := trainStep(2, w.batch(2, sampledAt))
	undisturbed := w.copied(t)
	defer undisturbed.discard()
	want, err := do[activities.VersionResult](t, undisturbed.trainer().TrainStep, in)
	require.NoError(t, err)
	w.overwrite(w.files(1)[model.WeightsFile].Digest)
	got, err := do[activities.VersionResult](t, trainer.TrainStep, in)
	require.NoError(t, err)
	require.Equal(t, want, got)
}

// fullDisk is a disk on which nothing more can be written after some writes.
type fullDisk struct {
	*blob.Store
	dir  string
	room int // writes until then
}

func (f *fullDisk) Put(ctx context.Context, data []byte) (string, error) {
	if f.room--; f.room < 0 {
		return "", fmt.Errorf("put blob: %w: free space, or raise the quota, in %s: %w", blob.ErrFull, f.dir, syscall.ENOSPC)
	}
	return f.Store.Put(ctx, data)
}

func (f *fullDisk) PutFrom(ctx context.Context, r io.Reader) (string, error) {
	return putWhole(ctx, f, r)
}

func TestAFullDiskHoldsAStepUpAndBreaksNothing(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	w.start(w.several())
	in := trainStep(1, w.groups(1, 4))
	undisturbed := w.copied(t)
	defer undisturbed.discard()
	want, err := do[activities.VersionResult](t, undisturbed.trainer().TrainStep, in)
	require.NoError(t, err)
	trainer := w.trainer()
	trainer.SaveEvery = 1
	disk := &fullDisk{Store: w.blobs, dir: w.dir}
	trainer.Blobs = disk
	for room := range 4 {
		disk.room = room
		_, err := do[activities.VersionResult](t, trainer.TrainStep, in)
		requireRetryable(t, err, "no room", "free space", w.dir, "version demo@1")
		w.requireNoVersion(1)
	}
	disk.room = 1000
	got, err := do[activities.VersionResult](t, trainer.TrainStep, in)
	require.NoError(t, err)
	require.Equal(t, want, got)
}

// The environment that makes this test binary a trainer that kills itself.
const (
	childDirectory = "ACTIVITIES_TEST_DIRECTORY"
	childBatch     = "ACTIVITIES_TEST_BATCH"
	childDeath     = "ACTIVITIES_TEST_DEATH"
)

// lethal kills its own process after one of its writes.
type lethal struct {
	*blob.Store
	left int
}

func (l *lethal) Put(ctx context.Context, data []byte) (string, error) {
	digest, err := l.Store.Put(ctx, data)
	if l.left--; l.left == 0 {
		err = errors.Join(err, syscall.Kill(os.Getpid(), syscall.SIGKILL))
	}
	return digest, err
}

func (l *lethal) PutFrom(ctx context.Context, r io.Reader) (string, error) {
	return putWhole(ctx, l, r)
}

func TestTrainerThatKillsItself(t *testing.T) {
	dir := os.Getenv(childDirectory)
	if dir == "" {
		t.Skip("it is only for the next test")
	}
	w := open(t, dir)
	left, err := strconv.Atoi(os.Getenv(childDeath))
	require.NoError(t, err)
	trainer := w.trainer()
	trainer.SaveEvery = 1
	trainer.Blobs = &lethal{w.blobs, left}
	_, err = do[activities.VersionResult](t, trainer.TrainStep, trainStep(1, os.Getenv(childBatch)))
	require.NoError(t, err)
}

func TestTrainersKilledForRealLeaveTheSameBits(t *testing.T) {
	t.Parallel()
	template := newTestEnv(t)
	template.start(template.several())
	in := trainStep(1, template.groups(1, 4))
	undisturbed := template.copied(t)
	defer undisturbed.discard()
	want, err := do[activities.VersionResult](t, undisturbed.trainer().TrainStep, in)
	require.NoError(t, err)
	w := template.copied(t)
	require.NoError(t, w.store.Close())
	for _, left := range []int{1, 4, 3, 2} { // from the beginning, then twice from saved progress, then as the version is written
		c := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestTrainerThatKillsItself$")
		c.Env = append(os.Environ(), childDirectory+"="+w.dir, childBatch+"="+in.Batch, childDeath+"="+strconv.Itoa(left))
		out, err := c.CombinedOutput()
		var exit *exec.ExitError
		require.ErrorAs(t, err, &exit, "%s", out)
		require.Equal(t, syscall.SIGKILL, exit.Sys().(syscall.WaitStatus).Signal(), "%s", out)
	}
	w = open(t, w.dir)
	got, err := do[activities.VersionResult](t, w.trainer().TrainStep, in)
	require.NoError(t, err)
	require.Equal(t, want, got)
	requireSameManifest(t, undisturbed, w, 1)
	w.discard()
}
