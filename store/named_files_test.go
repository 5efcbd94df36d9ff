package store_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/store"
)

// allNamed returns all digests that rows name, in order.
func allNamed(f record.NamedFiles) []string {
	all := slices.Concat(f.Manifests, f.Collected, f.Batches, f.Others)
	slices.Sort(all)
	return slices.Compact(all)
}

// names puts on record, for step n of a run, a row of each kind that names a file, and returns
// the digests.
func names(t *testing.T, s *store.Store, run string, n int) (digests []string) {
	t.Helper()
	ctx, digest := t.Context(), func(i int) string { return fmt.Sprintf("sha256:%064x", 1000*n+i) }
	for i := range 9 {
		digests = append(digests, digest(i))
	}
	id := model.VersionID{Run: run, Policy: "main", Number: n}
	_, _, err := s.PutBatch(ctx, record.Batch{Run: run, Policy: "main", Step: n, Digest: digest(0)})
	require.NoError(t, err)
	_, _, err = s.PutVersion(ctx, model.Version{VersionID: id, Parent: n - 1, Manifest: digest(1), Weights: digest(2), Scores: digest(3), Batch: digest(4)})
	require.NoError(t, err)
	require.NoError(t, s.PutStep(ctx, record.Step{Run: run, Policy: "main", Step: n, Batch: digest(5)}))
	require.NoError(t, s.PutPromptVersion(ctx, record.PromptVersion{Run: run, Number: n, Prompts: digest(6)}))
	id.Number = n + 1
	require.NoError(t, s.PutProgress(ctx, model.Progress{VersionID: id, Manifest: digest(7)}))
	require.NoError(t, s.NoteFile(ctx, id, digest(8)))
	return digests
}

func TestOnlyWhatWasPutOnRecordSinceIsReadWhileOthersWait(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		ctx := t.Context()
		splits := func(i int) map[record.Kind]record.Split {
			return map[record.Kind]record.Split{record.Train: {Digest: fmt.Sprintf("sha256:%064x", i)}}
		}
		_, _, err := s.CreateRun(ctx, record.Run{Name: "old", Spec: []byte(`{"prompts":"` + fmt.Sprintf("sha256:%064x", 1) + `"}`), Splits: splits(2)})
		require.NoError(t, err)
		_, _, err = s.CreateRun(ctx, record.Run{Name: "refused", Status: record.Refused, ExecutionID: "one"})
		require.NoError(t, err)
		before := names(t, s, "old", 10)
		known, err := s.FilesOfOthers(ctx, "demo")
		require.NoError(t, err)
		require.Subset(t, allNamed(known), append(before, fmt.Sprintf("sha256:%064x", 1), fmt.Sprintf("sha256:%064x", 2)))
		manifests, at, err := s.KeptManifests(ctx)
		require.NoError(t, err)
		require.ElementsMatch(t, []string{before[1], before[7]}, manifests)

		since := func() (files []string) {
			require.NoError(t, s.WhileOthersNeed(ctx, "demo", known.At, func(f record.NamedFiles) error { files = allNamed(f); return nil }))
			return files
		}
		// Rows of small tables are read again, and those of PostgreSQL's last transactions.
		unread := []string{before[0], before[1], before[2], before[3], before[4], before[5], before[6], fmt.Sprintf("sha256:%064x", 1)}
		require.Eventually(t, func() bool { // other tests have transactions of the same server open
			known, err = s.FilesOfOthers(ctx, "demo")
			require.NoError(t, err)
			_, at, err = s.KeptManifests(ctx)
			require.NoError(t, err)
			read := since()
			require.NoError(t, s.WhileUnchanged(ctx, at, func(f []string) error { read = append(read, f...); return nil }))
			return !slices.ContainsFunc(unread, func(digest string) bool { return slices.Contains(read, digest) })
		}, time.Minute, 20*time.Millisecond)

		added := names(t, s, "old", 20)
		require.Subset(t, since(), added)
		_, _, err = s.CreateRun(ctx, record.Run{Name: "new", Spec: []byte(`{"prompts":"` + fmt.Sprintf("sha256:%064x", 3) + `"}`), Splits: splits(4)})
		require.NoError(t, err)
		_, _, err = s.CreateRun(ctx, record.Run{Name: "refused", ExecutionID: "two", Spec: []byte(`{"prompts":"` + fmt.Sprintf("sha256:%064x", 5) + `"}`)})
		require.NoError(t, err)
		require.NoError(t, s.SetSplits(ctx, "old", splits(6)))
		for i := 3; i <= 6; i++ {
			require.Contains(t, since(), fmt.Sprintf("sha256:%064x", i))
		}
		for _, digest := range unread[:7] { // PostgreSQL writes the whole row of a run anew
			require.NotContains(t, since(), digest)
		}
		_, _, err = s.PutVersion(ctx, model.Version{VersionID: model.VersionID{Run: "demo", Policy: "main"}, Manifest: fmt.Sprintf("sha256:%064x", 7), Weights: "w"})
		require.NoError(t, err)
		require.NotContains(t, since(), fmt.Sprintf("sha256:%064x", 7), "it is of the run itself")
		var kept []string
		require.NoError(t, s.WhileUnchanged(ctx, at, func(f []string) error { kept = f; return nil }))
		require.Subset(t, kept, []string{added[1], added[7], fmt.Sprintf("sha256:%064x", 7)})
		require.NotContains(t, kept, before[1])
	})
}

// SQLite gives the number of a removed row to the next one.
func TestARowThatTookTheNumberOfARemovedOneIsNew(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		ctx := t.Context()
		for _, name := range []string{"old", "next"} {
			_, _, err := s.CreateRun(ctx, record.Run{Name: name, ExecutionID: "x"})
			require.NoError(t, err)
		}
		gone := endedRun(t, s, "gone")
		names(t, s, "old", 10)
		names(t, s, "gone", 20)
		known, err := s.FilesOfOthers(ctx, "demo")
		require.NoError(t, err)
		_, _, err = s.BeginForgetting(ctx, gone, record.Forgotten{Run: "gone", What: record.ForgottenRun, By: "me"})
		require.NoError(t, err)
		require.NoError(t, s.RemoveRows(ctx, "gone"))
		added := names(t, s, "next", 30)
		require.NoError(t, s.WhileOthersNeed(ctx, "demo", known.At, func(f record.NamedFiles) error {
			require.Subset(t, allNamed(f), added)
			return nil
		}))
	})
}
