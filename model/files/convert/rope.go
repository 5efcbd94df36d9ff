package convert

import (
	"fmt"
	"math"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/gguf"
)

// A GGUF file stores the scaling of Llama 3.1's rotary embedding not as settings, but as
// the resulting divisors of the frequencies. All models that were published with it have
// these two factors, and their number of original positions is a power of two.
const (
	lowFrequencyFactor  = 1
	highFrequencyFactor = 4
)

// ropeDivisors returns the numbers by which the scaling divides each frequency.
func ropeDivisors(a model.Architecture) []float32 {
	divisors := make([]float32, a.HeadDim/2)
	for i := range divisors {
		f := math.Pow(a.RopeTheta, -2*float64(i)/float64(a.HeadDim))
		divisors[i] = float32(f / a.RopeScaling.Frequency(f))
	}
	return divisors
}

// readScaling finds the scaling that makes the divisors of a file, if it has some.
func readScaling(f *gguf.File, a model.Architecture) (model.RopeScaling, error) {
	t, ok := f.Find(ropeFactors)
	if !ok {
		return model.RopeScaling{}, nil
	}
	if len(t.Shape) != 1 || t.Width() != a.HeadDim/2 {
		return model.RopeScaling{}, fmt.Errorf("%w: tensor %s has shape %v, want [%d]", ErrFormat, ropeFactors, t.Shape, a.HeadDim/2)
	}
	raw, want := make([]byte, t.RowBytes()), make([]float32, t.Width())
	if err := t.ReadRows(raw, 0); err != nil {
		return model.RopeScaling{}, err
	}
	t.Decode(want, raw)
	factor := float64(want[len(want)-1])
	if factor == 1 {
		return model.RopeScaling{}, nil
	}
	for positions := 1 << 8; positions <= 1<<20; positions *= 2 {
		a.RopeScaling = model.RopeScaling{
			Factor: factor, LowFrequencyFactor: lowFrequencyFactor,
			HighFrequencyFactor: highFrequencyFactor, OriginalPositions: positions,
		}
		if a.Check() == nil && near(want, ropeDivisors(a)) {
			return a.RopeScaling, nil
		}
	}
	return model.RopeScaling{}, fmt.Errorf("%w: tensor %s is not the scaling of Llama 3", ErrUnsupported, ropeFactors)
}

func near(a, b []float32) bool {
	for i := range a {
		if !(math.Abs(float64(a[i]-b[i])) <= 1e-4*math.Abs(float64(b[i]))) {
			return false
		}
	}
	return true
}
