package native

import (
	"math"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/engine/native/kernel"
)

// spanNumbers is the largest number of elements that one thread sums or updates at a
// time.
const spanNumbers = 8192

// span is a range of a placement that one tensor covers.
type span struct {
	from, to int
	decays   bool
}

func (p *placement) spans() []span {
	var all []span
	for _, s := range p.tensors {
		for from := s.offset; from < s.offset+s.size; from += spanNumbers {
			all = append(all, span{from, min(from+spanNumbers, s.offset+s.size), s.decays})
		}
	}
	return all
}

// sum adds all lanes to the first, one after the other, and returns the norm of the
// result.
func (t *trainer) sum(lanes [][]float32) float64 {
	squares := make([]float64, len(t.spans))
	t.threadPool.run(len(t.spans), func(_, i int) {
		from, to := t.spans[i].from, t.spans[i].to
		for _, lane := range lanes[1:] {
			t.Add(lanes[0][from:to], lane[from:to])
		}
		squares[i] = t.SumSquares(lanes[0][from:to])
	})
	total := 0.0
	for _, s := range squares {
		total += s
	}
	return math.Sqrt(total)
}

// step makes one update with a gradient of the given norm.
func (t *trainer) step(gradient []float32, norm float64, o model.AdamW) {
	t.updates++
	scale := 1.0
	if o.ClipNorm > 0 && norm > o.ClipNorm {
		scale = o.ClipNorm / norm
	}
	updates := float64(t.updates)
	u := kernel.AdamW{
		Rate: float32(o.LearningRate), Scale: float32(scale), Epsilon: float32(o.Epsilon),
		Beta1: float32(o.Beta1), Rest1: float32(1 - o.Beta1), Correct1: float32(1 / (1 - math.Pow(o.Beta1, updates))),
		Beta2: float32(o.Beta2), Rest2: float32(1 - o.Beta2), Correct2: float32(1 / (1 - math.Pow(o.Beta2, updates))),
	}
	if t.adapter != nil {
		t.stepAdapter(gradient, u, o)
		return
	}
	t.threadPool.run(len(t.stretches), func(worker, i int) {
		s, u := t.stretches[i], u
		if s.decays {
			u.Decay = float32(o.WeightDecay)
		}
		if s.width == 0 {
			t.AdamW(t.weights[s.from:s.to], gradient[s.from:s.to], t.mean[s.from:s.to], t.variance[s.from:s.to], u)
			return
		}
		t.stepPanel(s, t.panels[worker], gradient, u)
	})
}

// stepAdapter updates the numbers of an adapter.
func (t *trainer) stepAdapter(gradient []float32, u kernel.AdamW, o model.AdamW) {
	t.threadPool.run(len(t.spans), func(_, i int) {
		s, u := t.spans[i], u
		if s.decays {
			u.Decay = float32(o.WeightDecay)
		}
		t.AdamW(t.adapter.flat[s.from:s.to], gradient[s.from:s.to], t.mean[s.from:s.to], t.variance[s.from:s.to], u)
	})
	t.adapter.pack()
}

// stretch is a piece that one thread updates at a time: a span, or a panel of a packed
// matrix, which consists of width rows of the matrix's gradient.
type stretch struct {
	span
	width int // 0 if the weights are laid out like their gradient
}

func (l *layout) stretches() []stretch {
	var all []stretch
	for _, p := range l.tensors {
		m, packed := l.matrixAt(p.offset)
		switch {
		case packed && m.offset == p.offset: // p is the first tensor of the matrix
			for row := 0; row < m.out; row += kernel.PanelWidth {
				width := min(kernel.PanelWidth, m.out-row)
				from := m.offset + row*m.in
				all = append(all, stretch{span{from, from + width*m.in, p.decays}, width})
			}
		case !packed:
			for from := p.offset; from < p.offset+p.size; from += spanNumbers {
				all = append(all, stretch{span: span{from, min(from+spanNumbers, p.offset+p.size), p.decays}})
			}
		}
	}
	return all
}

// stepPanel updates a panel. It transposes some columns at a time into rows, which are
// laid out like their gradient, updates these, and transposes them back.
func (t *trainer) stepPanel(s stretch, rows, gradient []float32, u kernel.AdamW) {
	columns := len(rows) / kernel.PanelWidth
	in := (s.to - s.from) / s.width
	for first := 0; first < in; first += columns {
		n := min(columns, in-first)
		packed := t.weights[s.from+first*s.width:]
		t.Transpose(rows, n, packed, s.width, n, s.width)
		for i := range s.width {
			from := s.from + i*in + first
			to := from + n
			t.AdamW(rows[i*n:(i+1)*n], gradient[from:to], t.mean[from:to], t.variance[from:to], u)
		}
		t.Transpose(packed, s.width, rows, n, s.width, n)
	}
}
