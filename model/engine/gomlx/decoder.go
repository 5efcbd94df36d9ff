package gomlx

import (
	"fmt"
	"math"
	"slices"

	"github.com/gomlx/gomlx/core/tensors"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/engine/decode"
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
