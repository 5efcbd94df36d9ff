package fleet

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"

	"github.com/fulgurite/fulgurite/internal/shell"
	"github.com/fulgurite/fulgurite/store"
)

// CheckBlobs refuses a directory of blobs that is not that of the store. A process with
// another directory would wait for ever for what lies in the right one. A store that has
// no id yet has no directory yet.
func (r Records) CheckBlobs(ctx context.Context) error {
	if r.Store.Ready(ctx) != nil {
		return nil // the error comes again where tables are needed
	}
	id, err := r.Store.ID(ctx)
	if err != nil || id == "" {
		return err
	}
	owner, err := r.Blobs.Owner()
	switch {
	case err != nil:
		return err
	case owner == id:
		return nil
	case owner == "":
		return fmt.Errorf("%w with this directory of blobs: %s has no file %q with the store's id: name the directory that the store's processes share (--blobs, FULGURITE_BLOBS), or mount it; "+
			"if its blobs are lost, or are these, `echo %s > %s` says so", store.ErrUnusable, r.Blobs.Directory(), "store", id, shell.Quote(r.Blobs.Directory()+"/store"))
	}
	return fmt.Errorf("%w with this directory of blobs: %s has the blobs of another store (%s, and this one is %s): name the directory that the store's processes share (--blobs, FULGURITE_BLOBS)",
		store.ErrUnusable, r.Blobs.Directory(), owner, id)
}

// Migrate makes the tables of an empty store and pairs it with the directory of blobs. A
// new store takes over a directory that holds blobs only if the directory is its own, as
// that of a stack is: then the store before it was lost.
func (r Records) Migrate(ctx context.Context, own bool) error {
	if err := r.Store.Migrate(ctx); err != nil {
		return err
	}
	id, err := r.Store.ID(ctx)
	if err != nil {
		return err
	}
	if id != "" {
		return r.CheckBlobs(ctx)
	}
	if err := r.Blobs.Claim(rand.Text()); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	owner, err := r.Blobs.Owner()
	if err != nil {
		return err
	}
	empty, err := r.Blobs.Empty()
	if err != nil {
		return err
	}
	if !own && !empty {
		return fmt.Errorf("%w with this directory of blobs: %s has blobs, and the store is new: name an empty directory (--blobs, FULGURITE_BLOBS), or the store that these blobs belong to",
			store.ErrUnusable, r.Blobs.Directory())
	}
	return r.Store.SetID(ctx, owner)
}
