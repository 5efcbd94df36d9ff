package backup

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/fulgurite/fulgurite/store"
	"github.com/fulgurite/fulgurite/store/database"
)

// Places says where the parts of a stack's directory are.
type Places struct {
	Store    string // the store's SQLite file
	Temporal string // the SQLite file of the embedded Temporal server
	Blobs    string // the directory of blobs
}

func (p Places) kind() Kind { return KindStack }

func (p Places) address() string { return p.Store }

func (p Places) paths() []string { return []string{p.Store, p.Temporal} }

func (p Places) begin(ctx context.Context, in string) (moment, error) {
	err := database.CopyTogether(ctx, database.FileCopy{From: p.Store, To: filepath.Join(in, storeFile)}, database.FileCopy{From: p.Temporal, To: filepath.Join(in, temporalFile)})
	return copied(in), err
}

// copied is a directory that has the copies of both databases.
type copied string

// read also checks the copies.
func (in copied) read(ctx context.Context, m *Manifest) (_ neededFiles, err error) {
	for _, name := range []string{storeFile, temporalFile} {
		if err := database.CheckFile(ctx, filepath.Join(string(in), name)); err != nil {
			return nil, err
		}
	}
	s, err := store.Open(ctx, filepath.Join(string(in), storeFile), nil)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	return readStore(ctx, s, m)
}

func (copied) copy(context.Context, *Manifest) error { return nil }

func (copied) ping(context.Context) error { return nil }

func (copied) close() error { return nil }
