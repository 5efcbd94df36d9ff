package native

import "github.com/fulgurite/fulgurite/model/native/kernel"

// parameters are a model's weights, flat, with packed copies of the matrices.
type parameters struct {
	*layout
	flat []float32
	// forward holds each matrix packed for the product with its input, at the
	// matrix's offset; backward, of trainers only, for that with the gradient of
	// its output.
	forward, backward []float32
}

// matrices calls f with each matrix that products use: its offset and its sizes
// [out, in].
func (l *layout) matrices(f func(offset, out, in int)) {
	for _, at := range l.layers {
		f(at.qkv, l.q, l.d)
		f(at.out, l.d, l.o)
		f(at.gateUp, 2*l.f, l.d)
		f(at.down, l.d, l.f)
	}
	f(l.head, l.v, l.d)
}

// pack renews the packed copies after flat has changed.
func (p *parameters) pack(c *threadPool) {
	type matrix struct{ offset, out, in int }
	var all []matrix
	p.matrices(func(offset, out, in int) { all = append(all, matrix{offset, out, in}) })
	c.run(len(all), func(_, i int) {
		m := all[i]
		end := m.offset + m.out*m.in
		kernel.PackRows(p.forward[m.offset:end], p.flat[m.offset:end], m.out, m.in)
		if p.backward != nil {
			kernel.PackColumns(p.backward[m.offset:end], p.flat[m.offset:end], m.out, m.in)
		}
	})
}
