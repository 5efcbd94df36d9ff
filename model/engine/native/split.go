package native

import "github.com/fulgurite/fulgurite/model/engine/native/kernel"

// wideNumbers is the size above which a model is wide. In a wide model, the threads of a
// trainer or decoder share each product of one shard or unit; in a smaller one, each
// thread takes its own shards and units. A wide model's gradient and activations then
// exist once, and its weights are read once for all threads. The limit depends on the
// architecture alone, because the order in which gradients are added up does.
const wideNumbers = 1 << 25 / 3

func (l *layout) wide() bool { return l.size > wideNumbers }

// partsPerThread is how many parts a product is cut into for each thread, so that
// none waits long for another.
const partsPerThread = 4

// eachColumns cuts n columns into ranges of whole panels and runs do for each.
func (p *pass) eachColumns(n int, do func(worker, first, last int)) {
	step := p.panelsOfPart(n) * kernel.PanelWidth
	p.split.run((n+step-1)/step, func(worker, i int) { do(worker, i*step, min((i+1)*step, n)) })
}

func (p *pass) panelsOfPart(n int) int {
	panels := (n + kernel.PanelWidth - 1) / kernel.PanelWidth
	return max(1, panels/(partsPerThread*p.split.threads))
}

// eachRows cuts rows into ranges and runs do for each.
func (p *pass) eachRows(rows int, do func(worker, first, last int)) {
	step := max(1, (rows+2*p.split.threads-1)/(2*p.split.threads))
	p.split.run((rows+step-1)/step, func(worker, i int) { do(worker, i*step, min((i+1)*step, rows)) })
}

// linear sets out, rows × m.out, to the product of in, rows × m.in, with the weights of
// m. If add is true, it adds the product to out.
func (p *pass) linear(m matrix, out, in []float32, rows int, add bool) {
	if p.split == nil {
		p.MatMulPanels(out, m.out, in, m.in, p.panels.From(m.offset), rows, m.out, m.in, add)
		return
	}
	p.eachColumns(m.out, func(_, first, last int) {
		p.MatMulPanels(out[first:], m.out, in, m.in, p.panels.From(m.offset+first*m.in), rows, last-first, m.in, add)
	})
}

// norm computes Norm for rows of the stream, with the weights at offset.
func (p *pass) norm(offset int, h, x, inverse []float32, rows int) {
	w := p.vectorAt(offset, p.d)
	if p.split == nil {
		p.Norm(h, x, w, inverse, rows, p.HiddenSize, p.epsilon)
		return
	}
	p.eachRows(rows, func(_, first, last int) {
		p.Norm(h[first*p.d:], x[first*p.d:], w, inverse[first:], last-first, p.HiddenSize, p.epsilon)
	})
}

// activate computes SwiGLU for rows.
func (p *pass) activate(gateUp, act []float32, rows int) {
	if p.split == nil {
		p.SwiGLU(gateUp, act, rows, p.f)
		return
	}
	p.eachRows(rows, func(_, first, last int) {
		p.SwiGLU(gateUp[2*first*p.f:], act[first*p.f:], last-first, p.f)
	})
}

// activateBackward computes SwiGLUBackward for rows.
func (p *pass) activateBackward(gateUp, dact []float32, rows int) {
	if p.split == nil {
		p.SwiGLUBackward(gateUp, dact, rows, p.f)
		return
	}
	p.eachRows(rows, func(_, first, last int) {
		p.SwiGLUBackward(gateUp[2*first*p.f:], dact[first*p.f:], last-first, p.f)
	})
}
