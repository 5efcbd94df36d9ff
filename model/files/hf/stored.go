package hf

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fulgurite/fulgurite/internal/modeldir"
	"github.com/fulgurite/fulgurite/internal/textfile"
	"github.com/fulgurite/fulgurite/model"
)

// The names of the embedding and of the output layer.
const (
	inputLayer  = "model.embed_tokens.weight"
	outputLayer = "lm_head.weight"
)

// Stored is a model directory whose weights stay in their files.
type Stored struct {
	Architecture model.Architecture
	// Config is the text of config.json. If Untied, its tie_word_embeddings is false,
	// whatever the file says.
	Config []byte
	// Untied says that config.json ties the output layer to the embedding, but the files
	// hold an output layer with other numbers. The model is then read untied, as
	// transformers reads it.
	Untied bool
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
	if s.Config, err = textfile.Read(filepath.Join(dir, model.ConfigFile)); err != nil {
		return absent(dir, err)
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
			return absent(dir, err)
		}
		s.open = append(s.open, f)
		for _, e := range h.entries {
			if _, ok := s.places[e.name]; ok {
				return fmt.Errorf("%w: %s: tensor %s occurs twice", ErrFormat, name, e.name)
			}
			s.places[e.name] = place{e.layout(), f, h.data + e.Offsets[0]}
		}
	}
	if err := s.untie(); err != nil {
		return err
	}
	return s.match()
}

// untie makes the architecture untied if the files hold an output layer that is no copy of
// the embedding: a fine-tune that trained the layer saves both, and may leave config.json
// as it was.
func (s *Stored) untie() error {
	head, hasHead := s.places[outputLayer]
	table, hasTable := s.places[inputLayer]
	if !s.Architecture.Tied || s.Architecture.ValueHead || !hasHead || !hasTable {
		return nil
	}
	same, err := s.equal(head, table)
	if err != nil || same {
		return err
	}
	s.Architecture.Tied, s.Untied = false, true
	s.Config, err = untiedConfig(s.Config)
	return err
}

// untiedConfig returns a config.json whose output layer is not tied to the embedding.
func untiedConfig(text []byte) ([]byte, error) {
	fields := map[string]json.RawMessage{}
	if err := json.Unmarshal(model.StandardJSON(text), &fields); err != nil {
		return nil, fmt.Errorf("%w: config.json: %w", ErrFormat, err)
	}
	fields["tie_word_embeddings"] = json.RawMessage("false")
	text, err := json.MarshalIndent(fields, "", "  ")
	return append(text, '\n'), err
}

// equal reports whether two tensors hold the same numbers once they are widened.
func (s *Stored) equal(a, b place) (bool, error) {
	if !slices.Equal(a.Shape, b.Shape) || a.DType.width() == 0 || b.DType.width() == 0 {
		return false, nil
	}
	n, _ := a.size()
	const step = chunk / 8
	var raw [2][]byte
	var numbers [2][]float32
	for i := range raw {
		raw[i], numbers[i] = make([]byte, chunk), make([]float32, step)
	}
	for from := 0; from < n; from += step {
		some := min(step, n-from)
		for i, p := range []place{a, b} {
			width := p.DType.width()
			if _, err := p.file.ReadAt(raw[i][:some*width], p.begin+int64(from)*int64(width)); err != nil {
				return false, fmt.Errorf("read tensor %s: %w", p.Name, err)
			}
			decodeFloats(p.DType, numbers[i][:some], raw[i][:some*width])
		}
		if !slices.Equal(numbers[0][:some], numbers[1][:some]) {
			return false, nil
		}
	}
	return true, nil
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
	return (a.Tied && name == outputLayer) || strings.HasSuffix(name, ".rotary_emb.inv_freq")
}

// absent adds the way on to the error of a file of a model or an adapter that is not there.
func absent(dir string, err error) error {
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if instead := cmp.Or(modeldir.InsteadOfModel(dir), modeldir.InsteadOfAdapter(dir)); instead != "" {
		return fmt.Errorf("%w; %s", err, instead)
	}
	return err
}

// named returns the error of a file that is no safetensors file with the format that it has.
func named(f io.ReaderAt, err error) error {
	format, other := modeldir.NameFormat(f)
	switch {
	case err == nil || !other:
		return err
	case format.Remedy != "":
		return fmt.Errorf("%w: it is %s: %s", ErrFormat, format.Name, format.Remedy)
	}
	return fmt.Errorf("%w: it is %s, not safetensors", ErrFormat, format.Name)
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
		err = named(f, err)
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
	for _, l := range y.Layouts { // such as biases, or an output layer
		if !slices.ContainsFunc(x.Layouts, func(other Layout) bool { return other.Name == l.Name }) {
			return l.Name, nil
		}
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

// WriteEach writes a safetensors file of float32 tensors that each provides one at a
// time, in any order: it calls use for each tensor in want, whose Data is ignored. So
// only one tensor has to be in memory.
func WriteEach(f io.WriterAt, want model.Weights, each func(use func(model.Tensor) error) error) error {
	layouts, begin, end := make([]Layout, len(want)), map[string]int64{}, int64(0)
	shapes := map[string][]int{}
	for i, t := range want {
		layouts[i] = Layout{t.Name, F32, t.Shape}
		begin[t.Name], shapes[t.Name] = end, t.Shape
		end += layouts[i].Bytes()
	}
	text, err := encodeHeader(layouts, nil)
	if err != nil {
		return err
	}
	text = append(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text...)
	if _, err := f.WriteAt(text, 0); err != nil {
		return fmt.Errorf("write header: %w", err)
	}
	if err := each(func(t model.Tensor) error {
		at, ok := begin[t.Name]
		if !ok {
			return fmt.Errorf("%w: tensor %s belongs to no part of the architecture, or is there twice", ErrFormat, t.Name)
		}
		if !slices.Equal(t.Shape, shapes[t.Name]) || len(t.Data) != t.Size() {
			return fmt.Errorf("%w: tensor %s has shape %v and %d numbers, want %v", ErrFormat, t.Name, t.Shape, len(t.Data), shapes[t.Name])
		}
		delete(begin, t.Name)
		return writeFloats(io.NewOffsetWriter(f, int64(len(text))+at), t.Data)
	}); err != nil {
		return err
	}
	for name := range begin {
		return fmt.Errorf("%w: tensor %s is absent", ErrFormat, name)
	}
	return nil
}

// writeFloats converts and writes numbers in chunks.
func writeFloats(w io.Writer, numbers []float32) error {
	var b []byte
	for some := range slices.Chunk(numbers, chunk/4) {
		var err error
		if b, err = F32.AppendFloats(b[:0], some); err != nil {
			return err
		}
		if _, err := w.Write(b); err != nil {
			return err
		}
	}
	return nil
}

// A critic is stored as the class of transformers that classifies tokens, with one label.
// The head of that class is a linear layer with bias. Other trainers store critics in the
// same way.
const (
	choosesTokens    = "ForCausalLM"
	classifiesTokens = "ForTokenClassification"
)

// head holds the fields of a config.json that describe the layer on top of the trunk.
type head struct {
	Architectures []string          `json:"architectures"`
	IDToLabel     map[string]string `json:"id2label"`
	NumLabels     int               `json:"num_labels"`
}

func (h head) valueHead() (bool, error) {
	for _, class := range h.Architectures {
		if !strings.HasSuffix(class, classifiesTokens) {
			continue
		}
		const unsaid = 2 // transformers' default
		if n := cmp.Or(len(h.IDToLabel), h.NumLabels, unsaid); n != 1 {
			return false, fmt.Errorf("%w: config.json: %s with %d labels, want 1", ErrUnsupported, class, n)
		}
		return true, nil
	}
	return false, nil
}

// labels holds the outputs of a head in the form of transformers.
type labels struct {
	IDToLabel map[string]string `json:"id2label,omitempty"`
	LabelToID map[string]int    `json:"label2id,omitempty"`
}

// headOf returns the end of the class's name, and the labels.
func headOf(a model.Architecture) (string, labels) {
	if a.ValueHead {
		return classifiesTokens, labels{map[string]string{"0": "value"}, map[string]int{"value": 0}}
	}
	return choosesTokens, labels{}
}

// maxTwins is how many twins of a token are listed.
const maxTwins = 4

// Twins are the tokens whose rows of the output layer are the row of another token.
type Twins struct {
	Tokens []int32 // some of them, in ascending order
	Number int
}

// Twins returns, for each of the tokens, those other tokens that have the same row of the
// output layer, up to a hundredth of the row's length. A model gives such tokens the same
// probability whatever comes before, and an adapter of its other layers can't change that.
// Tokens that unused holds don't count, because nothing samples them.
func (s *Stored) Twins(tokens []int32, unused model.TokenRanges) (map[int32]Twins, error) {
	name := outputLayer
	if s.Architecture.Tied {
		name = inputLayer
	}
	p, ok := s.places[name]
	if !ok || len(p.Shape) != 2 || p.DType.width() == 0 {
		return nil, fmt.Errorf("%w: tensor %s is absent", ErrFormat, name)
	}
	rows, width := p.Shape[0], p.Shape[1]
	raw := make([]byte, width*p.DType.width())
	row := make([]float32, width)
	read := func(id int) error {
		if _, err := p.file.ReadAt(raw, p.begin+int64(id)*int64(len(raw))); err != nil {
			return fmt.Errorf("read tensor %s: %w", name, err)
		}
		decodeFloats(p.DType, row, raw)
		return nil
	}
	found, kept := map[int32]Twins{}, map[int32][]float32{}
	for _, id := range tokens {
		if id < 0 || int(id) >= rows {
			continue
		}
		if err := read(int(id)); err != nil {
			return nil, err
		}
		kept[id] = append([]float32{}, row...)
	}
	skip := make([]bool, rows)
	unused.Each(func(first, last int) {
		for id := first; id <= min(last, rows-1); id++ {
			skip[id] = true
		}
	})
	for id := range rows {
		if skip[id] || len(kept) == 0 {
			continue
		}
		if err := read(id); err != nil {
			return nil, err
		}
		for of, its := range kept {
			if int(of) != id && alike(its, row) {
				t := found[of]
				if t.Number++; len(t.Tokens) < maxTwins {
					t.Tokens = append(t.Tokens, int32(id))
				}
				found[of] = t
			}
		}
	}
	return found, nil
}

// alike reports whether two rows differ by less than a hundredth of their length.
func alike(a, b []float32) bool {
	const part = 16 // most rows differ already here
	difference, length := 0.0, 0.0
	for i, x := range a {
		d := float64(x) - float64(b[i])
		difference += d * d
		length += float64(x) * float64(x)
		if i == part && difference > 0.1*length {
			return false
		}
	}
	return difference <= 1e-4*length
}
