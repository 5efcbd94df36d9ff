package native

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/engine/native/kernel"
	"github.com/fulgurite/fulgurite/model/engine/native/memory"
)

var (
	_ model.Viewer         = (*trainer)(nil)
	_ model.OptimizerTimer = (*trainer)(nil)
	_ model.Viewer         = critic{}
)

// trainer implements model.Trainer.
type trainer struct {
	*pass
	// changes is the placement of the numbers that updates change: those of the model, or
	// of its adapter. Gradients and moments have the same layout.
	changes        *placement
	mean, variance []float32
	updates        int
	optimizing     time.Duration    // of all updates: their time after the gradients
	of             model.Checkpoint // only architecture and adapter are set
	spans          []span           // for the norm
	stretches      []stretch        // pieces that an update of a whole model changes; nil for an adapter
	shares         bool             // whether rows of an update share common prefixes

	threadPool *threadPool
	shards     []*shard    // one for each thread; a single one for a wide model
	lanes      [][]float32 // gradients; see laneLimit
	panels     [][]float32 // for each thread, memory for some columns of a panel
	held       []*memory.Floats
}

// The gradient is added up in lanes: shard i is added to lane i mod lanes, and then the
// lanes are added up in order. More lanes let more threads work at once. Their number
// depends on the architecture alone, so that the order of sums does too. A wide model has
// one lane, because its shards run one after the other.
const (
	maxLanes    = 16
	laneNumbers = 1 << 25 // in all lanes together
)

// laneLimit returns the largest number of lanes that an update uses.
func (t *trainer) laneLimit() int {
	if t.wide() {
		return 1
	}
	return min(maxLanes, max(2, laneNumbers/t.changes.size))
}

func (e *Engine) newTrainer(c model.Checkpoint) (*trainer, error) {
	if c.Updates < 0 {
		return nil, fmt.Errorf("%d updates", c.Updates)
	}
	p, err := e.newPass(c)
	if err != nil {
		return nil, err
	}
	t := &trainer{
		pass: p, changes: &p.layout.placement, updates: c.Updates,
		of:         model.Checkpoint{Architecture: c.Architecture, Adapter: c.Adapter},
		threadPool: newThreadPool(e.threads, p.wide()),
	}
	if p.adapter != nil {
		t.changes, t.shares = &p.adapter.placement, true
	} else {
		t.stretches = p.stretches()
	}
	t.spans = t.changes.spans()
	shards := e.threads
	if p.wide() {
		t.split, shards = t.threadPool, 1
	}
	for range shards {
		t.shards = append(t.shards, newShard(p))
	}
	for range e.threads {
		t.panels = append(t.panels, make([]float32, spanNumbers))
	}
	if t.mean, err = t.readMoments("means", c.Mean); err == nil {
		t.variance, err = t.readMoments("variances", c.Variance)
	}
	if err != nil {
		t.Close()
		return nil, err
	}
	return t, nil
}

// readMoments returns zeros if no updates were made and no moments are given.
func (t *trainer) readMoments(kind string, w model.Weights) ([]float32, error) {
	if w == nil && t.updates == 0 {
		return t.numbers(t.changes.size), nil
	}
	if err := checkTensors(t.of, w); err != nil {
		return nil, fmt.Errorf("%s after %d updates: %w", kind, t.updates, err)
	}
	flat := t.numbers(t.changes.size)
	t.changes.read(flat, w)
	return flat, nil
}

// numbers returns n zeros that live as long as the trainer.
func (t *trainer) numbers(n int) []float32 {
	f := memory.New(n)
	t.held = append(t.held, f)
	return f.Data()
}

// run calls do for each part. Parts run on several threads, unless the threads share each
// part.
func (t *trainer) run(n int, do func(worker, part int)) {
	if t.split == nil {
		t.threadPool.run(n, do)
		return
	}
	for part := range n {
		do(0, part)
	}
}

// Close ends the trainer's goroutines and gives its memory back. The trainer must not
// be used after it.
func (t *trainer) Close() {
	t.threadPool.close()
	t.pass.free()
	for _, s := range t.shards {
		s.memory.free()
	}
	for _, f := range t.held {
		f.Free()
	}
	t.mean, t.variance, t.lanes = nil, nil, nil
}

// Checkpoint returns a copy of the state.
func (t *trainer) Checkpoint() model.Checkpoint { return t.state(t.changes.write) }

// View implements model.Viewer.
func (t *trainer) View() model.Checkpoint { return t.state(t.changes.view) }

// state returns the current state. tensors gives the numbers of a flat slice the shapes
// of w's tensors.
func (t *trainer) state(tensors func(flat []float32, w model.Weights) model.Weights) model.Checkpoint {
	c := t.of
	c.Updates = t.updates
	c.Weights = tensors(t.trained(), t.of.Tensors())
	c.Mean, c.Variance = tensors(t.mean, t.of.Tensors()), tensors(t.variance, t.of.Tensors())
	return c
}

// trained returns the numbers that updates change, in the order of changes; they are
// valid until the next update. The numbers of a whole model are packed, so trained
// unpacks them into the memory of the gradient.
func (t *trainer) trained() []float32 {
	if t.adapter != nil {
		return t.adapter.flat
	}
	flat := t.reserveLanes(1)[0]
	t.threadPool.run(len(t.stretches), func(_, i int) {
		s := t.stretches[i]
		if s.width == 0 {
			copy(flat[s.from:s.to], t.weights[s.from:s.to])
			return
		}
		in := (s.to - s.from) / s.width
		t.Transpose(flat[s.from:], in, t.weights[s.from:], s.width, in, s.width)
	})
	return flat
}

// Score implements model.Trainer.
func (t *trainer) Score(ctx context.Context, rows []model.Row) (logprobs, entropies [][]float32, err error) {
	shards, err := t.plan(rows, true)
	if err != nil {
		return nil, nil, fmt.Errorf("score: %w", err)
	}
	logprobs, entropies = make([][]float32, len(rows)), make([][]float32, len(rows))
	t.run(len(shards), func(worker, i int) {
		if ctx.Err() != nil {
			return
		}
		s := t.shards[worker]
		s.load(shards[i], false)
		s.forward()
		for _, q := range s.sequences {
			logprobs[q.Index] = append(make([]float32, 0, q.N), s.logprobs[q.answers:q.end()]...)
			entropies[q.Index] = append(make([]float32, 0, q.N), s.entropies[q.answers:q.end()]...)
		}
	})
	if err := ctx.Err(); err != nil {
		return nil, nil, fmt.Errorf("score: %w", err)
	}
	return logprobs, entropies, nil
}

// Update implements model.Trainer.
func (t *trainer) Update(ctx context.Context, rows []model.Row, objective model.Objective, opt model.AdamW) (float64, error) {
	norm, err := t.update(ctx, rows, objective, opt)
	if err != nil {
		return norm, fmt.Errorf("update %d: %w", t.updates+1, err)
	}
	return norm, nil
}

func (t *trainer) update(ctx context.Context, rows []model.Row, objective model.Objective, opt model.AdamW) (float64, error) {
	if err := opt.Check(); err != nil {
		return 0, err
	}
	shards, err := t.plan(rows, t.shares)
	if err != nil {
		return 0, err
	}
	if len(shards) == 0 {
		return 0, errors.New("no rows")
	}
	lanes := t.reserveLanes(min(len(shards), t.laneLimit()))
	t.run(len(lanes), func(worker, lane int) {
		clear(lanes[lane])
		for i := lane; i < len(shards); i += len(lanes) {
			if ctx.Err() != nil {
				return
			}
			s := t.shards[worker]
			s.load(shards[i], true)
			s.forward()
			if s.applyObjective(objective) { // a gradient of zeros would change no bit
				s.backward(lanes[lane])
			}
		}
	})
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	began := time.Now()
	defer func() { t.optimizing += time.Since(began) }()
	norm := t.sum(lanes)
	if math.IsNaN(norm) || math.IsInf(norm, 0) {
		return norm, model.ErrDiverged
	}
	t.step(lanes[0], norm, opt)
	return norm, nil
}

// OptimizerTime implements model.OptimizerTimer.
func (t *trainer) OptimizerTime() time.Duration { return t.optimizing }

func (t *trainer) reserveLanes(n int) [][]float32 {
	for len(t.lanes) < n {
		t.lanes = append(t.lanes, t.numbers(t.changes.size))
	}
	return t.lanes[:n]
}

// plan checks rows and cuts them into shards. Callers pass share = false for the update
// of a whole model: its gradient is added up row by row.
func (t *trainer) plan(rows []model.Row, share bool) ([][]sequence, error) {
	longest := 0
	for _, r := range rows {
		longest = max(longest, len(r.Tokens))
	}
	shards, err := t.cut(rows, share)
	if err != nil {
		return nil, err
	}
	t.angles.reserve(longest)
	return shards, nil
}

func rowError(i int, err error) error { return fmt.Errorf("row %d: %w", i, err) }

// critic implements model.Critic: a trainer whose output is one value for each position.
// Its layers, its optimizer and the order of its sums are the same as a policy's.
type critic struct{ *trainer }

// Values implements model.Critic.
func (c critic) Values(ctx context.Context, rows []model.Row) ([][]float32, error) {
	values, _, err := c.Score(ctx, rows)
	return values, err
}

// Update implements model.Critic.
func (c critic) Update(ctx context.Context, rows []model.Row, objective model.ValueObjective, opt model.AdamW) (float64, error) {
	return c.trainer.Update(ctx, rows, func(row int, values, _, gradient, _ []float32) {
		objective(row, values, gradient)
	}, opt)
}

// values sets the values of some rows: the first column of the output plus the bias.
func (s *shard) values(first, rows int) {
	bias := s.bias()
	for r := range rows {
		for _, to := range s.readers.of(first + r) {
			s.logprobs[to.answer()] = s.logits[r*s.v] + bias
		}
	}
	clear(s.entropies)
}

// bias returns the bias of the value head.
func (s *shard) bias() float32 {
	if s.trainsHead() {
		return s.adapter.flat[s.adapter.valueBias]
	}
	return s.weights[s.valueBias]
}

// valuesGradient replaces the output of some rows by its gradient, and adds the gradient
// of the bias to g.
func (s *shard) valuesGradient(g, logits []float32, first, rows int) {
	bias := s.valueBias
	if s.trainsHead() {
		bias = s.adapter.valueBias
	}
	for r := range rows {
		x := logits[r*s.v : (r+1)*s.v]
		clear(x)
		for i, of := range s.readers.of(first + r) {
			d := s.gradient[of.answer()]
			if i == 0 {
				x[0] = d
			} else {
				x[0] += d
			}
			g[bias] += d
		}
	}
}

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
