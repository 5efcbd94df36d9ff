package gomlx

import (
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/engine/decode"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	. "github.com/gomlx/gomlx/core/graph" //nolint:revive,staticcheck // formulas read as formulas
	"github.com/gomlx/gomlx/core/tensors"
)

// chunks lists the numbers of tokens that rows are fed at once: one if all rows continue
// completions, more if any row reads its prompt.
var chunks = [...]int{1, 16, 128}

var _ model.Scorer = (*decoder)(nil)

// decoder implements model.Decoder. One goroutine owns the rows and feeds all of them
// together. Requests join and leave between two steps.
type decoder struct {
	*decode.Front[*request]
	graphs   *graphs
	capacity int

	// The goroutine owns the following fields.
	weights []*tensors.Tensor
	caches  []*tensors.Tensor // keys and values of each layer, [B,T,G,H]
	rows    []*request        // B of them, nil where free
	length  int               // T
}

func newDecoder(g *graphs, w model.Weights, capacity int) (*decoder, error) {
	weights, err := upload(w)
	if err != nil {
		return nil, fmt.Errorf("new decoder: %w", err)
	}
	d := &decoder{Front: decode.NewFront(g.arch, newRequest), graphs: g, capacity: capacity, weights: weights}
	d.Own(d.own)
	return d, nil
}

// own runs the rows until Close.
func (d *decoder) own() {
	for d.admit() {
		if err := d.advance(); err != nil {
			d.clear(err)
		}
	}
	d.clear(decode.ErrClosed)
	free(d.weights)
}

// admit takes waiting requests into free rows. If there is nothing else to do, it waits
// for one. It returns false when the decoder is closed.
func (d *decoder) admit() bool {
	for i, r := range d.rows {
		if r != nil && r.IsAbandoned() {
			r.End()
			d.rows[i] = nil
		}
	}
	for {
		if d.active() == 0 {
			d.clear(nil) // there are no rows to answer; this frees the caches
			<-d.Changed()
		}
		taken, closed := d.Take(nil, d.capacity-d.active())
		for _, r := range taken {
			r.Join()
			d.addRow(r)
		}
		if closed || d.active() > 0 {
			return !closed
		}
	}
}

func (d *decoder) active() int {
	n := 0
	for _, r := range d.rows {
		if r != nil {
			n++
		}
	}
	return n
}

// addRow puts r into a free row, or into a new one, for which resize makes room.
func (d *decoder) addRow(r *request) {
	if i := slices.Index(d.rows, nil); i >= 0 {
		d.rows[i] = r
		return
	}
	d.rows = append(d.rows, r)
}

// clear answers all rows with err and frees the caches.
func (d *decoder) clear(err error) {
	for _, r := range d.rows {
		if r != nil {
			r.Err = err
			r.End()
		}
	}
	free(d.caches)
	d.caches, d.rows, d.length = nil, nil, 0
}

// advance feeds each row its pending tokens, up to a chunk, and samples for rows that
// have none left.
func (d *decoder) advance() error {
	if err := d.resize(); err != nil {
		return err
	}
	most := 0
	for _, r := range d.rows {
		if r != nil {
			most = max(most, len(r.pending))
		}
	}
	c := chunks[len(chunks)-1]
	for _, size := range slices.Backward(chunks[:]) {
		if size >= most {
			c = size
		}
	}
	in, err := d.feed(c)
	if err != nil {
		return err
	}
	caches, err := d.graphs.donate(d.caches)
	d.caches = nil
	if err != nil {
		return err
	}
	step := d.graphs.step
	if slices.ContainsFunc(d.rows, func(r *request) bool { return r != nil && r.restricted() }) {
		step = d.graphs.stepLogits
	}
	out, err := d.graphs.call(step, slices.Concat(lend(d.weights), caches, in)...)
	if err != nil {
		return err
	}
	n := len(caches)
	d.caches = out[:n]
	return d.accept(c, out[n:])
}

// accept passes the sampled tokens, and the logits if there are any, to the rows.
func (d *decoder) accept(c int, out []*tensors.Tensor) error {
	sampled, err := hostCopy[int32](out[0])
	if err != nil {
		return err
	}
	logprobs, err := hostCopy[float32](out[1])
	if err != nil {
		return err
	}
	var logits []float32
	if len(out) > 2 {
		if logits, err = hostCopy[float32](out[2]); err != nil {
			return err
		}
	}
	v := d.graphs.arch.VocabSize
	for i, r := range d.rows {
		if r == nil || !r.feeds(c) {
			continue
		}
		token, logprob, forced := sampled[i], logprobs[i], false
		if r.restricted() {
			token, logprob, forced, r.Err = r.choose(logits[i*v:(i+1)*v], token, logprob)
		}
		if r.Err == nil {
			r.Accept(token, logprob, forced)
			r.pending = []int32{token}
		}
		if r.Finished() {
			r.End()
			d.rows[i] = nil
		}
	}
	return nil
}

// feed makes the inputs of step that follow the caches.
func (d *decoder) feed(c int) (in []any, err error) {
	defer caught(&err)
	b, v, half := len(d.rows), d.graphs.arch.VocabSize, d.graphs.rotary.half
	tokens, start, count := make([]int32, b*c), make([]int32, b), make([]int32, b)
	cos, sin := make([]float32, b*c*half), make([]float32, b*c*half)
	temperature, noise := make([]float32, b), make([]float32, b*v)
	tableCos, tableSin := d.graphs.rotary.table(d.length)
	for i, r := range d.rows {
		temperature[i] = 1
		if r == nil {
			continue
		}
		n := min(c, len(r.pending))
		start[i], count[i] = int32(r.fed), int32(n)
		copy(tokens[i*c:], r.pending[:n])
		from, to := r.fed*half, (r.fed+n)*half
		copy(cos[i*c*half:], tableCos[from:to])
		copy(sin[i*c*half:], tableSin[from:to])
		if r.Temperature > 0 {
			temperature[i] = float32(r.Temperature)
			if n == len(r.pending) {
				model.GumbelNoise(r.Seed, len(r.Completion.Tokens), noise[i*v:(i+1)*v])
			}
		}
		if r.Given != nil && n == len(r.pending) { // larger than any logit
			noise[i*v+int(r.Given[len(r.Completion.Tokens)])] = math.MaxFloat32
		}
	}
	return []any{
		tensors.FromFlatDataAndDimensions(tokens, b, c),
		tensors.FromFlatDataAndDimensions(start, b),
		tensors.FromFlatDataAndDimensions(count, b),
		tensors.FromFlatDataAndDimensions(cos, b, c, half),
		tensors.FromFlatDataAndDimensions(sin, b, c, half),
		tensors.FromFlatDataAndDimensions(temperature, b),
		tensors.FromFlatDataAndDimensions(noise, b, v),
	}, nil
}

// resize changes the numbers of rows, and of positions in the caches, to what the
// requests need, and keeps what was fed. Both shrink only if a quarter is enough, so that
// a decoder whose load varies does not copy its caches at every step.
func (d *decoder) resize() error {
	need := 0
	for _, r := range d.rows {
		if r != nil {
			need = max(need, len(r.Prompt)+r.Limit)
		}
	}
	length, b := d.length, powerOfTwo(len(d.rows))
	if need > length || need <= length/4 {
		length = bucket(need)
	}
	if active := d.active(); active <= b/4 {
		b = powerOfTwo(active)
	}
	// Rows that were just appended have no place in the caches yet, however many
	// there are.
	if d.caches != nil && length == d.length && b == len(d.rows) && b == d.caches[0].Shape().Dimensions[0] {
		return nil
	}
	rows, from := make([]*request, 0, b), make([]int32, b)
	for i, r := range d.rows {
		if r != nil {
			from[len(rows)] = int32(i)
			rows = append(rows, r)
		}
	}
	rows = append(rows, make([]*request, b-len(rows))...)
	caches, err := d.moved(from, length)
	if err != nil {
		return err
	}
	free(d.caches)
	d.caches, d.rows, d.length = caches, rows, length
	return nil
}

// moved returns the caches with row from[i] as row i. A new row has no old one; it is
// written before it is read.
func (d *decoder) moved(from []int32, length int) (caches []*tensors.Tensor, err error) {
	defer caught(&err)
	a := d.graphs.arch
	if d.caches == nil {
		caches = make([]*tensors.Tensor, 2*a.Layers)
		for i := range caches {
			caches[i] = tensors.FromScalarAndDimensions(float32(0), len(from), length, a.KVHeads, a.HeadDim)
		}
		return caches, nil
	}
	old := d.caches[0].Shape().Dimensions[0]
	for i := range from {
		from[i] = min(from[i], int32(old-1)) // a row that was just appended
	}
	in := append(lend(d.caches),
		tensors.FromFlatDataAndDimensions(from, len(from)), tensors.FromFlatDataAndDimensions(make([]int32, length), length))
	return d.graphs.call(d.graphs.regroup, in...)
}

// step feeds up to C tokens to each row and samples one. It takes the weights; keys and
// values of each layer [B,T,G,H]; tokens [B,C]; start and count [B]; cos and sin
// [B,C,H/2]; temperatures [B]; noise [B,V]. The first count tokens of row b are at the
// positions from start on; the others are padding. It returns the keys and values, the
// token sampled after the last one fed, and its log-probability, both [B].
//
// The same graph reads prompts (many tokens) and continues completions (one), so
// rows can do either in the same batch.
func (t transformer) step(in []*Node) []*Node {
	out := t.stepLogits(in)
	return out[:len(out)-1]
}

// stepLogits does what step does. It also returns the logits before temperature and noise
// [B,V], for rows that choose among only some tokens.
func (t transformer) stepLogits(in []*Node) []*Node {
	n := len(t.Tensors())
	w, caches, rest := t.weights(in[:n]), in[n:n+2*t.Layers], in[n+2*t.Layers:]
	tokens, start, count, cos, sin, temperature, noise := rest[0], rest[1], rest[2], rest[3], rest[4], rest[5], rest[6]
	g := tokens.Graph()
	b, c := tokens.Shape().Dimensions[0], tokens.Shape().Dimensions[1]
	positions := caches[0].Shape().Dimensions[1]

	feed := shapes.Make(dtypes.Int32, b, c)
	fed := LessThan(Iota(g, feed, 1), BroadcastToDims(InsertAxes(count, -1), b, c))
	at := Add(Iota(g, feed, 1), InsertAxes(start, -1))
	cells := shapes.Make(dtypes.Int32, b, c, positions)
	cell, atCell := Iota(g, cells, 2), BroadcastToDims(InsertAxes(at, -1), b, c, positions)
	// The caches are written by a product with ones and zeros, which is exact, because
	// the Go backend cannot update a slice.
	write := Mul(ConvertDType(Equal(cell, atCell), dtypes.Float32), InsertAxes(ConvertDType(fed, dtypes.Float32), -1))
	keep := Reshape(OneMinus(ReduceSum(write, 1)), b, positions, 1, 1)
	future := ConvertDType(GreaterThan(cell, atCell), dtypes.Float32)
	bias := Reshape(MulScalar(future, masked), b, 1, 1, c, positions)

	out := make([]*Node, 0, 2*t.Layers+3)
	cos, sin = Reshape(cos, b, c, 1, t.HeadDim/2), Reshape(sin, b, c, 1, t.HeadDim/2)
	x := t.hidden(w, tokens, cos, sin, func(layer int, q, k, v *Node) *Node {
		k = Add(Mul(caches[2*layer], keep), Einsum("bct,bcgh->btgh", write, k))
		v = Add(Mul(caches[2*layer+1], keep), Einsum("bct,bcgh->btgh", write, v))
		out = append(out, k, v)
		return t.softmaxAttention(q, k, v, bias)
	})
	last := ConvertDType(Equal(Iota(g, feed, 1), BroadcastToDims(InsertAxes(SubScalar(count, 1), -1), b, c)), dtypes.Float32)
	logits := t.logits(w, Einsum("bc,bcd->bd", last, x))
	logprobs := LogSoftmax(Div(logits, InsertAxes(temperature, -1)), -1)
	// The token has the largest sum of logit and noise; normalization shifts all logits
	// of a row equally.
	sampled := ArgMax(Add(logprobs, noise), -1, dtypes.Int32)
	return append(out, sampled, pick(logprobs, sampled), logits)
}

// regroup takes keys and values [B,T,G,H], then for each new row the index of its old
// row, and any vector as long as the new T. It returns keys and values with that many
// rows and positions; the first positions are the old ones.
func regroup(in []*Node) []*Node {
	n := len(in) - 2
	rows, positions := InsertAxes(in[n], -1), in[n+1].Shape().Dimensions[0]
	out := make([]*Node, n)
	for i, x := range in[:n] {
		x = Gather(x, rows)
		d := x.Shape().Dimensions
		switch {
		case positions < d[1]:
			x = SliceAxis(x, 1, AxisRange(0, positions))
		case positions > d[1]:
			more := Zeros(x.Graph(), shapes.Make(x.DType(), d[0], positions-d[1], d[2], d[3]))
			x = Concatenate([]*Node{x, more}, 1)
		}
		out[i] = x
	}
	return out
}

// rotary is a table of cosines and sines that grows as positions are asked for.
type rotary struct {
	half        int
	frequencies []float64 // radians a position

	mu       sync.Mutex
	cos, sin []float32 // half numbers for each position
}

func newRotary(a model.Architecture) *rotary {
	r := &rotary{half: a.HeadDim / 2}
	for i := range r.half {
		r.frequencies = append(r.frequencies, a.RopeScaling.Frequency(math.Pow(a.RopeTheta, -float64(i)/float64(r.half))))
	}
	return r
}

// table returns the cosines and sines of positions 0 to n−1. They are shared and
// must not be changed.
func (r *rotary) table(n int) (cos, sin []float32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for p := len(r.cos) / r.half; p < n; p++ {
		for _, frequency := range r.frequencies {
			s, c := math.Sincos(float64(p) * frequency)
			r.cos, r.sin = append(r.cos, float32(c)), append(r.sin, float32(s))
		}
	}
	end := n * r.half
	return r.cos[:end:end], r.sin[:end:end]
}
