// Package retention deletes files that are no longer needed: weights, moments and
// canaries. There are three kinds of such files. First, those of versions that a run no
// longer keeps, according to training.keep; their rows, metrics and manifests stay, and
// the row records when the files were deleted. Second, whatever the spec says, those of
// saved updates from which no trainer continues any more. Third, files that were written
// for a version but never became part of one, because their writer died or the run
// failed. Among these is the base of a run that never had a version.
//
// # What is never deleted
//
// The package keeps:
//
//   - Version 0, which is the base of the other versions and the reference of a KL
//     penalty.
//   - The newest version, from which the next one is made, and those from which rollouts
//     of a run with a lag still sample.
//   - The promoted version and the one promoted before it, pinned or not.
//   - Versions to which a running attempt is bound, and those that wait for a decision.
//   - Files that a version of any run, or saved progress that counts, needs. Progress no
//     longer counts when later updates were saved or the version exists.
//   - The base of adapters, which version 0 names.
//
// If a run trains several policies, attempts, evaluations and promotions are recorded for
// the joint version. So the joint versions decide which numbers are needed, and each policy
// keeps the files of these numbers. If each policy is promoted alone, it also keeps its own
// promoted versions.
//
// # Why it is safe
//
// A version is marked first, and its files are deleted later. If a process dies in
// between, the next collection deletes the files. While a version is being marked, no
// version of the policy can be promoted, and a marked version can't be promoted at all. A
// joint version is marked before the versions of its policies. While files are deleted, no version can be recorded, and a version is recorded only if
// all of its files exist. So a run that makes the same weights at that moment either
// records its row first, which protects the files, or is told to write the files again.
//
// Superseded progress is noted in the transaction that supersedes it, and forgotten after
// its files were deleted, or when an equal run keeps the same: its files go with that. A process that saves equal updates at that moment may find them
// missing later, and then makes them again. Collecting twice at the same time, or again,
// changes nothing.
//
// A file with tensors is noted before it is stored, for the version for which it is
// written. The version's row removes the note. A file that is noted for a version that is
// being made is needed, however old it is. The version is no longer being made when it is
// recorded or its run has ended. An hour later the file is deleted, unless a manifest or
// another version that is being made needs it. If the run is retried then, or a process
// resumes that had been stopped, it writes the file again, or is told that the file is
// gone when it records its row.
//
// # Runs that have ended
//
// A [Forgetter] removes, at the request of a person, a run with all that only it has, or
// what one task left in runs, and it prunes runs: files of versions by a rule, and the
// bodies of calls. It touches no run under way. A tombstone is on record before anything is
// removed, so no run goes on or is computed again from what is gone, and an interrupted
// removal is ended by the next. While a file is removed, nothing can be put on record that
// would need it: runs and versions are recorded only if their files exist. What is found
// through something else goes before that, such as the files that a manifest names before
// the manifest.
//
// The package does not overwrite bytes on the disk, which is the store's task, and it knows
// Temporal only as [Histories].
//
// # In workflows
//
// A collection is part of the activity that records a step. It does not appear in the
// history of a workflow, so histories of earlier runs can still be replayed.
package retention

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"sync"
	"time"

	"github.com/fulgurite/fulgurite/internal/wait"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
)

// removalTarget is how long files are removed while others can't put versions on record.
const removalTarget = 20 * time.Millisecond

// settled is the default of Collector.Settled.
const settled = time.Hour

// Store is the part of a store that the collector needs.
type Store interface {
	Run(ctx context.Context, name string) (record.Run, error)
	Versions(ctx context.Context, run, policy string) ([]model.Version, error)
	MarkCollected(ctx context.Context, run, policy string, choose func(record.Holdings) []int) error
	KeptManifests(ctx context.Context) (manifests []string, at any, err error)
	WhileUnchanged(ctx context.Context, at any, f func(added []string) error) error
	Collectable(ctx context.Context, before time.Time) (superseded, abandoned bool, err error)
	CollectSuperseded(ctx context.Context, at any, f func(superseded, added []string) (done, kept []string, err error)) (left bool, err error)
	CollectAbandoned(ctx context.Context, before time.Time, at any, f func(abandoned, pending, added []string) (done []string, err error)) (left bool, err error)
}

// Blobs is the part of a blob store that the collector needs.
type Blobs interface {
	Get(ctx context.Context, digest string) ([]byte, error)
	Has(ctx context.Context, digest string) (bool, error)
	Remove(ctx context.Context, digest string) error
	// Sweep removes what killed writers left.
	Sweep() error
}

// Collector deletes files that are no longer needed. It is safe for concurrent use, and
// many processes may collect at the same time.
type Collector struct {
	Store Store
	Blobs Blobs
	// Settled is the least age of a file that was noted for a version which is no longer
	// being made, before the file is deleted; 0 means an hour. A writer that does not
	// know yet that the version is given up has ended by then.
	Settled time.Duration

	named   sync.Map // manifest → the digests in it; manifests never change
	configs sync.Map // manifest → the digest of its config, or ""
}

// Collect deletes files. If the run's spec has training.keep, it deletes those of the
// run's versions that are not needed, including files that an earlier collection left.
// For all runs, it deletes files of superseded progress, files that were written for a
// version and never became part of one, and what killed writers left.
func (c *Collector) Collect(ctx context.Context, run string) error {
	if err := c.collectVersions(ctx, run); err != nil {
		return fmt.Errorf("collect versions of run %s: %w", run, err)
	}
	if err := c.Blobs.Sweep(); err != nil {
		return err
	}
	return c.collectRest(ctx)
}

// collectRest deletes the files that belong to no version, of all runs. What manifests name is
// read before, because others wait while files are deleted.
func (c *Collector) collectRest(ctx context.Context) error {
	before := time.Now().Add(-cmp.Or(c.Settled, settled))
	superseded, abandoned, err := c.Store.Collectable(ctx, before)
	if err != nil || !superseded && !abandoned {
		return err // avoids a transaction for which others would wait
	}
	kept, needed, at, err := c.neededNow(ctx)
	if err != nil {
		return err
	}
	if superseded {
		err := whileLeft(ctx, func() (left bool, err error) {
			return c.Store.CollectSuperseded(ctx, at, func(superseded, added []string) (done, both []string, err error) {
				if err := c.addNamed(ctx, needed, added); err != nil {
					return nil, nil, err
				}
				// The files of these count as needed, because an equal run keeps the manifest, or
				// because it was superseded since. The next collection takes the latter.
				superseded = slices.DeleteFunc(superseded, func(manifest string) bool {
					if slices.Contains(kept, manifest) {
						both = append(both, manifest)
						return true
					}
					return false
				})
				done, err = inTime(superseded, func(manifest string) error {
					left, err := c.leftOf(ctx, []string{manifest})
					if err != nil {
						return err
					}
					return c.removeEach(ctx, taking(left), needed)
				})
				return done, both, err
			})
		})
		if err != nil {
			return fmt.Errorf("collect saved progress: %w", err)
		}
	}
	if !abandoned {
		return nil
	}
	err = whileLeft(ctx, func() (left bool, err error) {
		return c.Store.CollectAbandoned(ctx, before, at, func(abandoned, pending, added []string) (done []string, err error) {
			if err := c.addNamed(ctx, needed, added); err != nil {
				return nil, err
			}
			return inTime(abandoned, func(digest string) error {
				if needed[digest] || slices.Contains(pending, digest) {
					return nil
				}
				return c.Blobs.Remove(ctx, digest)
			})
		})
	})
	if err != nil {
		return fmt.Errorf("collect files of versions that were never made: %w", err)
	}
	return nil
}

// neededNow returns the manifests that are kept at a moment, and the files that they name.
func (c *Collector) neededNow(ctx context.Context) (kept []string, needed map[string]bool, at any, err error) {
	kept, at, err = c.Store.KeptManifests(ctx)
	if err != nil {
		return nil, nil, nil, err
	}
	needed = map[string]bool{}
	return kept, needed, at, c.addNamed(ctx, needed, kept)
}

// whileLeft calls f, for which others wait, until nothing is left. Between two calls it waits
// as long as the last one took, and others come first.
func whileLeft(ctx context.Context, f func() (left bool, err error)) error {
	for {
		began := time.Now()
		left, err := f()
		if err != nil || !left {
			return err
		}
		if !wait.For(ctx, time.Since(began)) {
			return context.Cause(ctx)
		}
	}
}

// inTime calls f with one name after the other, with at least one of them, until others have
// waited for long enough. It returns those for which it was called.
func inTime(names []string, f func(name string) error) (done []string, err error) {
	began := time.Now()
	for _, name := range names {
		if len(done) > 0 && time.Since(began) > removalTarget {
			break
		}
		if err := f(name); err != nil {
			return nil, err
		}
		done = append(done, name)
	}
	return done, nil
}

func (c *Collector) collectVersions(ctx context.Context, run string) error {
	r, err := c.Store.Run(ctx, run)
	if err != nil {
		return err
	}
	s, err := spec.Stored(r.Spec)
	if err != nil {
		return fmt.Errorf("its spec: %w", err)
	}
	if s.Training.Keep == nil {
		return nil
	}
	return c.collectUnder(ctx, run, s, *s.Training.Keep)
}

// collectUnder deletes the files of a run's versions that keep does not keep.
func (c *Collector) collectUnder(ctx context.Context, run string, s spec.Spec, keep spec.Keep) error {
	unneeded := func(h record.Holdings) []int { return Unneeded(h, keep, s.Training.Lag) }
	if err := c.collectPolicy(ctx, run, model.DefaultPolicy, unneeded); err != nil {
		return err
	}
	for _, policy := range s.CriticPolicies(model.DefaultPolicy) {
		if err := c.collectPolicy(ctx, run, model.CriticName(policy), unneeded); err != nil {
			return err
		}
	}
	if names := s.PolicyNames(); len(names) > 0 {
		return c.collectParts(ctx, run, names, keep)
	}
	return nil
}

// policiesOf returns the names under which a run has versions.
func policiesOf(r record.Run) ([]string, error) {
	s, err := spec.Stored(r.Spec)
	if err != nil {
		return nil, fmt.Errorf("spec of run %s: %w", r.Name, err)
	}
	names := append([]string{model.DefaultPolicy}, s.PolicyNames()...)
	for _, policy := range s.CriticPolicies(model.DefaultPolicy) {
		names = append(names, model.CriticName(policy))
	}
	return names, nil
}

// collectParts deletes files of the policies' versions with the numbers of the collected
// joint versions. A policy's version for which there is no joint version yet is needed, and so
// is one that is promoted alone.
func (c *Collector) collectParts(ctx context.Context, run string, policies []string, keep spec.Keep) error {
	joint, err := c.Store.Versions(ctx, run, model.DefaultPolicy)
	if err != nil {
		return err
	}
	collected := map[int]bool{}
	for _, v := range joint {
		collected[v.Number] = !v.Collected.IsZero()
	}
	for _, policy := range policies {
		err := c.collectPolicy(ctx, run, policy, func(h record.Holdings) []int {
			promoted := promotedVersions(h.Promotions, keep.Promoted) // none, unless it is promoted alone
			return slices.DeleteFunc(h.Versions, func(n int) bool { return !collected[n] || promoted[n] })
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// collectPolicy marks the versions of a policy that choose picks, and deletes the files of
// all that are marked.
func (c *Collector) collectPolicy(ctx context.Context, run, policy string, choose func(record.Holdings) []int) error {
	if err := c.Store.MarkCollected(ctx, run, policy, choose); err != nil {
		return err
	}
	return c.removeCollected(ctx, run, policy)
}

// removeCollected deletes the files of the collected versions of a policy, except for
// those that are needed otherwise.
func (c *Collector) removeCollected(ctx context.Context, run, policy string) error {
	versions, err := c.Store.Versions(ctx, run, policy)
	if err != nil {
		return err
	}
	var collected []string
	for _, v := range versions {
		if !v.Collected.IsZero() {
			collected = append(collected, v.Manifest)
		}
	}
	left, err := c.leftOf(ctx, collected)
	if err != nil || len(left) == 0 {
		return err
	}
	_, needed, at, err := c.neededNow(ctx)
	if err != nil {
		return err
	}
	return inTurns(ctx, left, func(next func() (digest string, ok bool)) error {
		return c.Store.WhileUnchanged(ctx, at, func(added []string) error {
			if err := c.addNamed(ctx, needed, added); err != nil {
				return err
			}
			return c.removeEach(ctx, next, needed)
		})
	})
}

// inTurns calls f until it has taken all digests by next. next returns no more of them when
// others have waited for long enough, and f is called again after a pause in which they come
// first. A transaction in f that runs once more goes on with the digests that follow, because
// removals of files are not taken back.
func inTurns(ctx context.Context, digests []string, f func(next func() (digest string, ok bool)) error) error {
	for len(digests) > 0 {
		taken, began := 0, time.Time{}
		err := f(func() (string, bool) {
			if began.IsZero() {
				began = time.Now()
			}
			if taken == len(digests) || taken > 0 && time.Since(began) > removalTarget {
				return "", false
			}
			taken++
			return digests[taken-1], true
		})
		if err != nil {
			return err
		}
		if digests = digests[taken:]; len(digests) > 0 {
			wait.For(ctx, time.Since(began))
		}
	}
	return nil
}

// addNamed adds what manifests name to the files that are needed.
func (c *Collector) addNamed(ctx context.Context, needed map[string]bool, manifests []string) error {
	for _, m := range manifests {
		digests, err := c.digests(ctx, m)
		if err != nil {
			return err // it might name any of them
		}
		for _, d := range digests {
			needed[d] = true
		}
	}
	return nil
}

// removeEach deletes the files that next returns, but for those that are needed.
func (c *Collector) removeEach(ctx context.Context, next func() (digest string, ok bool), needed map[string]bool) error {
	for digest, ok := next(); ok; digest, ok = next() {
		if needed[digest] {
			continue
		}
		if err := c.Blobs.Remove(ctx, digest); err != nil {
			return err
		}
	}
	return nil
}

// taking returns a function that returns one digest after the other.
func taking(digests []string) func() (digest string, ok bool) {
	return func() (digest string, ok bool) {
		if len(digests) == 0 {
			return "", false
		}
		digest, digests = digests[0], digests[1:]
		return digest, true
	}
}

// leftOf returns the files of manifests that still exist. It leaves out manifests and
// configs, which are kept: they are small, and show what existed. A lost manifest names
// no files, and neither does that of a joint version, whose files are those of its policies.
func (c *Collector) leftOf(ctx context.Context, manifests []string) (left []string, err error) {
	for _, manifest := range manifests {
		text, err := c.Blobs.Get(ctx, manifest)
		if errors.Is(err, record.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read manifest %s: %w", manifest, err)
		}
		m, err := model.ParseManifest(text)
		if errors.Is(err, model.ErrJoint) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("manifest %s: %w", manifest, err)
		}
		for name, f := range m.Files {
			if name == model.ConfigFile {
				continue
			}
			has, err := c.Blobs.Has(ctx, f.Digest)
			if err != nil {
				return nil, err
			}
			if has {
				left = append(left, f.Digest)
			}
		}
	}
	return left, nil
}

var digestForm = regexp.MustCompile(`sha256:[0-9a-f]{64}`)

// digests returns all digests that a manifest names, whatever its format. A manifest that
// does not exist names none: it belongs to progress whose state is lost.
func (c *Collector) digests(ctx context.Context, manifest string) ([]string, error) {
	if known, ok := c.named.Load(manifest); ok {
		return known.([]string), nil //nolint:forcetypeassert // nothing else is stored
	}
	text, err := c.Blobs.Get(ctx, manifest)
	if errors.Is(err, record.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read manifest %s: %w", manifest, err)
	}
	found := digestForm.FindAllString(string(text), -1)
	c.named.Store(manifest, found)
	return found, nil
}

// config returns the digest of the config that a manifest names, which stays when its
// version is collected. It is empty for a joint version, and for a manifest that does not
// exist.
func (c *Collector) config(ctx context.Context, manifest string) (string, error) {
	if known, ok := c.configs.Load(manifest); ok {
		return known.(string), nil //nolint:forcetypeassert // nothing else is stored
	}
	text, err := c.Blobs.Get(ctx, manifest)
	if errors.Is(err, record.ErrNotFound) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read manifest %s: %w", manifest, err)
	}
	m, err := model.ParseManifest(text)
	if err != nil && !errors.Is(err, model.ErrJoint) {
		return "", fmt.Errorf("manifest %s: %w", manifest, err)
	}
	digest := m.Files[model.ConfigFile].Digest
	c.configs.Store(manifest, digest)
	return digest, nil
}

// Unneeded returns the versions of a policy, by number, whose files may be deleted under
// keep. The rollouts of the run sample from versions up to lag steps behind.
func Unneeded(h record.Holdings, keep spec.Keep, lag int) []int {
	if len(h.Versions) == 0 {
		return nil
	}
	// While version n is the newest, rollouts of step n+1 sample from version n−lag or a
	// later one. Those of a step that is being replayed sample from one version earlier.
	newest := slices.Max(h.Versions)
	first := newest - max(keep.Last-1, lag+1)
	promoted := promotedVersions(h.Promotions, keep.Promoted)
	var out []int
	for _, n := range h.Versions {
		byNumber := n == 0 || n >= first || keep.Every > 0 && n%keep.Every == 0
		if byNumber || promoted[n] || slices.Contains(h.Undecided, n) || slices.Contains(h.InUse, n) {
			continue
		}
		out = append(out, n)
	}
	return out
}

// promotedVersions returns the promoted version and the one before it, or, if ever is
// true, all that were ever promoted.
func promotedVersions(moves []record.Promotion, ever bool) map[int]bool {
	out := map[int]bool{}
	for i, p := range moves {
		if ever || i == len(moves)-1 {
			out[p.Version], out[p.Previous] = true, true
		}
	}
	return out
}
