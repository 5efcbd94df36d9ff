package update

import (
	"context"
	"io"
	"sync/atomic"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/checkpoint"
)

// counted counts reads and writes of blobs as work. A small file counts as one piece, and
// each part of a stream counts as one.
type counted struct {
	checkpoint.Blobs
	work *atomic.Uint64
}

func (m *Maker) blobs() checkpoint.Blobs { return counted{m.Blobs, &m.work} }

// noted records, before it keeps a file of tensors, that the file belongs to a version.
type noted struct {
	counted
	versions Versions
	id       model.VersionID
}

var _ checkpoint.Noter = noted{}

func (m *Maker) noted(id model.VersionID) checkpoint.Blobs {
	return noted{counted{m.Blobs, &m.work}, m.Versions, id}
}

// Note implements checkpoint.Noter.
func (n noted) Note(ctx context.Context, digest string) error {
	return n.versions.NoteFile(ctx, n.id, digest)
}

func (c counted) Put(ctx context.Context, data []byte) (string, error) {
	defer c.work.Add(1)
	return c.Blobs.Put(ctx, data)
}

func (c counted) Get(ctx context.Context, digest string) ([]byte, error) {
	defer c.work.Add(1)
	return c.Blobs.Get(ctx, digest)
}

func (c counted) PutFrom(ctx context.Context, r io.Reader) (string, error) {
	defer c.work.Add(1)
	return c.Blobs.PutFrom(ctx, countedReader{r, c.work})
}

func (c counted) Open(ctx context.Context, digest string) (io.ReadCloser, int64, error) {
	content, size, err := c.Blobs.Open(ctx, digest)
	if err != nil {
		return nil, 0, err
	}
	return struct {
		io.Reader
		io.Closer
	}{countedReader{content, c.work}, content}, size, nil
}

type countedReader struct {
	io.Reader
	work *atomic.Uint64
}

func (r countedReader) Read(p []byte) (int, error) {
	defer r.work.Add(1)
	return r.Reader.Read(p)
}
