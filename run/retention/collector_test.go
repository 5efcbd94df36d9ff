package retention_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/fulgurite/fulgurite/credit"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/checkpoint"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/catalog"
	"github.com/fulgurite/fulgurite/run/retention"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/store"
	"github.com/fulgurite/fulgurite/store/blob"
)

// records holds a store and its blobs, as processes open them.
type records struct {
	t     testing.TB
	store *store.Store
	blobs *blob.Store
	catalog.Catalog
}

func open(t *testing.T) records {
	t.Helper()
	return openIn(t, t.TempDir())
}

func openIn(t testing.TB, dir string) records {
	t.Helper()
	return openAt(t, filepath.Join(dir, "store.db"), dir)
}

// openAt opens the store at a URL, with its blobs in a directory.
func openAt(t testing.TB, url, dir string) records {
	t.Helper()
	s, err := store.Open(t.Context(), url, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	require.NoError(t, s.Migrate(t.Context()))
	b, err := blob.Open(filepath.Join(dir, "blobs"))
	require.NoError(t, err)
	s.Files = b
	return records{t, s, b, catalog.Catalog{Store: s, Blobs: b}}
}

func (r records) collector() *retention.Collector {
	return &retention.Collector{Store: r.store, Blobs: r.blobs}
}

// run creates a run with versions 0 to newest.
func (r records) run(name string, keep *spec.Keep, newest int) {
	r.t.Helper()
	text, err := json.Marshal(spec.Spec{Training: spec.Training{Steps: 9, Keep: keep}})
	require.NoError(r.t, err)
	_, _, err = r.store.CreateRun(r.t.Context(), record.Run{Name: name, Spec: text})
	require.NoError(r.t, err)
	for n := range newest + 1 {
		require.NoError(r.t, r.put(r.version(name, n, uint64(n))))
	}
}

// version stores a state made from seed as version n of a run, without recording its row.
func (r records) version(run string, n int, seed uint64) model.Version {
	r.t.Helper()
	return r.versionOf(model.Architecture{
		VocabSize: 12, HiddenSize: 8, Layers: 1, Heads: 2, KVHeads: 1, HeadDim: 4,
		FeedForward: 8, MaxPositions: 16, RopeTheta: 10000, NormEpsilon: 1e-6,
	}, run, n, seed)
}

func (r records) versionOf(a model.Architecture, run string, n int, seed uint64) model.Version {
	r.t.Helper()
	c := model.Checkpoint{Architecture: a, Weights: a.Init(seed), Updates: n, Mean: a.Init(seed + 100), Variance: a.Init(seed + 200)}
	m := model.Manifest{Policy: model.DefaultPolicy, Number: n, Parent: n - 1, Codec: "compact", Engine: "native", Fingerprint: "f"}
	manifest, weights, err := checkpoint.Save(r.t.Context(), r.blobs, c, m)
	require.NoError(r.t, err)
	return model.Version{VersionID: model.VersionID{Run: run, Policy: model.DefaultPolicy, Number: n}, Parent: n - 1, Manifest: manifest, Weights: weights}
}

func (r records) put(v model.Version) error {
	_, _, err := r.store.PutVersion(r.t.Context(), v)
	return err
}

// loads returns the versions of a run that have all their files.
func (r records) loads(run string, newest int) (whole []int) {
	r.t.Helper()
	for n := range newest + 1 {
		v, err := r.store.Version(r.t.Context(), model.VersionID{Run: run, Policy: model.DefaultPolicy, Number: n})
		require.NoError(r.t, err)
		_, _, err = checkpoint.Load(r.t.Context(), r.blobs, v.Manifest)
		if err == nil {
			whole = append(whole, n)
			continue
		}
		require.ErrorIs(r.t, err, record.ErrNotFound)
		require.False(r.t, v.Collected.IsZero(), "version %d lacks files and is not marked", n)
	}
	return whole
}

func TestAVersionThatIsNotKeptGivesUpItsFilesAndSaysSo(t *testing.T) {
	t.Parallel()
	r := open(t)
	r.run("kept", nil, 4)
	r.run("short", &spec.Keep{Last: 2}, 0)
	for n := 1; n <= 4; n++ {
		require.NoError(t, r.put(r.version("short", n, uint64(10+n))))
		require.NoError(t, r.collector().Collect(t.Context(), "short"))
		require.NoError(t, r.collector().Collect(t.Context(), "kept"))
	}
	require.Equal(t, []int{0, 3, 4}, r.loads("short", 4))
	require.Equal(t, []int{0, 1, 2, 3, 4}, r.loads("kept", 4), "without training.keep nothing goes")

	id := model.VersionID{Run: "short", Policy: model.DefaultPolicy, Number: 2}
	_, _, err := r.Load(t.Context(), id)
	require.ErrorIs(t, err, model.ErrCollected)
	require.ErrorIs(t, err, record.ErrNotFound)
	require.ErrorContains(t, err, "short@2")
	require.ErrorContains(t, err, "training.keep")
	_, err = r.Canary(t.Context(), id)
	require.ErrorIs(t, err, model.ErrCollected)
	err = r.store.Promote(t.Context(), record.Promotion{Run: "short", Policy: model.DefaultPolicy, DecisionID: "d", Version: 2, Previous: -1, Source: record.SourcePin, By: "me"})
	require.ErrorIs(t, err, model.ErrCollected, "it can't be served any more")
}

func TestAFileThatAnotherRunNeedsStays(t *testing.T) {
	t.Parallel()
	r := open(t)
	r.run("other", nil, 0)
	require.NoError(t, r.put(r.version("other", 1, 1)), "with the weights of version 1 of the first")
	r.run("first", &spec.Keep{Last: 1}, 4)
	saved := r.version("other", 2, 2) // a state in the middle of the updates
	require.NoError(t, r.store.PutProgress(t.Context(), model.Progress{VersionID: saved.VersionID, Basis: "b", Updates: 1, Manifest: saved.Manifest}))
	require.NoError(t, r.collector().Collect(t.Context(), "first"))
	require.Equal(t, []int{0, 1, 2, 3, 4}, r.loads("first", 4), "1 and 2 by the files of the other")
	require.Equal(t, []int{0, 1}, r.loads("other", 1))
	_, _, err := checkpoint.Load(t.Context(), r.blobs, saved.Manifest)
	require.NoError(t, err)
}

var errKilled = errors.New("killed")

// dying holds the blobs of a process that is killed before removal number left.
type dying struct {
	*blob.Store
	left int
}

func (d *dying) Remove(ctx context.Context, digest string) error {
	if d.left--; d.left < 0 {
		return errKilled
	}
	return d.Store.Remove(ctx, digest)
}

func TestACollectionThatWasKilledIsEndedByTheNext(t *testing.T) {
	t.Parallel()
	for left := range 7 { // two files of each of three versions, and once all
		r := open(t)
		r.run("short", &spec.Keep{Last: 2}, 5)
		err := (&retention.Collector{Store: r.store, Blobs: &dying{r.blobs, left}}).Collect(t.Context(), "short")
		if left < 6 {
			require.ErrorIs(t, err, errKilled)
		} else {
			require.NoError(t, err)
		}
		require.Subset(t, r.loads("short", 5), []int{0, 4, 5})
		require.NoError(t, r.collector().Collect(t.Context(), "short"))
		require.Equal(t, []int{0, 4, 5}, r.loads("short", 5))
	}
}

func TestCollectorsAtOnceAndVersionsBeingMadeLoseNothing(t *testing.T) {
	t.Parallel()
	r := open(t)
	const newest = 6
	r.run("short", &spec.Keep{Last: 1}, 0)
	r.run("equal", nil, 0)
	var g errgroup.Group
	g.Go(func() error { // makes the same weights as the other run, a moment later or earlier
		for n := 1; n <= newest; n++ {
			for {
				err := r.put(r.version("equal", n, uint64(n)))
				if err == nil {
					break
				}
				if !errors.Is(err, store.ErrFileGone) && !errors.Is(err, record.ErrNotFound) {
					return err
				}
			}
		}
		return nil
	})
	g.Go(func() error {
		for n := 1; n <= newest; n++ {
			for r.put(r.version("short", n, uint64(n))) != nil {
				continue
			}
			var both errgroup.Group
			for range 2 {
				both.Go(func() error { return r.collector().Collect(t.Context(), "short") })
			}
			if err := both.Wait(); err != nil {
				return err
			}
		}
		return nil
	})
	require.NoError(t, g.Wait())
	require.Len(t, r.loads("equal", newest), newest+1)
	require.Subset(t, r.loads("short", newest), []int{0, newest - 1, newest})
}

// meeting holds the blobs of a collector. Another process runs before the collector
// removes its first file.
type meeting struct {
	*blob.Store
	once sync.Once
	meet func()
}

func (m *meeting) Remove(ctx context.Context, digest string) error {
	m.once.Do(m.meet)
	return m.Store.Remove(ctx, digest)
}

func TestNoVersionComesBetweenTheDecisionAndTheRemoval(t *testing.T) {
	t.Parallel()
	r := open(t)
	r.run("short", &spec.Keep{Last: 1}, 4)
	r.run("equal", nil, 0)
	v := r.version("equal", 1, 1) // its files are those of short@1; it has no row yet
	put := make(chan error, 1)
	blobs := &meeting{Store: r.blobs, meet: func() {
		go func() { put <- r.put(v) }()
		select {
		case err := <-put:
			t.Errorf("a version was put on record while files were removed: %v", err)
			put <- err
		case <-time.After(50 * time.Millisecond): // it waits for the collector
		}
	}}
	require.NoError(t, (&retention.Collector{Store: r.store, Blobs: blobs}).Collect(t.Context(), "short"))
	require.ErrorIs(t, <-put, store.ErrFileGone)
	require.NoError(t, r.put(r.version("equal", 1, 1)), "made again, it has its files again")
	require.Equal(t, []int{0, 1}, r.loads("equal", 1))
	require.NoError(t, r.collector().Collect(t.Context(), "short"))
	require.Equal(t, []int{0, 1}, r.loads("equal", 1), "and its row protects them")
}

func TestAVersionThatLacksAFileIsNotPutOnRecord(t *testing.T) {
	t.Parallel()
	r := open(t)
	r.run("short", nil, 0)
	v := r.version("short", 1, 7)
	require.NoError(t, r.blobs.Remove(t.Context(), v.Weights))
	require.ErrorIs(t, r.put(v), store.ErrFileGone)
	_, err := r.store.Version(t.Context(), v.VersionID)
	require.ErrorIs(t, err, record.ErrNotFound)
	require.NoError(t, r.put(r.version("short", 1, 7)))
}

func TestADamagedManifestStopsACollection(t *testing.T) {
	t.Parallel()
	r := open(t)
	r.run("other", nil, 0)
	require.NoError(t, r.put(r.version("other", 1, 50)))
	r.run("short", &spec.Keep{Last: 1}, 3)
	v, err := r.store.Version(t.Context(), model.VersionID{Run: "other", Policy: model.DefaultPolicy, Number: 1})
	require.NoError(t, err)
	path, err := r.blobs.Path(v.Manifest)
	require.NoError(t, err)
	require.NoError(t, os.Chmod(path, 0o644))
	require.NoError(t, os.WriteFile(path, []byte("{"), 0o644))
	require.ErrorIs(t, r.collector().Collect(t.Context(), "short"), blob.ErrCorrupt)
	require.Len(t, r.loads("short", 3), 4, "it might name any of the files")
}

// Once a version's row names its files, none of them is noted for collection.
func TestFilesOfAVersionAreNotedOnlyUntilItIsOnRecord(t *testing.T) {
	t.Parallel()
	r := open(t)
	r.run("made", nil, 0)
	v := r.version("made", 1, 5)
	require.NoError(t, r.store.NoteFile(t.Context(), v.VersionID, v.Weights))
	lost := r.version("made", 1, 6) // by an executor that died
	require.NoError(t, r.store.NoteFile(t.Context(), v.VersionID, lost.Weights))
	require.NoError(t, r.put(v))
	collector := r.collector()
	require.NoError(t, collector.Collect(t.Context(), "made"))
	has, err := r.blobs.Has(t.Context(), lost.Weights)
	require.NoError(t, err)
	require.True(t, has, "it was noted a moment ago")

	collector.Settled = time.Nanosecond
	collector.Blobs = &dying{r.blobs, 0}
	require.ErrorIs(t, collector.Collect(t.Context(), "made"), errKilled)
	collector.Blobs = r.blobs
	require.NoError(t, collector.Collect(t.Context(), "made"))
	has, err = r.blobs.Has(t.Context(), lost.Weights)
	require.NoError(t, err)
	require.False(t, has)
	require.Equal(t, []int{0, 1}, r.loads("made", 1))
}

// policies are those of the runs that pair makes.
func policies() []string { return []string{"checker", "writer"} }

// pair creates a run that trains two policies, with versions 0 to newest.
func (r records) pair(name string, keep *spec.Keep, newest int) {
	r.t.Helper()
	r.pairWith(name, keep, newest, nil)
}

// pairWith is like pair. The writer has its own credit.
func (r records) pairWith(name string, keep *spec.Keep, newest int, writer *spec.Credit) {
	r.t.Helper()
	text, err := json.Marshal(spec.Spec{Training: spec.Training{Steps: 9, Keep: keep}, Policies: map[string]spec.Policy{
		"checker": {}, "writer": {Match: []spec.PolicyMatch{{Agent: "writer"}}, Credit: writer},
	}})
	require.NoError(r.t, err)
	_, _, err = r.store.CreateRun(r.t.Context(), record.Run{Name: name, Spec: text})
	require.NoError(r.t, err)
	for n := range newest + 1 {
		r.putJoint(name, n)
	}
}

func (r records) putJoint(run string, n int) {
	r.t.Helper()
	joint := model.JointManifest{Format: model.JointManifestFormat, Number: n, Policies: map[string]model.JointPart{}}
	for i, policy := range policies() {
		v := r.version(run, n, uint64(100*i+n))
		v.Policy = policy
		require.NoError(r.t, r.put(v))
		// The weights of an adapter are a digest that is not of a file.
		joint.Policies[policy] = model.JointPart{Manifest: v.Manifest, Weights: "sha256:" + strings.Repeat("a", 64)}
	}
	text, err := joint.Encode()
	require.NoError(r.t, err)
	manifest, err := r.blobs.Put(r.t.Context(), text)
	require.NoError(r.t, err)
	require.NoError(r.t, r.put(model.Version{
		VersionID: model.VersionID{Run: run, Policy: model.DefaultPolicy, Number: n}, Parent: n - 1, Manifest: manifest, Weights: joint.Weights(),
	}))
}

// jointLoads returns the joint versions whose policies have all their files. The row of a
// version and those of its policies must agree.
func (r records) jointLoads(run string, newest int) (whole []int) {
	r.t.Helper()
	for n := range newest + 1 {
		joint, err := r.store.Version(r.t.Context(), model.VersionID{Run: run, Policy: model.DefaultPolicy, Number: n})
		require.NoError(r.t, err)
		for _, policy := range policies() {
			v, err := r.store.Version(r.t.Context(), model.VersionID{Run: run, Policy: policy, Number: n})
			require.NoError(r.t, err)
			require.Equal(r.t, joint.Collected.IsZero(), v.Collected.IsZero(), v.VersionID.String())
			_, _, err = checkpoint.Load(r.t.Context(), r.blobs, v.Manifest)
			if v.Collected.IsZero() {
				require.NoError(r.t, err, v.VersionID.String())
			} else {
				require.ErrorIs(r.t, err, record.ErrNotFound, v.VersionID.String())
			}
		}
		if joint.Collected.IsZero() {
			whole = append(whole, n)
		}
	}
	return whole
}

func TestTheJointVersionsDecideWhatEachPolicyKeeps(t *testing.T) {
	t.Parallel()
	r := open(t)
	ctx := t.Context()
	r.pair("pair", &spec.Keep{Last: 1}, 6)
	require.NoError(t, r.store.Promote(ctx, record.Promotion{Run: "pair", Policy: model.DefaultPolicy, DecisionID: "a", Version: 0, Previous: -1}))
	require.NoError(t, r.store.Promote(ctx, record.Promotion{Run: "pair", Policy: model.DefaultPolicy, DecisionID: "b", Version: 2, Previous: 0}))
	_, err := r.store.BeginAttempt(ctx, record.RolloutID{Run: "pair", Kind: record.Train, Step: 4}, "t", record.Terms{Policy: model.DefaultPolicy, Version: 3}, "key")
	require.NoError(t, err)
	for range 2 {
		require.NoError(t, r.collector().Collect(ctx, "pair"))
		require.Equal(t, []int{0, 2, 3, 5, 6}, r.jointLoads("pair", 6))
	}
	_, _, err = r.Load(ctx, model.VersionID{Run: "pair", Policy: "writer", Number: 4})
	require.ErrorIs(t, err, model.ErrCollected)
	require.ErrorContains(t, err, "pair:writer@4")
}

func TestTheCriticOfAPolicyGivesUpItsOldFiles(t *testing.T) {
	t.Parallel()
	r := open(t)
	ctx := t.Context()
	r.pairWith("pair", &spec.Keep{Last: 1}, 4, &spec.Credit{Tokens: credit.GAE})
	for n := range 5 {
		v := r.version("pair", n, uint64(1000+n))
		v.Policy = "writer.critic"
		require.NoError(t, r.put(v))
	}
	require.NoError(t, r.collector().Collect(ctx, "pair"))
	kept := r.jointLoads("pair", 4)
	require.Less(t, len(kept), 5)
	for n := range 5 {
		_, _, err := r.Load(ctx, model.VersionID{Run: "pair", Policy: "writer.critic", Number: n})
		if slices.Contains(kept, n) {
			require.NoError(t, err)
		} else {
			require.ErrorIs(t, err, model.ErrCollected)
		}
	}
}

func TestAPolicyWithoutAJointVersionYetKeepsItsFiles(t *testing.T) {
	t.Parallel()
	r := open(t)
	r.pair("pair", &spec.Keep{Last: 1}, 2)
	v := r.version("pair", 3, 33)
	v.Policy = "checker"
	require.NoError(t, r.put(v))
	require.NoError(t, r.collector().Collect(t.Context(), "pair"))
	require.Equal(t, []int{0, 1, 2}, r.jointLoads("pair", 2))
	_, _, err := r.Load(t.Context(), v.VersionID)
	require.NoError(t, err)
}

func TestACollectionOfPoliciesThatWasKilledIsEndedByTheNext(t *testing.T) {
	t.Parallel()
	for left := range 5 { // two files of each of two policies, and once all
		r := open(t)
		r.pair("pair", &spec.Keep{Last: 1}, 3)
		err := (&retention.Collector{Store: r.store, Blobs: &dying{r.blobs, left}}).Collect(t.Context(), "pair")
		if left < 4 {
			require.ErrorIs(t, err, errKilled)
		} else {
			require.NoError(t, err)
		}
		require.NoError(t, r.collector().Collect(t.Context(), "pair"))
		require.Equal(t, []int{0, 2, 3}, r.jointLoads("pair", 3))
	}
}
