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

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/trace"
)

// settled is the default of Collector.Settled.
const settled = time.Hour

// Store is the part of a store that the collector needs.
type Store interface {
	Run(ctx context.Context, name string) (record.Run, error)
	Versions(ctx context.Context, run, policy string) ([]model.Version, error)
	MarkCollected(ctx context.Context, run, policy string, choose func(record.Holdings) []int) error
	WhileUnchanged(ctx context.Context, f func(manifests []string) error) error
	CollectSuperseded(ctx context.Context, f func(superseded, kept []string) error) error
	CollectAbandoned(ctx context.Context, before time.Time, f func(abandoned, pending, kept []string) error) error
}

// Blobs is the part of a blob store that the collector needs.
type Blobs interface {
	Get(ctx context.Context, digest string) ([]byte, error)
	Has(ctx context.Context, digest string) (bool, error)
	Remove(ctx context.Context, digest string) error
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

	named sync.Map // manifest → the digests in it; manifests never change
}

// Collect deletes files. If the run's spec has training.keep, it deletes those of the
// run's versions that are not needed, including files that an earlier collection left.
// For all runs, it deletes files of superseded progress, and files that were written for
// a version and never became part of one.
func (c *Collector) Collect(ctx context.Context, run string) error {
	if err := c.collectVersions(ctx, run); err != nil {
		return fmt.Errorf("collect versions of run %s: %w", run, err)
	}
	if err := c.Store.CollectSuperseded(ctx, func(superseded, kept []string) error {
		left, err := c.leftOf(ctx, superseded)
		if err != nil {
			return err
		}
		return c.remove(ctx, left, kept)
	}); err != nil {
		return fmt.Errorf("collect saved progress: %w", err)
	}
	if err := c.Store.CollectAbandoned(ctx, time.Now().Add(-cmp.Or(c.Settled, settled)), func(abandoned, pending, kept []string) error {
		unneeded := slices.DeleteFunc(abandoned, func(digest string) bool { return slices.Contains(pending, digest) })
		return c.remove(ctx, unneeded, kept)
	}); err != nil {
		return fmt.Errorf("collect files of versions that were never made: %w", err)
	}
	return nil
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
	policies := []string{model.DefaultPolicy}
	if s.Critic != nil {
		policies = append(policies, model.CriticPolicy)
	}
	for _, policy := range policies {
		err := c.Store.MarkCollected(ctx, run, policy, func(h record.Holdings) []int {
			return Unneeded(h, *s.Training.Keep, s.Training.Lag)
		})
		if err == nil {
			err = c.removeCollected(ctx, run, policy)
		}
		if err != nil {
			return err
		}
	}
	return nil
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
	return c.Store.WhileUnchanged(ctx, func(kept []string) error { return c.remove(ctx, left, kept) })
}

// remove deletes files, but for those that a kept manifest names.
func (c *Collector) remove(ctx context.Context, files, kept []string) error {
	if len(files) == 0 {
		return nil
	}
	needed := map[string]bool{}
	for _, m := range kept {
		digests, err := c.digests(ctx, m)
		if err != nil {
			return err // it might name any of them
		}
		for _, d := range digests {
			needed[d] = true
		}
	}
	for _, digest := range files {
		if needed[digest] {
			continue
		}
		if err := c.Blobs.Remove(ctx, digest); err != nil {
			return err
		}
	}
	return nil
}

// leftOf returns the files of manifests that still exist. It leaves out manifests and
// configs, which are kept: they are small, and show what existed. A lost manifest names
// no files.
func (c *Collector) leftOf(ctx context.Context, manifests []string) (left []string, err error) {
	for _, manifest := range manifests {
		text, err := c.Blobs.Get(ctx, manifest)
		if errors.Is(err, trace.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read manifest %s: %w", manifest, err)
		}
		m, err := model.ParseManifest(text)
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
	if errors.Is(err, trace.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read manifest %s: %w", manifest, err)
	}
	found := digestForm.FindAllString(string(text), -1)
	c.named.Store(manifest, found)
	return found, nil
}
