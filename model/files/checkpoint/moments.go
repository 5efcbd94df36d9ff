package checkpoint

import (
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/hf"
)

// momentsFormat names the layout of model.Optimizer8File; docs/formats.md describes it.
const momentsFormat = "fulgurite.moments/1"

const (
	scalesSuffix = ".scales"
	blockSize    = 256  // numbers of a row that share a scale
	leastCoded   = 4096 // a tensor of fewer numbers, or of rank 1, stays in F32
	decades      = 7
)

// codes holds the values of the byte codes of a moment, relative to the largest number of
// their block. Each decade below 1 has half as many values as the one above, as in the
// dynamic data type of Dettmers et al. (arXiv:2110.02861). A variance has no sign, and
// its codes represent its square root.
type codes struct {
	numbers []float32 // ascending
	signed  bool
}

func newCodes(signed bool) codes {
	most := decades
	if signed {
		most--
	}
	rising, power := make([][]float32, decades), 1.0
	for d := range decades {
		count := 1 << (most - d)
		for k := range count {
			rising[d] = append(rising[d], float32((0.1+0.9*float64(k+1)/float64(count))/power))
		}
		power *= 10
	}
	slices.Reverse(rising)
	positive := slices.Concat(rising...)
	c := codes{signed: signed}
	if signed {
		for i := len(positive) - 1; i >= 0; i-- {
			c.numbers = append(c.numbers, -positive[i])
		}
	}
	c.numbers = append(append(c.numbers, 0), positive...)
	return c
}

// nearest returns the code of the number that is nearest to x. Without a sign only x = 0
// gets the code of 0, since steps divide by the number.
func (c codes) nearest(x float32) uint8 {
	above, found := slices.BinarySearch(c.numbers, x)
	switch {
	case found || above == 0:
	case above == len(c.numbers):
		above--
	case x-c.numbers[above-1] < c.numbers[above]-x && (c.signed || above > 1):
		above--
	}
	return uint8(above)
}

// isCoded reports whether a tensor is kept in 8 bits.
func isCoded(t model.Tensor) bool { return len(t.Shape) > 1 && t.Size() >= leastCoded }

// rowOf returns how many numbers and how many blocks a row of t has.
func rowOf(shape []int) (width, blocks int) {
	width = 1
	for _, d := range shape[1:] {
		width *= d
	}
	return width, (width + blockSize - 1) / blockSize
}

// encode returns the codes of t, and the scale of each block of each of its rows. It
// encodes a result of decode back into the same codes.
func (c codes) encode(t model.Tensor) []hf.Array {
	width, blocks := rowOf(t.Shape)
	out := make([]uint8, len(t.Data))
	scales := make([]float32, 0, t.Shape[0]*blocks)
	for row := 0; row < len(t.Data); row += width {
		for from := row; from < row+width; from += blockSize {
			part := slices.Clone(t.Data[from:min(from+blockSize, row+width)])
			scale := float32(0)
			for i, x := range part {
				if !c.signed {
					part[i] = float32(math.Sqrt(float64(x)))
				}
				scale = max(scale, part[i], -part[i])
			}
			scales = append(scales, scale)
			divisor := scale
			if scale == 0 {
				divisor = 1
			}
			for i, x := range part {
				out[from+i] = c.nearest(x / divisor)
			}
		}
	}
	return []hf.Array{
		{Name: t.Name + scalesSuffix, Shape: []int{t.Shape[0], blocks}, Data: scales},
		{Name: t.Name, Shape: t.Shape, Data: out},
	}
}

// decode returns the tensor that codes and scales represent.
func (c codes) decode(name string, shape []int, bytes []uint8, scales []float32) (model.Tensor, error) {
	t := model.Tensor{Name: name, Shape: shape, Data: make([]float32, len(bytes))}
	if len(shape) < 2 {
		return t, fmt.Errorf("codes of %s have shape %v, want at least two dimensions", name, shape)
	}
	width, blocks := rowOf(shape)
	if len(scales) != shape[0]*blocks {
		return t, fmt.Errorf("%s has %d scales, want %d", name, len(scales), shape[0]*blocks)
	}
	for i, code := range bytes {
		if int(code) >= len(c.numbers) {
			return t, fmt.Errorf("%s has code %d, the last is %d", name, code, len(c.numbers)-1)
		}
		x := c.numbers[code] * scales[i/width*blocks+i%width/blockSize]
		if !c.signed {
			x *= x
		}
		t.Data[i] = x
	}
	return t, nil
}

// momentCodes returns the codes of the moments by prefix.
func momentCodes() map[string]codes {
	return map[string]codes{meanPrefix: newCodes(true), variancePrefix: newCodes(false)}
}

// writeMoments8 stores moments in 8 bits.
func writeMoments8(ctx context.Context, blobs Blobs, moments model.Weights) (model.File, error) {
	of := momentCodes()
	var arrays []hf.Array
	for _, t := range moments {
		if !isCoded(t) {
			arrays = append(arrays, hf.Array{Name: t.Name, Shape: t.Shape, Data: t.Data})
			continue
		}
		for prefix, c := range of {
			if strings.HasPrefix(t.Name, prefix) {
				arrays = append(arrays, c.encode(t)...)
			}
		}
	}
	return writeFile(ctx, blobs, model.Optimizer8File, func(to io.Writer) error {
		return hf.WriteArrays(to, arrays, map[string]string{"format": momentsFormat})
	})
}

// readMoments8 reads what writeMoments8 stored, as F32.
func readMoments8(ctx context.Context, blobs Blobs, m model.Manifest) (model.Weights, error) {
	f, what := m.Files[model.Optimizer8File], fmt.Sprintf("%s of version %d", model.Optimizer8File, m.Number)
	content, size, err := blobs.Open(ctx, f.Digest)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", what, err)
	}
	defer func() { _ = content.Close() }() // only read
	arrays, metadata, wrong := hf.StreamArrays(content, size)
	// Read to the end even if the content makes no sense: a wrong digest is reported
	// before wrong content.
	if _, err := io.Copy(io.Discard, content); err != nil {
		return nil, fmt.Errorf("read %s: %w", what, err)
	}
	var out model.Weights
	if wrong == nil && metadata["format"] != momentsFormat {
		wrong = fmt.Errorf("its format is %q, want %q", metadata["format"], momentsFormat)
	}
	if wrong == nil {
		out, wrong = decodeMoments(arrays)
	}
	if wrong != nil {
		return nil, fmt.Errorf("%w: read %s: %w", ErrCorrupt, what, wrong)
	}
	return out, nil
}

func decodeMoments(arrays []hf.Array) (out model.Weights, err error) {
	of, scales := momentCodes(), map[string][]float32{}
	for _, a := range arrays { // scales come before bytes
		switch data := a.Data.(type) {
		case []float32:
			if name, ok := strings.CutSuffix(a.Name, scalesSuffix); ok {
				scales[name] = data
				continue
			}
			out = append(out, model.Tensor{Name: a.Name, Shape: a.Shape, Data: data})
		case []uint8:
			c, known := of[a.Name[:strings.Index(a.Name, ".")+1]]
			if !known {
				return nil, fmt.Errorf("array %s is not a moment", a.Name)
			}
			t, err := c.decode(a.Name, a.Shape, data, scales[a.Name])
			if err != nil {
				return nil, err
			}
			out = append(out, t)
		default:
			return nil, fmt.Errorf("array %s holds %T", a.Name, data)
		}
	}
	return out, nil
}
