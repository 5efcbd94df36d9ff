package retention_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/checkpoint"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/retention"
	"github.com/fulgurite/fulgurite/store"
	"github.com/fulgurite/fulgurite/store/blob"
)

// saved stores a state made from seed as the state after some updates towards a version,
// and returns its manifest.
func (r records) saved(run string, n, updates int, seed uint64) string {
	r.t.Helper()
	v := r.version(run, n, seed)
	require.NoError(r.t, r.store.PutProgress(r.t.Context(), model.Progress{VersionID: v.VersionID, Basis: "b", Updates: updates, Manifest: v.Manifest}))
	return v.Manifest
}

// whole reports whether a saved state is complete. An incomplete one must have lost both
// weights and moments.
func (r records) whole(manifest string) bool {
	r.t.Helper()
	_, m, err := checkpoint.Load(r.t.Context(), r.blobs, manifest)
	if err == nil {
		return true
	}
	require.ErrorIs(r.t, err, record.ErrNotFound)
	require.NotEmpty(r.t, m.Files, "the manifest stays")
	for _, name := range []string{model.WeightsFile, model.OptimizerFile} {
		has, err := r.blobs.Has(r.t.Context(), m.Files[name].Digest)
		require.NoError(r.t, err)
		require.False(r.t, has, name)
	}
	return false
}

func TestSavedUpdatesThatNobodyGoesOnFromGiveUpTheirFiles(t *testing.T) {
	t.Parallel()
	r := open(t)
	r.run("all", nil, 1)
	first := r.saved("all", 2, 1, 21)
	require.NoError(t, r.collector().Collect(t.Context(), "all"))
	require.True(t, r.whole(first), "the next executor goes on from it")

	second := r.saved("all", 2, 2, 22)
	shared := r.saved("all", 3, 1, 1) // shares its files with version 1
	later := r.saved("all", 3, 2, 23)
	require.NoError(t, r.collector().Collect(t.Context(), "all"))
	require.False(t, r.whole(first))
	require.True(t, r.whole(second))
	require.True(t, r.whole(shared), "version 1 needs them")
	require.Equal(t, []int{0, 1}, r.loads("all", 1))

	require.NoError(t, r.put(r.version("all", 2, 2)))
	require.NoError(t, r.collector().Collect(t.Context(), "all"))
	require.False(t, r.whole(second), "the version stands")
	require.True(t, r.whole(later))
	require.Equal(t, []int{0, 1, 2}, r.loads("all", 2))

	// Equal updates that were made and saved again exist again.
	again := r.saved("all", 4, 1, 21)
	require.NoError(t, r.collector().Collect(t.Context(), "all"))
	require.True(t, r.whole(again))
}

func TestACollectionOfSavedUpdatesThatWasKilledIsEndedByTheNext(t *testing.T) {
	t.Parallel()
	for left := range 5 { // two files of each of two states, and once all
		r := open(t)
		r.run("all", nil, 1)
		manifests := []string{r.saved("all", 2, 1, 21), r.saved("all", 2, 2, 22), r.saved("all", 2, 3, 23)}
		err := (&retention.Collector{Store: r.store, Blobs: &dying{r.blobs, left}}).Collect(t.Context(), "all")
		if left < 4 {
			require.ErrorIs(t, err, errKilled)
		} else {
			require.NoError(t, err)
		}
		require.True(t, r.whole(manifests[2]))
		require.NoError(t, r.collector().Collect(t.Context(), "all"))
		require.False(t, r.whole(manifests[0]))
		require.False(t, r.whole(manifests[1]))
		require.True(t, r.whole(manifests[2]))
		require.Equal(t, []int{0, 1}, r.loads("all", 1))
	}
}

func TestTrainersThatSaveWhileOthersCollectLoseNoVersion(t *testing.T) {
	t.Parallel()
	r := open(t)
	const newest = 5
	r.run("one", nil, 0)
	r.run("two", nil, 0)
	var g errgroup.Group
	for _, run := range []string{"one", "two"} { // with equal updates and weights
		g.Go(func() error {
			for n := 1; n <= newest; n++ {
				for u := range 3 {
					r.saved(run, n, u+1, uint64(100*n+u))
				}
				for r.put(r.version(run, n, uint64(100*n+2))) != nil { // with the files of the last saved state
					continue
				}
				if err := r.collector().Collect(t.Context(), run); err != nil {
					return err
				}
			}
			return nil
		})
	}
	require.NoError(t, g.Wait())
	require.Len(t, r.loads("one", newest), newest+1)
	require.Len(t, r.loads("two", newest), newest+1)
}

// supersededSince is a store in which saved progress is superseded right after somebody read
// which files are needed.
type supersededSince struct {
	*store.Store
	supersede func()
}

func (s supersededSince) KeptManifests(ctx context.Context) ([]string, any, error) {
	kept, at, err := s.Store.KeptManifests(ctx)
	s.supersede()
	return kept, at, err
}

func TestProgressThatIsSupersededDuringACollectionGoesInTheNext(t *testing.T) {
	t.Parallel()
	r := open(t)
	r.run("all", nil, 1)
	first, second := r.saved("all", 2, 1, 21), r.saved("all", 2, 2, 22)
	c := &retention.Collector{Store: supersededSince{r.store, func() { r.saved("all", 2, 3, 23) }}, Blobs: r.blobs}
	require.NoError(t, c.Collect(t.Context(), "all"))
	require.False(t, r.whole(first))
	require.True(t, r.whole(second), "it was needed a moment ago")
	require.NoError(t, r.collector().Collect(t.Context(), "all"))
	require.False(t, r.whole(second))
	require.Equal(t, []int{0, 1}, r.loads("all", 1))
}

// counted counts the transactions of a collection.
type counted struct {
	*store.Store
	superseded, abandoned *int
}

func (c counted) CollectSuperseded(ctx context.Context, at any, f func(_, _ []string) (done, kept []string, err error)) (bool, error) {
	*c.superseded++
	return c.Store.CollectSuperseded(ctx, at, f)
}

func (c counted) CollectAbandoned(ctx context.Context, before time.Time, at any, f func(_, _, _ []string) ([]string, error)) (bool, error) {
	*c.abandoned++
	return c.Store.CollectAbandoned(ctx, before, at, f)
}

func TestManyFilesThatNobodyNeedsAreCollectedInSeveralTransactions(t *testing.T) {
	t.Parallel()
	r := open(t)
	r.run("all", nil, 1)
	kept := r.version("all", 1, 1)
	const many = 200
	digests := make([]string, many)
	for n := range many {
		digest, err := r.blobs.Put(t.Context(), []byte{byte(n)})
		require.NoError(t, err)
		digests[n] = digest
		require.NoError(t, r.store.NoteFile(t.Context(), model.VersionID{Run: "never", Policy: model.DefaultPolicy, Number: n}, digest))
		require.NoError(t, r.store.NoteFile(t.Context(), model.VersionID{Run: "never", Policy: model.DefaultPolicy, Number: n + 1}, digest))
		require.NoError(t, r.store.PutProgress(t.Context(), model.Progress{VersionID: model.VersionID{Run: "all", Policy: model.DefaultPolicy, Number: 2}, Basis: "b", Updates: n, Manifest: digest}))
	}
	var superseded, abandoned int
	c := &retention.Collector{Store: counted{r.store, &superseded, &abandoned}, Blobs: unread{r.blobs}, Settled: time.Nanosecond}
	require.NoError(t, c.Collect(t.Context(), "all"))
	require.GreaterOrEqual(t, superseded, many/64)
	require.GreaterOrEqual(t, abandoned, 2*many/64)
	for _, digest := range digests {
		has, err := r.blobs.Has(t.Context(), digest)
		require.NoError(t, err)
		require.False(t, has)
	}
	require.True(t, r.whole(kept.Manifest))
	left, more, err := r.store.Collectable(t.Context(), time.Now())
	require.NoError(t, err)
	require.False(t, left || more, "nothing is left")
}

// unread holds blobs of which those of one byte can't be read, as if the manifest were lost.
type unread struct{ *blob.Store }

func (u unread) Get(ctx context.Context, digest string) ([]byte, error) {
	text, err := u.Store.Get(ctx, digest)
	if len(text) == 1 {
		return nil, record.ErrNotFound
	}
	return text, err
}

// More superseded states than one transaction takes, the first of all, are also those of an
// equal run.
func TestStatesThatAnEqualRunKeepsDoNotHoldUpTheRest(t *testing.T) {
	t.Parallel()
	r := open(t)
	ctx := t.Context()
	r.run("all", nil, 0)
	save := func(run string, n, updates int, manifest string) {
		id := model.VersionID{Run: run, Policy: model.DefaultPolicy, Number: n}
		require.NoError(t, r.store.PutProgress(ctx, model.Progress{VersionID: id, Basis: "b", Updates: updates, Manifest: manifest}))
	}
	var states []string
	for n := range 70 {
		states = append(states, r.version("all", 1, uint64(1000+n)).Manifest)
		save("all", 1, n+1, states[n])
	}
	save("all", 1, 71, r.version("all", 1, 2000).Manifest)
	slices.Sort(states) // the order of the queue
	kept, gone := states[:65], states[65:]
	for n, manifest := range kept {
		save("equal", n, 1, manifest)
	}
	require.NoError(t, r.collector().Collect(ctx, "all"))
	for _, manifest := range kept {
		require.True(t, r.whole(manifest), "the equal run goes on from it")
	}
	for _, manifest := range gone {
		require.False(t, r.whole(manifest))
	}
	left, _, err := r.store.Collectable(ctx, time.Now())
	require.NoError(t, err)
	require.False(t, left, "what the equal run keeps is no longer in the queue")

	save("equal", 0, 2, r.version("equal", 1, 2001).Manifest)
	require.NoError(t, r.collector().Collect(ctx, "all"))
	require.False(t, r.whole(kept[0]), "it came back when the equal run went on")
	require.True(t, r.whole(kept[1]))
}
