package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/store/database"
)

const (
	markCollected = `UPDATE versions SET collected = $4 WHERE run = $1 AND policy = $2 AND number = $3 AND collected = 0`
	// Running attempts may request the version to which they are bound. Conversations stay
	// open for ever; one whose version is gone goes on with another.
	// With the condition of the index attempts_cut_off, SQLite reads open attempts only.
	versionsInUse = `SELECT DISTINCT version FROM attempts WHERE run = $1 AND policy = $2 AND outcome = '' AND outcome IN ('', 'infra_fault') AND kind <> 'served'`

	selectCollected = `SELECT number FROM versions WHERE run = $1 AND policy = $2 AND collected <> 0 ORDER BY number`

	selectSuperseded = `SELECT manifest FROM superseded ORDER BY manifest`
	deleteSuperseded = `DELETE FROM superseded WHERE manifest = $1`
	// An index on manifests would be written with each version, and this is read rarely.
	selectKept = `SELECT manifest FROM versions WHERE collected = 0 AND manifest IN (%[1]s) UNION SELECT manifest FROM progress WHERE manifest IN (%[1]s)`

	insertPending = `INSERT INTO pending_files (run, policy, number, digest, noted) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (run, policy, number, digest) DO UPDATE SET noted = excluded.noted`
	deletePending = `DELETE FROM pending_files WHERE run = $1 AND policy = $2 AND number = $3 AND digest = $4`

	// isAbandoned is true for a pending file f if it was noted before a time and its
	// version is no longer being made, because the version is on record, or the run has
	// ended or was forgotten.
	isAbandoned = `f.noted < $1 AND (EXISTS (SELECT 1 FROM versions v WHERE v.run = f.run AND v.policy = f.policy AND v.number = f.number)
OR NOT EXISTS (SELECT 1 FROM runs r WHERE r.name = f.run AND r.status = 'running'))`
	selectAbandoned = `SELECT run, policy, number, digest FROM pending_files f WHERE ` + isAbandoned + ` ORDER BY digest, run, policy, number`
	deleteArchived  = `DELETE FROM pending_files AS f WHERE ` + isAbandoned + ` AND EXISTS (SELECT 1 FROM archives a WHERE a.digest = f.digest AND a.removed = 0)`
	selectPending   = `SELECT DISTINCT digest FROM pending_files f WHERE NOT (` + isAbandoned + `)`
)

// maxCollected is how many manifests or files one transaction is about: far more than are
// deleted in the time that others may wait.
const maxCollected = 64

// MarkCollected records that the files of some versions of a policy are deleted: the
// versions that choose picks from the policy's holdings. While choose runs, no version of
// the policy can be promoted. The rows stay.
func (s *Store) MarkCollected(ctx context.Context, run, policy string, choose func(record.Holdings) []int) error {
	err := s.db.Write(ctx, database.SurvivesPowerLoss, func(t database.Tx) error {
		if _, _, err := lockPointer(t, run, policy); err != nil {
			return err
		}
		h, err := holdings(t.Ctx, t, run, policy)
		if err != nil {
			return err
		}
		now := database.Nanos(time.Now())
		for _, number := range choose(h) {
			if _, err := t.Exec(markCollected, run, policy, number, now); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("mark versions of %s/%s as collected: %w", run, policy, err)
	}
	return nil
}

// Holdings returns what MarkCollected would give to its function. It changes nothing.
func (s *Store) Holdings(ctx context.Context, run, policy string) (record.Holdings, error) {
	h, err := holdings(ctx, s.db.Read(), run, policy)
	if err != nil {
		return h, fmt.Errorf("read what %s/%s holds: %w", run, policy, err)
	}
	return h, nil
}

// CollectedVersions returns the numbers of a policy's versions whose files were deleted,
// in ascending order.
func (s *Store) CollectedVersions(ctx context.Context, run, policy string) ([]int, error) {
	numbers, err := database.List(ctx, s.db.Read(), database.Scalar[int], selectCollected, run, policy)
	if err != nil {
		return nil, fmt.Errorf("list collected versions of %s/%s: %w", run, policy, err)
	}
	return numbers, nil
}

func holdings(ctx context.Context, q database.Querier, run, policy string) (h record.Holdings, err error) {
	versions, err := database.List(ctx, q, readVersion, selectVersions+` ORDER BY number`, run, policy)
	if err != nil {
		return h, err
	}
	for _, v := range versions {
		if v.Collected.IsZero() {
			h.Versions = append(h.Versions, v.Number)
		}
	}
	if h.Promotions, err = database.List(ctx, q, readPromotion, selectPromotions+` ORDER BY seq`, run, policy); err != nil {
		return h, err
	}
	evaluations, err := database.List(ctx, q, readEvaluation, selectEvaluations+` AND policy = $2 AND kind = 'gate'`, run, policy)
	if err != nil {
		return h, err
	}
	decisions, err := database.List(ctx, q, readDecision, selectDecisions, run, policy)
	if err != nil {
		return h, err
	}
	for _, e := range evaluations {
		decided := slices.ContainsFunc(decisions, func(d record.Decision) bool { return d.Candidate == e.Version }) ||
			slices.ContainsFunc(h.Promotions, func(p record.Promotion) bool { return p.Version == e.Version })
		if !decided {
			h.Undecided = append(h.Undecided, e.Version)
		}
	}
	h.InUse, err = database.List(ctx, q, database.Scalar[int], versionsInUse, run, policy)
	return h, err
}

// Collectable reports whether saved progress was superseded, and whether there are abandoned
// files that were noted before a time. It locks nothing.
func (s *Store) Collectable(ctx context.Context, before time.Time) (superseded, abandoned bool, err error) {
	progress, err := database.List(ctx, s.db.Read(), database.Scalar[string], selectSuperseded+` LIMIT 1`)
	if err != nil {
		return false, false, fmt.Errorf("read whether saved progress was superseded: %w", err)
	}
	files, err := database.List(ctx, s.db.Read(), readPendingFile, selectAbandoned+` LIMIT 1`, database.Nanos(before))
	if err != nil {
		return false, false, fmt.Errorf("read whether files were abandoned: %w", err)
	}
	return len(progress) > 0, len(files) > 0, nil
}

// CollectSuperseded calls f with manifests of saved progress, of any run, that was superseded;
// not with all, if there are many. f deletes the files of some, and returns which are done, and
// which were kept at the moment at, as those of versions or of other progress. The former are
// forgotten. So are the latter if they are kept still: their files go with what keeps them. left
// says that others remain; it is false if nothing was forgotten. A file is needed if a manifest
// names it that is kept: f knows those of the moment at from KeptManifests, and added are those
// that may have been put on record since; nil stands for the beginning. All of them stay on record
// until f returns, which should be within some milliseconds. If the collector dies within f, the
// next call repeats the same manifests.
func (s *Store) CollectSuperseded(ctx context.Context, at any, f func(superseded, added []string) (done, kept []string, err error)) (left bool, err error) {
	since, _ := at.(*moment)
	err = s.db.Write(ctx, database.SurvivesKill, func(t database.Tx) error {
		if t.ForUpdate != "" {
			if _, err := t.Exec(`LOCK TABLE versions, progress, superseded IN SHARE ROW EXCLUSIVE MODE`); err != nil {
				return err
			}
		}
		superseded, err := database.List(t.Ctx, t, database.Scalar[string], selectSuperseded+` LIMIT $1`, maxCollected)
		if err != nil || len(superseded) == 0 {
			left = false
			return err
		}
		added, err := manifestsAdded(t, since)
		if err != nil {
			return err
		}
		done, kept, err := f(superseded, added)
		if err != nil {
			return err
		}
		if kept, err = keptStill(t, kept); err != nil {
			return err
		}
		done = slices.Concat(done, kept)
		for _, manifest := range done {
			if _, err := t.Exec(deleteSuperseded, manifest); err != nil {
				return err
			}
		}
		left = len(done) > 0 && (len(done) < len(superseded) || len(superseded) == maxCollected)
		return nil
	})
	if err != nil {
		return false, fmt.Errorf("collect saved progress that was superseded: %w", err)
	}
	return left, nil
}

// keptStill returns those of some manifests that a version or saved progress keeps now.
func keptStill(t database.Tx, manifests []string) ([]string, error) {
	if len(manifests) == 0 {
		return nil, nil
	}
	places, args := make([]string, len(manifests)), make([]any, len(manifests))
	for i, manifest := range manifests {
		places[i], args[i] = fmt.Sprintf("$%d", i+1), manifest
	}
	return database.List(t.Ctx, t, database.Scalar[string], fmt.Sprintf(selectKept, strings.Join(places, ", ")), args...)
}

// manifestsAdded returns the manifests that are kept, as far as they may have been put on record
// since a moment.
func manifestsAdded(t database.Tx, since *moment) ([]string, error) {
	conditions, err := since.since(t)
	if err != nil {
		return nil, err
	}
	query, args := expand(manifestsSince, "", conditions)
	return database.List(t.Ctx, t, database.Scalar[string], query, args...)
}

// NoteFile records that a file is about to be kept for a version that is not on record
// yet, so that the file is found if its writer dies. A forgotten run is
// record.ErrForgotten.
func (s *Store) NoteFile(ctx context.Context, id model.VersionID, digest string) error {
	err := s.db.Write(ctx, database.SurvivesPowerLoss, func(t database.Tx) error {
		if err := refuseRemoved(t, id.Run); err != nil {
			return err
		}
		_, err := t.Exec(insertPending, id.Run, id.Policy, id.Number, digest, database.Nanos(time.Now()))
		return err
	})
	if err != nil {
		return fmt.Errorf("note file %s of version %s: %w", digest, id, err)
	}
	return nil
}

// pendingFile is a file that was noted for a version.
type pendingFile struct {
	version model.VersionID
	digest  string
}

func readPendingFile(row database.Scan) (f pendingFile, err error) {
	err = row(&f.version.Run, &f.version.Policy, &f.version.Number, &f.digest)
	return f, err
}

// CollectAbandoned calls f with the digests of files that were noted before a time for
// versions that are no longer being made; not with all, if there are many, and with a digest
// again for each version for which it was noted. f deletes some of the files, unless they are
// needed, and returns which digests are done. These are forgotten, and left says that others
// remain. If none is done, left is false. A file is needed if a kept manifest names it (added and at are as in
// CollectSuperseded), or if it is pending for a version that is being made. An archive that is
// on record is not among them. Until f returns, no version, progress, archive or file is
// recorded. If the collector dies within f, the next call repeats the same files.
func (s *Store) CollectAbandoned(ctx context.Context, before time.Time, at any, f func(abandoned, pending, added []string) (done []string, err error)) (left bool, err error) {
	since, _ := at.(*moment)
	until := database.Nanos(before)
	err = s.db.Write(ctx, database.SurvivesKill, func(t database.Tx) error {
		if t.ForUpdate != "" {
			if _, err := t.Exec(`LOCK TABLE versions, progress, archives, pending_files IN SHARE ROW EXCLUSIVE MODE`); err != nil {
				return err
			}
		}
		if _, err := t.Exec(deleteArchived, until); err != nil {
			return err
		}
		files, err := database.List(t.Ctx, t, readPendingFile, selectAbandoned+` LIMIT $2`, until, maxCollected)
		if err != nil || len(files) == 0 {
			left = false
			return err
		}
		pending, err := database.List(t.Ctx, t, database.Scalar[string], selectPending, until)
		if err != nil {
			return err
		}
		added, err := manifestsAdded(t, since)
		if err != nil {
			return err
		}
		abandoned := make([]string, len(files))
		for i, file := range files {
			abandoned[i] = file.digest
		}
		done, err := f(abandoned, pending, added)
		if err != nil {
			return err
		}
		forgotten := 0
		for _, file := range files {
			if !slices.Contains(done, file.digest) {
				continue
			}
			forgotten++
			if _, err := t.Exec(deletePending, file.version.Run, file.version.Policy, file.version.Number, file.digest); err != nil {
				return err
			}
		}
		left = forgotten > 0 && (forgotten < len(files) || len(files) == maxCollected)
		return nil
	})
	if err != nil {
		return false, fmt.Errorf("collect files that were abandoned: %w", err)
	}
	return left, nil
}

// recorded forgets that files of v were pending, since v's row protects them from now on.
func (s *Store) recorded(t database.Tx, v model.Version, named []string) error {
	for _, digest := range named {
		if _, err := t.Exec(deletePending, v.Run, v.Policy, v.Number, digest); err != nil {
			return err
		}
	}
	return nil
}

// Files reads blobs and reports which of them exist.
type Files interface {
	Get(ctx context.Context, digest string) ([]byte, error)
	Has(ctx context.Context, digest string) (bool, error)
}

// ErrFileGone means that a file of a version was collected, as a file of another version,
// before the version was on record. The version has to be made again.
var ErrFileGone = errors.New("a file of the version is gone")

// haveSplits returns ErrFileGone if the tasks of a split of r are not there. It runs within
// the transaction that adds r's row, which protects them from then on.
func (s *Store) haveSplits(ctx context.Context, r record.Run) error {
	if s.Files == nil {
		return nil
	}
	for kind, split := range r.Splits {
		if split.Digest == "" {
			continue
		}
		has, err := s.Files.Has(ctx, split.Digest)
		if err != nil {
			return err
		}
		if !has {
			return fmt.Errorf("%w: the tasks of split %s, %s", ErrFileGone, kind, split.Digest)
		}
	}
	return nil
}

// complete returns the digests of the files that v's manifest names, or an error if one
// is missing. The files of a joint version are the manifests of its policies: their rows
// protect what these name. complete runs within the transaction that adds v's row. WhileUnchanged waits for
// this transaction to end; after that, the row protects the files.
func (s *Store) complete(ctx context.Context, v model.Version) (named []string, err error) {
	if s.Files == nil {
		return nil, nil
	}
	text, err := s.Files.Get(ctx, v.Manifest)
	if err != nil {
		return nil, fmt.Errorf("read the manifest: %w", err)
	}
	if v.Scores != "" { // an equal run that was forgotten may have had the same
		switch has, err := s.Files.Has(ctx, v.Scores); {
		case err != nil:
			return nil, err
		case !has:
			return nil, fmt.Errorf("%w: %s", ErrFileGone, v.Scores)
		}
	}
	if joint, err := model.ParseJointManifest(text); err == nil {
		for _, part := range joint.Policies {
			named = append(named, part.Manifest)
		}
	} else {
		named = digestsIn.FindAllString(string(text), -1)
	}
	for _, digest := range named {
		switch has, err := s.Files.Has(ctx, digest); {
		case err != nil:
			return nil, err
		case !has:
			return nil, fmt.Errorf("%w: %s", ErrFileGone, digest)
		}
	}
	return named, nil
}
