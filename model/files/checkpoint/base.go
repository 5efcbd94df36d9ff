package checkpoint

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/hf"
	"github.com/fulgurite/fulgurite/model/half"
)

// Matrices in Q8_0 are stored as arrays of bytes, in the blocks of GGUF. The array's name
// is the matrix's name and quantSuffix.
const (
	quantSuffix = ".q8_0"
	quantBytes  = 2 + half.QuantBlock // of a block: its factor in F16, and its numbers
)

// SaveBase stores the weights of a policy, rounded to precision, as the base that the
// adapters of all versions share. It asks tensor for one tensor at a time. Saving equal
// weights again stores nothing.
func SaveBase(ctx context.Context, blobs Blobs, a model.Architecture, precision model.Precision, tensor func(name string) (model.Tensor, error)) (*model.Base, error) {
	if err := a.CheckPolicy(); err != nil {
		return nil, err
	}
	if err := precision.Check(a); err != nil {
		return nil, err
	}
	var layouts []hf.Layout
	for _, t := range a.Tensors() {
		layouts = append(layouts, baseLayout(t, precision))
	}
	f, err := writeFile(ctx, blobs, model.WeightsFile, func(w io.Writer) error {
		return hf.WriteTensors(w, layouts, map[string]string{"format": "pt"}, func(l hf.Layout, w io.Writer) error {
			t, err := tensor(strings.TrimSuffix(l.Name, quantSuffix))
			if err != nil {
				return err
			}
			if want := baseLayout(t, precision); !slices.Equal(want.Shape, l.Shape) || len(t.Data) != t.Size() {
				return fmt.Errorf("%w: tensor %s is %v with %d numbers, in its file %v", model.ErrArchitecture, t.Name, t.Shape, len(t.Data), l.Shape)
			}
			return writeBaseTensor(w, l, t)
		})
	})
	if err != nil {
		return nil, err
	}
	return newBase(ctx, blobs, a, f), nil
}

// baseLayout returns the layout of a tensor in the file of a base.
func baseLayout(t model.Tensor, precision model.Precision) hf.Layout {
	l := hf.Layout{Name: t.Name, DType: hf.F32, Shape: t.Shape}
	switch {
	case len(t.Shape) < 2 || precision == model.F32:
	case precision == model.BF16:
		l.DType = hf.BF16
	default:
		l.Name, l.DType, l.Shape = t.Name+quantSuffix, hf.U8, []int{t.Shape[0], t.Shape[1] / half.QuantBlock * quantBytes}
	}
	return l
}

// writeBaseTensor writes some numbers at a time.
func writeBaseTensor(w io.Writer, l hf.Layout, t model.Tensor) error {
	const some = 1 << 14
	var b []byte
	for x := range slices.Chunk(t.Data, some) {
		b = b[:0]
		if l.DType == hf.U8 {
			for block := range slices.Chunk(x, half.QuantBlock) {
				b = appendQuantized(b, block)
			}
		} else {
			var err error
			if b, err = l.DType.AppendFloats(b, x); err != nil {
				return err
			}
		}
		if _, err := w.Write(b); err != nil {
			return err
		}
	}
	return nil
}

// appendQuantized appends a block. If a number is not finite, the block's factor is not
// finite either, and reading the base reports it.
func appendQuantized(b []byte, x []float32) []byte {
	var block [half.QuantBlock]int8
	factor := half.Quantize(&block, x)
	for _, v := range x {
		if v != v {
			factor = v
		}
	}
	b = binary.LittleEndian.AppendUint16(b, half.ToF16(factor))
	for _, q := range block {
		b = append(b, byte(q))
	}
	return b
}

// newBase returns the base whose weights are in f. They are read when an engine asks for
// them, which may be after ctx has ended.
func newBase(ctx context.Context, blobs Blobs, a model.Architecture, f model.File) *model.Base {
	ctx = context.WithoutCancel(ctx)
	a.ValueHead = false
	return &model.Base{
		Digest: f.Digest, Size: f.Size, Architecture: a,
		Each:   func(use func(model.Tensor) error) error { return eachOfBase(ctx, blobs, f, use) },
		Beside: func(name string) string { return blobs.Beside(f.Digest, name) },
	}
}

// eachOfBase reads a base a tensor at a time, and checks its digest on the way.
func eachOfBase(ctx context.Context, blobs Blobs, f model.File, use func(model.Tensor) error) error {
	content, size, err := blobs.Open(ctx, f.Digest)
	if err != nil {
		return fmt.Errorf("read the base: %w", err)
	}
	defer func() { _ = content.Close() }() // only read
	wrong := fmt.Errorf("it has %d bytes, its manifest says %d", size, f.Size)
	if size == f.Size {
		wrong = hf.EachArray(content, size, func(a hf.Array) error {
			t, err := baseTensor(a)
			if err != nil {
				return err
			}
			return use(t)
		})
	}
	// Read to the end even if the content makes no sense: a wrong digest is reported
	// before wrong content.
	if _, err := io.Copy(io.Discard, content); err != nil {
		return fmt.Errorf("read the base: %w", err)
	}
	if wrong != nil {
		return fmt.Errorf("%w: read the base: %w", ErrCorrupt, wrong)
	}
	return nil
}

// baseTensor returns the tensor that an array of a base's file holds.
func baseTensor(a hf.Array) (model.Tensor, error) {
	switch data := a.Data.(type) {
	case []float32:
		return model.Tensor{Name: a.Name, Shape: a.Shape, Data: data}, nil
	case []uint8:
		name, ok := strings.CutSuffix(a.Name, quantSuffix)
		if ok && len(a.Shape) == 2 && a.Shape[1]%quantBytes == 0 {
			t := model.Tensor{Name: name, Shape: []int{a.Shape[0], a.Shape[1] / quantBytes * half.QuantBlock}}
			t.Data = make([]float32, t.Size())
			dequantize(t.Data, data)
			return t, nil
		}
	}
	return model.Tensor{}, fmt.Errorf("array %s %v holds %T, want float32 or blocks of Q8_0", a.Name, a.Shape, a.Data)
}

func dequantize(to []float32, from []uint8) {
	for i := 0; len(from) > 0; i += half.QuantBlock {
		factor := half.FromF16(binary.LittleEndian.Uint16(from))
		if math.IsInf(float64(factor), 0) {
			factor = float32(math.NaN()) // so that the product with a zero is not finite either
		}
		for j, q := range from[2:quantBytes] {
			to[i+j] = float32(int8(q)) * factor
		}
		from = from[quantBytes:]
	}
}

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
