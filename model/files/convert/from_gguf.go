package convert

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/gguf"
	"github.com/fulgurite/fulgurite/model/files/hf"
)

// batch is about how many bytes of a tensor are converted at a time.
const batch = 1 << 18

// FromGGUF imports the model of a GGUF file into dir, which must be empty.
func FromGGUF(source, dir string, o Options) (Result, error) {
	f, err := os.Open(source)
	if err != nil {
		return Result{}, err
	}
	r, err := fromGGUF(f, dir, o)
	if err = errors.Join(err, f.Close()); err != nil {
		return Result{}, fmt.Errorf("import %s: %w", source, err)
	}
	return r, nil
}

func fromGGUF(source *os.File, dir string, o Options) (Result, error) {
	stat, err := source.Stat()
	if err != nil {
		return Result{}, err
	}
	f, err := gguf.Open(source, stat.Size())
	if err != nil {
		return Result{}, err
	}
	a, err := readArchitecture(f)
	if err != nil {
		return Result{}, err
	}
	r := Result{Architecture: a, Source: map[string]int{}}
	_, r.Copied = f.Find(outputLayer)
	r.Copied = r.Copied && a.Tied
	tensors, err := matchTensors(f, a)
	if err != nil {
		return r, err
	}
	v, err := readVocabulary(f.Metadata, a)
	if err != nil {
		return r, err
	}
	if err := v.write(dir); err != nil {
		return r, err
	}
	r.Template = v.template != ""
	var layouts []hf.Layout
	for _, t := range a.Tensors() {
		kind := tensors[t.Name].Type
		r.Source[kind.String()]++
		layouts = append(layouts, hf.Layout{Name: t.Name, Shape: t.Shape, DType: o.dtype(kind)})
	}
	kind, err := f.Metadata.String(architectureKey)
	if err != nil {
		return r, err
	}
	r.Bytes, err = o.weights(dir, layouts, func(l hf.Layout, w io.Writer) error {
		dim := 0
		if interleaved(kind, l.Name) {
			dim = a.HeadDim
		}
		return copyRows(w, tensors[l.Name], dim, l.DType)
	})
	if err != nil {
		return r, err
	}
	text, err := hf.WriteConfig(a)
	if err != nil {
		return r, err
	}
	changes := v.config()
	changes["torch_dtype"], changes["transformers_version"] = dtypeName(layouts), hf.LayoutVersion
	config, err := configWith(text, changes)
	if err != nil {
		return r, err
	}
	return r, createJSON(filepath.Join(dir, model.ConfigFile), config)
}

// dtype returns the type in which a tensor of type t is written.
func (o Options) dtype(t gguf.Type) hf.DType {
	switch {
	case o.DType != "":
		return o.DType
	case t == gguf.F16:
		return hf.F16
	case t == gguf.BF16:
		return hf.BF16
	}
	return hf.F32
}

// matchTensors finds the tensors of the architecture, by our names, and refuses others.
func matchTensors(f *gguf.File, a model.Architecture) (map[string]gguf.Tensor, error) {
	found, known := map[string]gguf.Tensor{}, map[string]bool{ropeFactors: true, outputLayer: a.Tied}
	for _, want := range a.Tensors() {
		name := nameOf(want.Name)
		t, ok := f.Find(name)
		if !ok {
			return nil, fmt.Errorf("%w: tensor %s is absent", ErrFormat, name)
		}
		if !slices.Equal(t.Shape, want.Shape) {
			return nil, fmt.Errorf("%w: tensor %s has shape %v, the metadata makes it %v", ErrFormat, name, t.Shape, want.Shape)
		}
		found[want.Name], known[name] = t, true
	}
	for _, t := range f.Tensors {
		if !known[t.Name] {
			return nil, fmt.Errorf("%w: tensor %s belongs to no part of the architecture", ErrUnsupported, t.Name)
		}
	}
	return found, nil
}

// copyRows writes a tensor's rows as numbers of type to. If dim is not 0, it is the
// number of rows of a head, and the rows are put into our order.
func copyRows(w io.Writer, t gguf.Tensor, dim int, to hf.DType) error {
	step := max(1, batch/t.RowBytes())
	if dim > 0 {
		step = 1
	}
	whole, numbers := make([]byte, step*t.RowBytes()), make([]float32, step*t.Width())
	var encoded []byte
	for first := 0; first < t.Rows(); first += step {
		n := min(step, t.Rows()-first)
		from := first
		if dim > 0 {
			from = rowInGGUF(first, dim)
		}
		raw := whole[:n*t.RowBytes()]
		if err := t.ReadRows(raw, from); err != nil {
			return err
		}
		if t.Type.String() != string(to) {
			t.Decode(numbers, raw)
			var err error
			if encoded, err = to.AppendFloats(encoded[:0], numbers[:n*t.Width()]); err != nil {
				return err
			}
			raw = encoded
		}
		if _, err := w.Write(raw); err != nil {
			return err
		}
	}
	return nil
}
