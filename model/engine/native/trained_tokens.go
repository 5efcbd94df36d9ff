package native

import (
	"github.com/fulgurite/fulgurite/model/engine/native/kernel"
)

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
