package torch

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/fulgurite/fulgurite/model"
)

var (
	_ model.Trainer = (*trainer)(nil)
	_ model.Saver   = (*trainer)(nil)
)

// trainer implements model.Trainer: a model that the program holds.
type trainer struct {
	process *process
	ranks   int // number of ranks that hold it: the first ranks of the process
	handle  int
	tokens  int // of one pass
	updates int
	of      model.Checkpoint // only architecture, adapter and the type of moments are set
	what    purpose
}

// adamW is the body of the verb step.
type adamW struct {
	Update   int     `json:"update"` // this one's number, from 1 on
	Rate     float32 `json:"rate"`
	Scale    float32 `json:"scale"` // of the gradient
	Epsilon  float32 `json:"epsilon"`
	Decay    float32 `json:"decay"`
	Beta1    float32 `json:"beta1"`
	Rest1    float32 `json:"rest1"`    // 1 − beta1
	Correct1 float32 `json:"correct1"` // 1 / (1 − beta1^updates)
	Beta2    float32 `json:"beta2"`
	Rest2    float32 `json:"rest2"`
	Correct2 float32 `json:"correct2"`
}

// request sends all ranks the same request about this model; result, if not nil, receives
// the reply of rank 0.
func (t *trainer) request(ctx context.Context, verb string, body, result any) error {
	r, err := t.exchange(ctx, verb, body, make([][]array, t.ranks))
	if err == nil && result != nil {
		if err = json.Unmarshal(r[0].Result, result); err != nil {
			err = fmt.Errorf("%s: %w: %w", verb, errFrame, err)
		}
	}
	return err
}

// exchange sends each rank the request with its own arrays.
func (t *trainer) exchange(ctx context.Context, verb string, body any, arrays [][]array) ([]reply, error) {
	all := make([]request, t.ranks)
	for i := range all {
		all[i] = request{Verb: verb, Handle: t.handle, Body: body, Arrays: arrays[i]}
	}
	replies, err := t.process.ask(ctx, all)
	if errors.Is(err, errMemory) {
		err = fmt.Errorf("%w; %s", err, t.room().tooLittle(t.process.about.Memory))
	}
	return replies, err
}

// room describes the memory that training this model takes. It returns the zero Room for
// a trainer that only samples or scores.
func (t *trainer) room() Room {
	if t.what != forTraining {
		return Room{}
	}
	var l *model.LoRA
	if t.of.Adapter != nil {
		l = &t.of.Adapter.LoRA
	}
	r := RoomOf(t.of.Architecture, l, t.of.Moments)
	r.Ranks = t.ranks
	return r
}

// Score implements model.Trainer.
func (t *trainer) Score(ctx context.Context, rows []model.Row) (logprobs, entropies [][]float32, err error) {
	logprobs, entropies, err = t.score(ctx, rows)
	if err != nil {
		return nil, nil, fmt.Errorf("score: %w", err)
	}
	return logprobs, entropies, nil
}

func (t *trainer) score(ctx context.Context, rows []model.Row) (logprobs, entropies [][]float32, err error) {
	passes, err := spread(t.of.Architecture, rows, t.tokens, t.ranks)
	if err != nil {
		return nil, nil, err
	}
	logprobs, entropies = make([][]float32, len(rows)), make([][]float32, len(rows))
	for i := range rows {
		logprobs[i], entropies[i] = []float32{}, []float32{}
	}
	for _, pass := range passes {
		if err := t.forward(ctx, pass, rows, false, logprobs, entropies); err != nil {
			return nil, nil, err
		}
	}
	for i := range rows {
		for j, x := range logprobs[i] {
			if math.IsNaN(float64(x)) || math.IsInf(float64(x), 0) {
				return nil, nil, fmt.Errorf("row %d: choice %d comes out as %v: %w; if the weights are those of a published model, its type or this version of transformers is not right for it", i, j, x, model.ErrNotFinite)
			}
		}
	}
	return logprobs, entropies, nil
}

// forward runs a pass and writes the results of its rows to logprobs and entropies.
func (t *trainer) forward(ctx context.Context, pass []batch, rows []model.Row, train bool, logprobs, entropies [][]float32) error {
	arrays := make([][]array, len(pass))
	for r, b := range pass {
		arrays[r] = b.arrays
	}
	replies, err := t.exchange(ctx, "forward", map[string]bool{"train": train}, arrays)
	if err != nil {
		return err
	}
	for r, b := range pass {
		out := replies[r].Arrays
		if len(out) != 2 {
			return fmt.Errorf("forward: %w: %d arrays, want 2", errFrame, len(out))
		}
		for i, to := range [][][]float32{logprobs, entropies} {
			numbers, err := out[i].floats(b.choices)
			if err != nil {
				return fmt.Errorf("forward: %w", err)
			}
			b.split(rows, numbers, to)
		}
	}
	return nil
}

// Update implements model.Trainer.
func (t *trainer) Update(ctx context.Context, rows []model.Row, objective model.Objective, opt model.AdamW) (float64, error) {
	norm, err := t.update(ctx, rows, objective, opt)
	if err != nil {
		if !errors.Is(err, model.ErrEngineLost) { // the started update is given up, also if the caller has left
			if left := t.request(context.WithoutCancel(ctx), "abort", nil, nil); !errors.Is(left, model.ErrEngineLost) {
				err = errors.Join(err, left)
			}
		}
		return norm, fmt.Errorf("update %d: %w", t.updates+1, err)
	}
	return norm, nil
}

func (t *trainer) update(ctx context.Context, rows []model.Row, objective model.Objective, opt model.AdamW) (float64, error) {
	if err := opt.Check(); err != nil {
		return 0, err
	}
	passes, err := spread(t.of.Architecture, rows, t.tokens, t.ranks)
	if err != nil {
		return 0, err
	}
	if len(rows) == 0 {
		return 0, errors.New("no rows")
	}
	if err := t.request(ctx, "begin_update", nil, nil); err != nil {
		return 0, err
	}
	for i, r := range rows {
		if len(r.Tokens) == 1 { // in no batch, but the objective sees every row
			objective(i, nil, nil, nil, nil)
		}
	}
	for _, pass := range passes {
		if err := t.accumulate(ctx, pass, rows, objective); err != nil {
			return 0, err
		}
	}
	var length struct {
		Norm *float64 `json:"norm"`
	}
	if err := t.request(ctx, "norm", nil, &length); err != nil {
		return 0, err
	}
	norm := math.NaN()
	if length.Norm != nil {
		norm = *length.Norm
	}
	if math.IsNaN(norm) || math.IsInf(norm, 0) {
		return norm, model.ErrDiverged
	}
	if err := t.request(ctx, "step", t.numbers(opt, norm), nil); err != nil {
		return 0, err
	}
	t.updates++
	return norm, nil
}

// accumulate adds the gradient of a pass's rows.
func (t *trainer) accumulate(ctx context.Context, pass []batch, rows []model.Row, objective model.Objective) error {
	logprobs, entropies := make([][]float32, len(rows)), make([][]float32, len(rows))
	if err := t.forward(ctx, pass, rows, true, logprobs, entropies); err != nil {
		return err
	}
	arrays := make([][]array, len(pass))
	for r, b := range pass {
		byLogprob, byEntropy := make([]float32, b.choices), make([]float32, b.choices)
		at := 0
		for _, i := range b.rows {
			end := at + len(logprobs[i])
			objective(i, logprobs[i], entropies[i], byLogprob[at:end:end], byEntropy[at:end:end])
			at = end
		}
		arrays[r] = []array{newArray("by_logprob", byLogprob, b.choices), newArray("by_entropy", byEntropy, b.choices)}
	}
	_, err := t.exchange(ctx, "backward", nil, arrays)
	return err
}

// numbers returns the numbers of the next update with a gradient of the given norm.
func (t *trainer) numbers(o model.AdamW, norm float64) adamW {
	scale := 1.0
	if o.ClipNorm > 0 && norm > o.ClipNorm {
		scale = o.ClipNorm / norm
	}
	updates := float64(t.updates + 1)
	return adamW{
		Update: t.updates + 1,
		Rate:   float32(o.LearningRate), Scale: float32(scale), Epsilon: float32(o.Epsilon), Decay: float32(o.WeightDecay),
		Beta1: float32(o.Beta1), Rest1: float32(1 - o.Beta1), Correct1: float32(1 / (1 - math.Pow(o.Beta1, updates))),
		Beta2: float32(o.Beta2), Rest2: float32(1 - o.Beta2), Correct2: float32(1 / (1 - math.Pow(o.Beta2, updates))),
	}
}

// Checkpoint implements model.Trainer. The interface has no error to return, so it panics
// where Save has one: a checkpoint that is not the present state must never be stored.
func (t *trainer) Checkpoint() model.Checkpoint {
	c, err := t.Save(context.Background())
	if err != nil {
		panic(fmt.Errorf("checkpoint: %w", err))
	}
	return c
}

// Close implements model.Trainer. A program that is lost has freed everything.
func (t *trainer) Close() {
	_ = t.request(context.Background(), "free", nil, nil) // a lost program has nothing to free
}

var (
	_ model.Critic = critic{}
	_ model.Saver  = critic{}
)

// critic implements model.Critic: a trainer whose forward pass returns values in place of
// a policy's log-probabilities.
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

// batch holds some rows that go through the model together. It is laid out as [rows,
// longest], with padding after each row.
type batch struct {
	rows    []int // of the caller's
	choices int   // tokens of all rows but the first of each
	arrays  []array
}

// spread checks rows and cuts them into passes, each of which has one batch for each
// rank. Rows are dealt to the ranks in the order of their lengths, so that all ranks get
// about as many rows, and as long ones. A rank without a row gets an idle batch, because
// all ranks have to take part. The result depends on nothing but rows, limit and ranks.
// Rows without a choice are in no batch.
func spread(a model.Architecture, rows []model.Row, limit, ranks int) ([][]batch, error) {
	order, err := byLength(a, rows)
	if err != nil {
		return nil, err
	}
	var passes [][]batch
	for r := range ranks {
		var mine []int
		for i := r; i < len(order); i += ranks {
			mine = append(mine, order[i])
		}
		for at, b := range cut(a, rows, mine, limit) {
			if at == len(passes) { // rank 0 has the most
				passes = append(passes, make([]batch, ranks))
			}
			passes[at][r] = b
		}
	}
	for _, pass := range passes {
		for r := range pass {
			if pass[r].rows == nil {
				pass[r] = idle(a, rows[order[0]])
			}
		}
	}
	return passes, nil
}

// byLength returns the indices of the rows that have a choice, the longest row first.
func byLength(a model.Architecture, rows []model.Row) ([]int, error) {
	order := make([]int, 0, len(rows))
	for i, r := range rows {
		if err := r.Check(a); err != nil {
			return nil, fmt.Errorf("row %d: %w", i, err)
		}
		if len(r.Tokens) > 1 {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(i, j int) int { return len(rows[j].Tokens) - len(rows[i].Tokens) })
	return order, nil
}

// cut groups rows of similar length into batches of at most limit tokens, padding
// included. A longer row is a batch alone.
func cut(a model.Architecture, rows []model.Row, order []int, limit int) []batch {
	var all []batch
	for len(order) > 0 {
		longest := len(rows[order[0]].Tokens)
		n := min(len(order), max(1, limit/longest))
		all = append(all, newBatch(a, rows, order[:n], longest))
		order = order[n:]
	}
	return all
}

// idle returns a batch whose results are not used: two tokens of a row.
func idle(a model.Architecture, r model.Row) batch {
	b := newBatch(a, []model.Row{{Tokens: r.Tokens[:2]}}, []int{0}, 2)
	b.rows = nil
	return b
}

func newBatch(a model.Architecture, rows []model.Row, indices []int, longest int) batch {
	b := batch{rows: indices}
	tokens, lengths := make([]int32, len(indices)*longest), make([]int32, len(indices))
	var scale []float32
	m := masks{bytes: (a.VocabSize + 63) / 64 * 8, numbers: map[string]int32{}}
	for k, i := range indices {
		r := rows[i]
		copy(tokens[k*longest:], r.Tokens)
		lengths[k] = int32(len(r.Tokens))
		factor := float32(1)
		if r.Temperature != 0 {
			factor = float32(1 / r.Temperature)
		}
		for t := range len(r.Tokens) - 1 {
			scale = append(scale, factor)
			m.add(r, t)
		}
	}
	b.choices = len(scale)
	b.arrays = []array{
		newArray("tokens", tokens, len(indices), longest), newArray("lengths", lengths, len(indices)), newArray("scale", scale, len(scale)),
		newArray("bits", m.bits, len(m.numbers), m.bytes), newArray("mask", m.of, len(m.of)),
	}
	return b
}

// masks holds the distinct sets that the choices of a batch are restricted to.
type masks struct {
	bytes   int // of a set: bit k of byte j is for token 8j+k
	bits    []byte
	numbers map[string]int32
	of      []int32 // number of each choice's set, -1 if all tokens are allowed
}

func (m *masks) add(r model.Row, choice int) {
	if r.Allowed == nil || r.Allowed[choice] == nil {
		m.of = append(m.of, -1)
		return
	}
	bits := make([]byte, m.bytes)
	for i, word := range r.Allowed[choice] {
		if 8*i < len(bits) {
			binary.LittleEndian.PutUint64(bits[8*i:], word)
		}
	}
	number, known := m.numbers[string(bits)]
	if !known {
		number = int32(len(m.numbers))
		m.numbers[string(bits)] = number
		m.bits = append(m.bits, bits...)
	}
	m.of = append(m.of, number)
}

// split sets to[i], for each row i of b, to the row's part of numbers. numbers has one
// number for each choice.
func (b batch) split(rows []model.Row, numbers []float32, to [][]float32) {
	for _, i := range b.rows {
		n := len(rows[i].Tokens) - 1
		to[i], numbers = numbers[:n:n], numbers[n:]
	}
}
