package backup

import (
	"context"
	"errors"
	"fmt"

	"github.com/fulgurite/fulgurite/store"
	"github.com/fulgurite/fulgurite/store/blob"
)

// neededFiles are the blobs without which a store is not complete, read before.
type neededFiles []store.NeededFile

// NeededFiles calls visit with each of them.
func (n neededFiles) NeededFiles(_ context.Context, visit func(store.NeededFile) error) error {
	for _, f := range n {
		if err := visit(f); err != nil {
			return err
		}
	}
	return nil
}

// missingNow returns a blob that the store at an address needs now and that is not in its
// directory.
func missingNow(ctx context.Context, address string, b *blob.Store) (_ *store.NeededFile, err error) {
	s, err := store.Open(ctx, address, nil)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	return Missing(ctx, s, b)
}

// Missing returns a blob that a store needs and that is not in a directory of blobs, nil if
// it has all. Others may work on both.
func Missing(ctx context.Context, s *store.Store, b *blob.Store) (*store.NeededFile, error) {
	return findMissing(ctx, s, b, func(context.Context) error { return nil })
}

// findMissing is Missing with a function that is called for each blob.
func findMissing(ctx context.Context, s *store.Store, b *blob.Store, each func(context.Context) error) (*store.NeededFile, error) {
	var last *store.NeededFile
	for {
		missing, err := firstMissing(ctx, s, b, func(digest string) (bool, error) {
			if err := each(ctx); err != nil {
				return false, err
			}
			return b.Has(ctx, digest)
		})
		if err != nil || missing == nil {
			return nil, err
		}
		// A file that is collected is marked on record before it is removed. So what is needed
		// in a later search, too, is not one that was collected after its row was read.
		if last != nil && last.Digest == missing.Digest {
			return missing, nil
		}
		last = missing
	}
}

// errMissing ends a search.
var errMissing = errors.New("missing")

// firstMissing returns the first blob that a store needs and that has does not know.
func firstMissing(ctx context.Context, s interface {
	NeededFiles(ctx context.Context, visit func(store.NeededFile) error) error
}, b *blob.Store, has func(digest string) (bool, error)) (*store.NeededFile, error) {
	var missing store.NeededFile
	err := s.NeededFiles(ctx, func(f store.NeededFile) error {
		digests := []string{f.Digest}
		if ok, err := has(f.Digest); err != nil {
			return err
		} else if f.Manifest && ok {
			text, err := b.Get(ctx, f.Digest)
			if err != nil {
				return fmt.Errorf("read the manifest of %s: %w", f.For, err)
			}
			digests = append(digests, named(text, f.Batch)...)
		}
		for _, digest := range digests {
			ok, err := has(digest)
			if err != nil {
				return err
			}
			if !ok {
				missing = store.NeededFile{Digest: digest, For: f.For}
				return errMissing
			}
		}
		return nil
	})
	if errors.Is(err, errMissing) {
		return &missing, nil
	}
	return nil, err
}
