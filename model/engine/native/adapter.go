package native

import (
	"github.com/fulgurite/fulgurite/model"
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

// The matrices of a layer that an adapter adds to.
const (
	adaptedQKV = iota
	adaptedOut
	adaptedGateUp
	adaptedDown
	adaptedMatrices
)

// lowRank adapts some columns of a matrix's output: those of one linear layer.
type lowRank struct {
	a, b    int // offsets of A, [rank, in], and B, [out, rank]
	in, out int
	from    int // first column of the output
	low     int // first column in activations.low
}

// adapterLayout places the tensors of an adapter, of trained tokens, and of a critic's
// value head.
type adapterLayout struct {
	placement
	rank      int // padded
	hidden    int // padded size of a row of a token
	width     int // of activations.low
	scale     float32
	layers    [][adaptedMatrices][]lowRank
	widths    [adaptedMatrices]int // of the matrices' outputs
	head      matrix               // value head of a critic; valueBias is the offset of its bias
	valueBias int
	tokens    trainedTokens
}

// projection is a linear layer within a matrix: out lists the rows of its weights, and
// from is the first of its rows in the matrix.
type projection struct {
	target           string
	matrix           int
	in, out          []int
	paddedIn, padded int
	from             int
}

// projections returns the linear layers of a layer, in the order of Architecture.Tensors.
func (l *layout) projections() []projection {
	hidden, feed := identityIndex(l.HiddenSize), identityIndex(l.FeedForward)
	query, key, keys := l.heads(l.Heads), l.heads(l.KVHeads), l.KVHeads*l.h
	return []projection{
		{"q_proj", adaptedQKV, hidden, query, l.d, l.o, 0},
		{"k_proj", adaptedQKV, hidden, key, l.d, keys, l.o},
		{"v_proj", adaptedQKV, hidden, key, l.d, keys, l.o + keys},
		{"o_proj", adaptedOut, query, hidden, l.o, l.d, 0},
		{"gate_proj", adaptedGateUp, hidden, feed, l.d, l.f, 0},
		{"up_proj", adaptedGateUp, hidden, feed, l.d, l.f, l.f},
		{"down_proj", adaptedDown, feed, hidden, l.f, l.d, 0},
	}
}

// newAdapterLayout places the tensors of Architecture.AdapterTensors in their order.
func newAdapterLayout(l *layout, numbers model.LoRA) *adapterLayout {
	a := &adapterLayout{
		rank: kernel.Pad(numbers.Rank), hidden: l.d, scale: numbers.Scale(),
		widths: [adaptedMatrices]int{l.q, l.d, 2 * l.f, l.d},
	}
	targets := map[string]bool{}
	for _, t := range numbers.Targets {
		targets[t] = true
	}
	a.tokens = newTrainedTokens(numbers.Tokens)
	a.tokens.input = a.tokenRows(l)
	rank := identityIndex(numbers.Rank)
	for range l.Layers {
		var at [adaptedMatrices][]lowRank
		a.width = 0
		for _, p := range l.projections() {
			if !targets[p.target] {
				continue
			}
			at[p.matrix] = append(at[p.matrix], lowRank{
				a: a.matrix(rank, a.rank, p.in, p.paddedIn), b: a.matrix(p.out, p.padded, rank, a.rank),
				in: p.paddedIn, out: p.padded, from: p.from, low: a.width,
			})
			a.width += a.rank
		}
		a.layers = append(a.layers, at)
	}
	a.tokens.output = a.tokens.input
	switch {
	case l.ValueHead:
		scalar := []int{0}
		a.head = matrix{a.matrix(scalar, l.v, identityIndex(l.HiddenSize), l.d), l.v, l.d}
		a.valueBias = a.vector(scalar, scalar, l.v)
	case !l.Tied:
		a.tokens.output = a.tokenRows(l)
	}
	return a
}

// trainedTokens are the tokens whose rows an adapter replaces and trains: in the
// embedding, where the token is read, and in the output layer, where it is chosen.
type trainedTokens struct {
	ids    []int32
	index  map[int32]int // of each in ids
	n      int           // number of ids, padded; 0 without any
	input  int           // offset of the rows of the embedding in the adapter
	output int           // offset of those of the output layer, the same where embeddings are tied
}

func newTrainedTokens(ids []int32) trainedTokens {
	t := trainedTokens{ids: ids, index: map[int32]int{}, n: kernel.Pad(len(ids))}
	for i, id := range ids {
		t.index[id] = i
	}
	return t
}

// tokenRows places the rows of all trained tokens in one matrix. It returns their offset.
func (l *adapterLayout) tokenRows(of *layout) int {
	if l.tokens.n == 0 {
		return 0
	}
	return l.matrix(identityIndex(len(l.tokens.ids)), l.tokens.n, identityIndex(of.HiddenSize), of.d)
}

// tokens returns the tokens whose rows are trained, and whether there are any.
func (p *pass) tokens() (*trainedTokens, bool) {
	if p.adapter == nil || p.adapter.tokens.n == 0 {
		return nil, false
	}
	return &p.adapter.tokens, true
}

// tokenWidth returns how many numbers of memory a position needs for trained tokens.
func (p *pass) tokenWidth() int {
	t, ok := p.tokens()
	if !ok || p.ValueHead {
		return 0
	}
	return t.n
}

// embedToken sets to to the embedding of a token.
func (p *pass) embedToken(to []float32, token int32) {
	if t, ok := p.tokens(); ok {
		if i, trained := t.index[token]; trained {
			copy(to, p.adapter.flat[t.input+i*p.d:][:p.d])
			return
		}
	}
	p.parameters.embedToken(to, token)
}

// replaceLogits sets the logits of trained tokens to the products of their own rows with
// rows of the normed stream. The products are computed in own, rows × tokenWidth. They are
// the chains that the base's rows give, so rows that equal those of the base change no
// bit.
func (p *pass) replaceLogits(logits, own, normed []float32, rows int) {
	t, ok := p.tokens()
	if !ok {
		return
	}
	some := func(_, first, last int) {
		p.MatMulPacked(own[first*t.n:], t.n, normed[first*p.d:], p.d, p.adapter.packed[t.output:], last-first, t.n, p.d, false)
		for r := first; r < last; r++ {
			for i, id := range t.ids {
				logits[r*p.v+int(id)] = own[r*t.n+i]
			}
		}
	}
	if p.split == nil {
		some(0, 0, rows)
		return
	}
	p.eachRows(rows, some)
}

// takeTokenGradients moves the gradients of the logits of trained tokens from dLogits to
// own, so that none of them reaches the rows of the base.
func (s *shard) takeTokenGradients(own, dLogits []float32, rows int) {
	t, ok := s.tokens()
	if !ok {
		return
	}
	clear(own[:rows*t.n])
	for r := range rows {
		for i, id := range t.ids {
			own[r*t.n+i], dLogits[r*s.v+int(id)] = dLogits[r*s.v+int(id)], 0
		}
	}
}

// tokenOutputBackward adds to dIn and g what takeTokenGradients has moved to own.
func (s *shard) tokenOutputBackward(dIn, own, in, g []float32, rows int) {
	t, ok := s.tokens()
	if !ok {
		return
	}
	s.MatMul(dIn, s.d, own, t.n, 1, s.adapter.flat[t.output:], s.d, rows, s.d, t.n, true)
	s.MatMul(g[t.output:], s.d, own, 1, t.n, in, s.d, t.n, s.d, rows, true)
}

// tokenInputBackward adds to g the gradients of the rows of trained tokens where the
// tokens are read. dx is the gradient of the stream before the first layer.
func (s *shard) tokenInputBackward(g []float32) {
	t, ok := s.tokens()
	if !ok {
		return
	}
	for r := range s.rows {
		of := s.readers.of(r)[0]
		if i, trained := t.index[of.q.tokens[of.t]]; trained {
			at := t.input + i*s.d
			s.Add(g[at:at+s.d], s.dx[r*s.d:(r+1)*s.d])
		}
	}
}
