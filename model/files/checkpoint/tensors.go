package checkpoint

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/hf"
)

// writeTensors stores w as the file of that name, a tensor at a time: while one part
// of the file is hashed and written, the next is encoded.
func writeTensors(ctx context.Context, blobs Blobs, name string, w model.Weights) (model.File, error) {
	return writeFile(ctx, blobs, name, func(to io.Writer) error {
		return hf.WriteSafetensors(to, w, map[string]string{"format": "pt"})
	})
}

// Noter is implemented by Blobs that want to know the digest of each file of tensors
// before they keep it, so that the file can be found if its writer dies before anything
// names it.
type Noter interface {
	Note(ctx context.Context, digest string) error
}

// writeFile stores what write writes as the file of that name, as it is written.
func writeFile(ctx context.Context, blobs Blobs, name string, write func(io.Writer) error) (model.File, error) {
	r, pipe := io.Pipe()
	size, ended := counter{Writer: pipe}, make(chan struct{})
	write = noting(ctx, blobs, write)
	go func() {
		defer close(ended)
		pipe.CloseWithError(write(&size))
	}()
	digest, err := blobs.PutFrom(ctx, r)
	_ = r.Close() // ends a writer for which PutFrom did not wait; it returns no error
	<-ended
	if err != nil {
		return model.File{}, fmt.Errorf("store %s: %w", name, err)
	}
	return model.File{Digest: digest, Size: size.n}, nil
}

// noting returns a function that calls write and then gives the digest of what was
// written to blobs. Blobs can't have kept the file by then, since the stream ends only
// after that.
func noting(ctx context.Context, blobs Blobs, write func(io.Writer) error) func(io.Writer) error {
	noter, ok := blobs.(Noter)
	if !ok {
		return write
	}
	return func(w io.Writer) error {
		sum := sha256.New()
		if err := write(io.MultiWriter(w, sum)); err != nil {
			return err
		}
		return noter.Note(ctx, fmt.Sprintf("sha256:%x", sum.Sum(nil)))
	}
}

// counter counts the bytes that are written.
type counter struct {
	io.Writer
	n int64
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.Writer.Write(p)
	c.n += int64(n)
	return n, err
}

// readTensors reads a file of a version a tensor at a time, and checks its digest on
// the way.
func readTensors(ctx context.Context, blobs Blobs, m model.Manifest, name string) (model.Weights, error) {
	f, ok := m.Files[name]
	if !ok {
		return nil, fmt.Errorf("%w: version %d has no %s", ErrCorrupt, m.Number, name)
	}
	return readFileTensors(ctx, blobs, f, fmt.Sprintf("%s of version %d", name, m.Number))
}

// readFileTensors reads the tensors of f. Errors name the file as what.
func readFileTensors(ctx context.Context, blobs Blobs, f model.File, what string) (model.Weights, error) {
	content, size, err := blobs.Open(ctx, f.Digest)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", what, err)
	}
	defer func() { _ = content.Close() }() // only read
	var tensors model.Weights
	wrong := fmt.Errorf("it has %d bytes, its manifest says %d", size, f.Size)
	if size == f.Size {
		tensors, _, wrong = hf.StreamSafetensors(content, size)
	}
	// Read to the end even if the content makes no sense: a wrong digest is reported
	// before wrong content.
	if _, err := io.Copy(io.Discard, content); err != nil {
		return nil, fmt.Errorf("read %s: %w", what, err)
	}
	if wrong != nil {
		return nil, fmt.Errorf("%w: read %s: %w", ErrCorrupt, what, wrong)
	}
	return tensors, nil
}
