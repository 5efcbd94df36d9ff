package native

import (
	"github.com/fulgurite/fulgurite/model/engine/native/kernel"
)

// adapter is the low-rank part of a policy (see model.LoRA) over a frozen base, and the
// rows of its trained tokens. It is never merged: trainers and decoders add the product
// with A and B to that with the base, in this order, so that their numbers are equal to
// the bit.
type adapter struct {
	*adapterLayout
	flat []float32
	// packed holds each matrix packed for the product with its input, at its offset.
	packed []float32
}

// pack renews packed after flat has changed.
func (a *adapter) pack() {
	for _, layer := range a.layers {
		for _, matrices := range layer {
			for _, m := range matrices {
				kernel.PackRows(a.packed[m.a:m.a+a.rank*m.in], a.flat[m.a:], a.rank, m.in)
				kernel.PackRows(a.packed[m.b:m.b+a.rank*m.out], a.flat[m.b:], m.out, a.rank)
			}
		}
	}
	if h := a.head; h.out > 0 {
		kernel.PackRows(a.packed[h.offset:h.offset+h.out*h.in], a.flat[h.offset:], h.out, h.in)
		return
	}
	if t := a.tokens; t.n > 0 {
		kernel.PackRows(a.packed[t.output:t.output+t.n*a.hidden], a.flat[t.output:], t.n, a.hidden)
	}
}

// trainsHead reports whether the output is the value head of an adapter, not of a
// base.
func (p *pass) trainsHead() bool { return p.adapter != nil && p.ValueHead }

// adapt adds scale·B(A·in), the adapter's part, to out, the output of one of a layer's
// matrices. It keeps scale·A·in in a.low. If out is nil, it computes nothing else.
func (p *pass) adapt(layer, which int, a *activations, out, in []float32, rows int) {
	if p.adapter == nil || len(p.adapter.layers[layer][which]) == 0 {
		return
	}
	if p.split == nil {
		p.adaptRows(layer, which, a, out, in, 0, rows)
		return
	}
	p.eachRows(rows, func(_, first, last int) { p.adaptRows(layer, which, a, out, in, first, last) })
}

func (p *pass) adaptRows(layer, which int, a *activations, out, in []float32, first, last int) {
	at, rows := p.adapter, last-first
	outWidth := at.widths[which]
	for _, m := range at.layers[layer][which] {
		low := a.low[first*at.width+m.low:]
		p.MatMulPacked(low, at.width, in[first*m.in:], m.in, at.packed[m.a:], rows, at.rank, m.in, false)
		at.scaleRows(low, rows)
		if out != nil {
			p.MatMulPacked(out[first*outWidth+m.from:], outWidth, low, at.width, at.packed[m.b:], rows, m.out, at.rank, true)
		}
	}
}

// scaleRows multiplies rank numbers of each row of activations.low by scale.
func (l *adapterLayout) scaleRows(x []float32, rows int) {
	for r := range rows {
		for i, v := range x[r*l.width : r*l.width+l.rank] {
			x[r*l.width+i] = v * l.scale
		}
	}
}

// values sets out to the product of a critic's head with rows of the normed stream.
func (a *adapter) values(k *kernel.Set, out, in []float32, rows int) {
	h := a.head
	k.MatMulPacked(out, h.out, in, h.in, a.packed[h.offset:], rows, h.out, h.in, false)
}

// adaptBackward computes the gradients of adapt from dOut, the gradient of the matrix's
// output. It adds the gradient of the matrix's input to dIn, unless dIn is nil, and the
// gradients of A and B to g, which is laid out like the adapter.
func (s *shard) adaptBackward(layer, which int, dIn, dOut, in, g []float32) {
	if s.adapter == nil || len(s.adapter.layers[layer][which]) == 0 {
		return
	}
	matrices, low := s.adapter.layers[layer][which], s.states[layer].low
	if s.split == nil {
		s.adaptInputBackward(matrices, s.adapter.widths[which], dIn, dOut, 0, s.rows)
		for _, m := range matrices {
			s.gradientOfA(m, in, g, 0, m.in)
			s.gradientOfB(&s.threads[0], m, s.adapter.widths[which], low, dOut, g, 0, m.out)
		}
		return
	}
	s.eachRows(s.rows, func(_, first, last int) {
		s.adaptInputBackward(matrices, s.adapter.widths[which], dIn, dOut, first, last)
	})
	for _, m := range matrices {
		step := s.panelsOfPart(m.in) * kernel.PanelWidth
		columns, blocks := (m.in+step-1)/step, (m.out+gradientRows-1)/gradientRows
		s.split.run(columns+blocks, func(worker, i int) {
			if i < columns {
				s.gradientOfA(m, in, g, i*step, min((i+1)*step, m.in))
				return
			}
			first := (i - columns) * gradientRows
			s.gradientOfB(&s.threads[worker], m, s.adapter.widths[which], low, dOut, g, first, min(first+gradientRows, m.out))
		})
	}
}

// adaptInputBackward sets s.dlow for some rows, and adds the adapter's share to dIn,
// unless dIn is nil.
func (s *shard) adaptInputBackward(matrices []lowRank, outWidth int, dIn, dOut []float32, first, last int) {
	a, rows := s.adapter, last-first
	for _, m := range matrices {
		dlow := s.dlow[first*a.width+m.low:]
		s.MatMul(dlow, a.width, dOut[first*outWidth+m.from:], outWidth, 1, a.flat[m.b:], a.rank, rows, a.rank, m.out, false)
		a.scaleRows(dlow, rows)
		if dIn == nil {
			continue
		}
		s.MatMul(dIn[first*m.in:], m.in, dlow, a.width, 1, a.flat[m.a:], m.in, rows, m.in, a.rank, true)
	}
}

// gradientOfA adds to g some columns of the gradient of an A.
func (s *shard) gradientOfA(m lowRank, in, g []float32, first, last int) {
	s.MatMul(g[m.a+first:], m.in, s.dlow[m.low:], 1, s.adapter.width, in[first:], m.in, s.adapter.rank, last-first, s.rows, true)
}

// gradientOfB adds to g some rows of the gradient of a B, as weightGradient does.
func (s *shard) gradientOfB(thread *shardThread, m lowRank, outWidth int, low, dOut, g []float32, first, last int) {
	rank := s.adapter.rank
	for at := first; at < last; at += gradientRows {
		n := min(gradientRows, last-at)
		s.Transpose(thread.across, s.rows, dOut[m.from+at:], outWidth, s.rows, n)
		s.MatMul(g[m.b+at*rank:], rank, thread.across, s.rows, 1, low[m.low:], s.adapter.width, n, rank, s.rows, true)
	}
}

// valueHeadBackward does for the value head of an adapter, and for some rows, what
// linearBackward does for a matrix of the base.
func (s *shard) valueHeadBackward(dIn, dOut, in, g []float32, rows int) {
	h := s.adapter.head
	s.MatMul(dIn, h.in, dOut, h.out, 1, s.adapter.flat[h.offset:], h.in, rows, h.in, h.out, false)
	s.MatMul(g[h.offset:], h.in, dOut, 1, h.out, in, h.in, h.out, h.in, rows, true)
}
