package hf

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fulgurite/fulgurite/model"
)

// Stored is a model directory whose weights stay in their files.
type Stored struct {
	Architecture model.Architecture
	// Config is the text of config.json.
	Config []byte
	// Layouts holds the tensors in the order of Architecture.Tensors.
	Layouts []Layout
	// Files names the files that hold the weights.
	Files []string

	open   []*os.File
	places map[string]place // by tensor name
}

// place is the location and the layout of a tensor's bytes.
type place struct {
	Layout
	file  *os.File
	begin int64
}

// OpenDirectory opens config.json and the weights, which are in model.safetensors or in
// the files of an index. It checks that these are the tensors of the architecture,
// without reading them. The caller has to close the result.
func OpenDirectory(dir string) (*Stored, error) {
	s := &Stored{}
	if err := s.openAll(dir); err != nil {
		return nil, errors.Join(fmt.Errorf("read model %s: %w", dir, err), s.Close())
	}
	return s, nil
}

func (s *Stored) openAll(dir string) (err error) {
	if s.Config, err = os.ReadFile(filepath.Join(dir, model.ConfigFile)); err != nil {
		return err
	}
	if s.Architecture, err = ReadConfig(s.Config); err != nil {
		return err
	}
	if s.Files, err = shards(dir); err != nil {
		return err
	}
	s.places = map[string]place{}
	for _, name := range s.Files {
		f, h, err := openFile(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		s.open = append(s.open, f)
		for _, e := range h.entries {
			if _, ok := s.places[e.name]; ok {
				return fmt.Errorf("%w: %s: tensor %s occurs twice", ErrFormat, name, e.name)
			}
			s.places[e.name] = place{e.layout(), f, h.data + e.Offsets[0]}
		}
	}
	return s.match()
}

// match checks the tensors against the architecture.
func (s *Stored) match() error {
	known := map[string]bool{}
	for _, want := range s.Architecture.Tensors() {
		p, ok := s.places[want.Name]
		switch {
		case !ok:
			return fmt.Errorf("%w: tensor %s is absent", ErrFormat, want.Name)
		case !slices.Equal(p.Shape, want.Shape):
			return fmt.Errorf("%w: tensor %s has shape %v, config.json makes it %v", ErrFormat, p.Name, p.Shape, want.Shape)
		case p.DType != F32 && p.DType != F16 && p.DType != BF16:
			return fmt.Errorf("%w: tensor %s holds %s, want F32, F16 or BF16", ErrFormat, p.Name, p.DType)
		}
		s.Layouts = append(s.Layouts, p.Layout)
		known[want.Name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(s.places)) {
		if !known[name] && !ignored(s.Architecture, name) {
			return fmt.Errorf("%w: tensor %s belongs to no part of the architecture", ErrFormat, name)
		}
	}
	return nil
}

// ignored reports whether a tensor is one that checkpoints contain without need: a copy
// of tied embeddings, or the rotary frequencies of old Llama files.
func ignored(a model.Architecture, name string) bool {
	return (a.Tied && name == "lm_head.weight") || strings.HasSuffix(name, ".rotary_emb.inv_freq")
}

func openFile(path string) (*os.File, header, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, header{}, err
	}
	stat, err := f.Stat()
	var h header
	if err == nil {
		h, err = readHeader(f, stat.Size())
	}
	if err != nil {
		return nil, header{}, errors.Join(fmt.Errorf("%s: %w", filepath.Base(path), err), f.Close())
	}
	return f, h, nil
}

func (e entry) layout() Layout {
	l := Layout{e.name, e.Dtype, make([]int, len(e.Shape))}
	for i, d := range e.Shape {
		l.Shape[i] = int(d)
	}
	return l
}

// CopyTensor writes the bytes of the tensor of that name as numbers of the type to.
func (s *Stored) CopyTensor(w io.Writer, name string, to DType) error {
	l, ok := s.places[name]
	if !ok {
		return fmt.Errorf("%w: tensor %s is absent", ErrFormat, name)
	}
	r := io.NewSectionReader(l.file, l.begin, l.Bytes())
	if to == l.DType {
		_, err := io.Copy(w, r)
		return err
	}
	raw, numbers, out := make([]byte, chunk), make([]float32, chunk/l.DType.width()), make([]byte, 0, 2*chunk)
	for left := l.Bytes(); left > 0; left -= int64(len(raw)) {
		raw = raw[:min(left, chunk)]
		if _, err := io.ReadFull(r, raw); err != nil {
			return err
		}
		some := numbers[:len(raw)/l.DType.width()]
		decodeFloats(l.DType, some, raw)
		var err error
		if out, err = to.AppendFloats(out[:0], some); err != nil {
			return err
		}
		if _, err := w.Write(out); err != nil {
			return err
		}
	}
	return nil
}

// Tensor reads the tensor of that name, widened to float32.
func (s *Stored) Tensor(name string) (model.Tensor, error) {
	p, ok := s.places[name]
	if !ok {
		return model.Tensor{}, fmt.Errorf("%w: tensor %s is absent", ErrFormat, name)
	}
	n, _ := p.size()
	t := model.Tensor{Name: name, Shape: p.Shape, Data: make([]float32, n)}
	raw, width := make([]byte, min(chunk, p.Bytes())), int64(p.DType.width())
	for at := int64(0); at < p.Bytes(); at += int64(len(raw)) {
		raw = raw[:min(int64(len(raw)), p.Bytes()-at)]
		if _, err := p.file.ReadAt(raw, p.begin+at); err != nil {
			return t, fmt.Errorf("read tensor %s: %w", name, err)
		}
		decodeFloats(p.DType, t.Data[at/width:], raw)
	}
	return t, nil
}

// DifferentTensor returns the name of a tensor that differs between two model
// directories, and "" if none does. Numbers of different types are the same if they are
// equal once widened.
func DifferentTensor(one, other string) (name string, err error) {
	a, err := os.Stat(one)
	if err != nil {
		return "", err
	}
	if b, err := os.Stat(other); err != nil || os.SameFile(a, b) {
		return "", err
	}
	x, err := OpenDirectory(one)
	if err != nil {
		return "", err
	}
	defer func() { _ = x.Close() }() // only read
	y, err := OpenDirectory(other)
	if err != nil {
		return "", err
	}
	defer func() { _ = y.Close() }() // only read
	for _, l := range x.Layouts {
		if place, ok := y.places[l.Name]; !ok || !slices.Equal(place.Shape, l.Shape) {
			return l.Name, nil
		}
		s, err := x.Tensor(l.Name)
		if err != nil {
			return "", err
		}
		t, err := y.Tensor(l.Name)
		if err != nil {
			return "", err
		}
		if !slices.Equal(s.Data, t.Data) {
			return l.Name, nil
		}
	}
	if len(y.Layouts) > len(x.Layouts) { // such as biases
		return y.Layouts[slices.IndexFunc(y.Layouts, func(l Layout) bool { _, ok := x.places[l.Name]; return !ok })].Name, nil
	}
	return "", nil
}

// Close closes the files.
func (s *Stored) Close() error {
	var err error
	for _, f := range s.open {
		err = errors.Join(err, f.Close())
	}
	return err
}
