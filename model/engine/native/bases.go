package native

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"weak"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/engine/native/kernel"
	"github.com/fulgurite/fulgurite/model/engine/native/memory"
	"github.com/fulgurite/fulgurite/model/engine/native/packed"
)

// bases keeps the weights that adapters share, prepared once for all trainers and
// decoders of an engine.
type bases struct {
	mu sync.Mutex
	// prepared holds the bases in use. last is the base that was acquired last. It stays
	// even while it is not in use, because callers close a trainer before they make its
	// successor.
	prepared map[baseKey]weak.Pointer[base]
	last     *base
}

// baseKey holds everything that a prepared base depends on.
type baseKey struct {
	digest    string
	precision model.Precision
}

// base is a frozen policy. What its slices hold never changes.
type base struct{ parameters }

// acquire returns a prepared copy of b, whose matrices are held in the given precision.
// The copy lives as long as it is referenced.
func (s *bases) acquire(b *model.Base, precision model.Precision) (*base, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := baseKey{b.Digest, precision}
	prepared := s.prepared[key].Value()
	if prepared == nil {
		p, err := prepare(b, precision)
		if err != nil {
			return nil, fmt.Errorf("base %s: %w", b.Digest, err)
		}
		prepared = &base{*p}
		runtime.AddCleanup(prepared, func(held *memory.Floats) { held.Free() }, prepared.held)
	}
	s.keep(key, prepared)
	return prepared, nil
}

// leastMapped is how many numbers a base must have to be kept in a file. A smaller one
// costs each process so little that a file is not worth it.
const leastMapped = 1 << 18

// packedLayout names the order of numbers in memory. Its number is raised whenever that
// order changes.
const packedLayout = "panels/1"

// prepare maps a base from the packed file next to it, or reads the base one tensor at a
// time.
func prepare(b *model.Base, precision model.Precision) (*parameters, error) {
	l := newLayout(b.Architecture)
	n := parts(l, precision).numbers()
	fill := func(numbers []float32) error { return parametersIn(numbers, l, precision).read(b) }
	key := packed.Key{
		Base: b.Digest, Architecture: b.Architecture, Precision: precision, Numbers: n,
		Layout: fmt.Sprintf("%s of %d columns, blocks of %d", packedLayout, kernel.PanelWidth, kernel.QuantBlock),
	}
	path := ""
	if b.Beside != nil && n >= leastMapped {
		path = b.Beside(key.Name())
	}
	var files packed.Files
	held, err := files.Open(path, key, fill)
	if err != nil {
		return nil, err
	}
	p := parametersIn(held.Data(), l, precision)
	p.held = held
	return p, nil
}

// read fills p, which must be zero, with the weights of a base, one tensor at a time.
func (p *parameters) read(b *model.Base) error {
	want, place := b.Architecture.Tensors(), map[string]int{}
	for i, t := range want {
		place[t.Name] = i
	}
	err := b.Each(func(t model.Tensor) error {
		i, ok := place[t.Name]
		if !ok || !slices.Equal(t.Shape, want[i].Shape) || len(t.Data) != want[i].Size() {
			return fmt.Errorf("%w: tensor %s %v with %d numbers is not one of the architecture's, or is there twice", model.ErrArchitecture, t.Name, t.Shape, len(t.Data))
		}
		delete(place, t.Name)
		if err := t.CheckFinite(); err != nil {
			return err
		}
		p.put(p.tensors[i], t.Data)
		return nil
	})
	if err == nil && len(place) > 0 {
		err = fmt.Errorf("%w: %d tensors of the architecture are absent", model.ErrArchitecture, len(place))
	}
	return err
}

// PackedBytes returns the size of the packed file that is kept next to a base of this
// architecture and precision. It returns 0 if no such file is kept: for a small base, or
// where files can't be mapped.
func PackedBytes(a model.Architecture, precision model.Precision) int64 {
	n := parts(newLayout(a), precision).numbers()
	if n < leastMapped || !memory.MapsFiles {
		return 0
	}
	return packed.Size(int64(n))
}

// keep remembers b as the base that was acquired last, and forgets bases that are not in
// use any more.
func (s *bases) keep(key baseKey, b *base) {
	for d, p := range s.prepared {
		if p.Value() == nil {
			delete(s.prepared, d)
		}
	}
	if s.prepared == nil {
		s.prepared = map[baseKey]weak.Pointer[base]{}
	}
	s.prepared[key], s.last = weak.Make(b), b
}

// newPass makes the state that passes of c read.
func (e *Engine) newPass(c model.Checkpoint) (*pass, error) {
	if e.err != nil {
		return nil, e.err
	}
	if err := c.Architecture.Check(); err != nil {
		return nil, err
	}
	if err := c.Check(); err != nil {
		return nil, err
	}
	if err := checkTensors(c, c.Weights); err != nil {
		return nil, err
	}
	l := newLayout(c.Architecture)
	p := &pass{Set: e.kernels, angles: newRotary(l)}
	if !c.Architecture.ValueHead {
		c.Architecture.Unused.Each(func(first, last int) { p.unused = append(p.unused, [2]int{first, last}) })
	}
	if c.Adapter == nil {
		p.parameters = newParameters(l, c.Weights)
		return p, nil
	}
	shared, err := e.bases.acquire(c.Adapter.Base, c.Adapter.Precision())
	if err != nil {
		return nil, err
	}
	// A critic's layout places everything except the head where the layout of its base
	// does.
	p.base = shared
	p.parameters = &parameters{layout: l, weights: shared.weights, vectors: shared.vectors, panels: shared.panels, tied: shared.tied}
	at := newAdapterLayout(l, c.Adapter.LoRA)
	p.adapter = &adapter{adapterLayout: at, flat: make([]float32, at.size), packed: make([]float32, at.size)}
	at.read(p.adapter.flat, c.Weights)
	p.adapter.pack()
	return p, nil
}
