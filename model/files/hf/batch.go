package hf

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"

	"github.com/fulgurite/fulgurite/model"
)

// batchKey is the metadata under which a batch's file holds its JSON.
const batchKey = "batch"

// returnsArray is an array that a batch's file has if a critic learns from it.
const returnsArray = "returns"

// EncodeBatch checks b and returns its file. The file holds the rows one after the other
// in flat arrays, where row i is numbers offsets[i] to offsets[i+1]. The rest is JSON in
// the metadata. Equal batches give equal bytes.
func EncodeBatch(b model.Batch) ([]byte, error) {
	if err := b.Check(); err != nil {
		return nil, fmt.Errorf("encode batch: %w", err)
	}
	forms, err := newForms(b.Rows)
	if err != nil {
		return nil, fmt.Errorf("encode batch: %w", err)
	}
	text, err := json.Marshal(batchText{b, forms.distinct})
	if err != nil {
		return nil, fmt.Errorf("encode batch: %w", err)
	}
	n := 0
	for _, r := range b.Rows {
		n += len(r.Tokens)
	}
	if n > math.MaxInt32 || len(b.Trajectories) > math.MaxInt32 {
		return nil, fmt.Errorf("encode batch: %w: %d tokens do not fit one batch", model.ErrBatch, n)
	}
	f := flat{
		offsets: []int32{0}, tokens: make([]int32, 0, n), calls: make([]int32, 0, n), sampled: make([]uint8, 0, n),
		logprobs: make([]float32, 0, n), advantages: make([]float32, 0, n),
		trajectories: make([]int32, 0, len(b.Rows)), temperatures: make([]float64, 0, len(b.Rows)),
	}
	for _, r := range b.Rows {
		f.append(r)
	}
	var out bytes.Buffer
	out.Grow(17*n + 16*len(b.Rows) + 2*len(text) + 1024)
	if err := WriteArrays(&out, append(f.arrays(), forms.arrays()...), map[string]string{batchKey: string(text)}); err != nil {
		return nil, fmt.Errorf("encode batch: %w", err)
	}
	return out.Bytes(), nil
}

// DecodeBatch reads and checks a result of EncodeBatch. It ignores arrays that it does
// not know.
func DecodeBatch(file []byte) (model.Batch, error) {
	arrays, metadata, err := ReadArrays(bytes.NewReader(file), int64(len(file)))
	if err != nil {
		return model.Batch{}, fmt.Errorf("decode batch: %w", err)
	}
	var text batchText
	if err := json.Unmarshal([]byte(metadata[batchKey]), &text); err != nil {
		return model.Batch{}, fmt.Errorf("decode batch: %w: metadata %q: %w", ErrFormat, batchKey, err)
	}
	f, err := newFlat(arrays)
	if err != nil {
		return model.Batch{}, fmt.Errorf("decode batch: %w", err)
	}
	b := text.Batch
	if b.Rows, err = f.rows(); err != nil {
		return model.Batch{}, fmt.Errorf("decode batch: %w", err)
	}
	if err := readForms(arrays, text.Forms, b.Rows); err != nil {
		return model.Batch{}, fmt.Errorf("decode batch: %w", err)
	}
	if err := b.Check(); err != nil {
		return model.Batch{}, fmt.Errorf("decode batch: %w", err)
	}
	return b, nil
}

// batchText is the JSON of a batch's file.
type batchText struct {
	model.Batch
	Forms []json.RawMessage `json:"forms,omitempty"` // each different form once
}

// flat holds the rows of a batch as arrays.
type flat struct {
	offsets, tokens, calls, trajectories []int32
	sampled                              []uint8
	logprobs, advantages                 []float32
	returns                              []float32 // nil without a critic
	temperatures                         []float64
}

func (f *flat) append(r model.BatchRow) {
	f.tokens = append(f.tokens, r.Tokens...)
	f.calls = append(f.calls, r.Calls...)
	f.logprobs = append(f.logprobs, r.Logprobs...)
	f.advantages = append(f.advantages, r.Advantages...)
	f.returns = append(f.returns, r.Returns...)
	for _, s := range r.Sampled {
		if s {
			f.sampled = append(f.sampled, 1)
		} else {
			f.sampled = append(f.sampled, 0)
		}
	}
	f.offsets = append(f.offsets, int32(len(f.tokens)))
	f.trajectories = append(f.trajectories, int32(r.Trajectory))
	f.temperatures = append(f.temperatures, r.Temperature)
}

func (f *flat) arrays() []Array {
	all := []Array{
		NewArray("temperatures", f.temperatures),
		NewArray("trajectories", f.trajectories),
		NewArray("offsets", f.offsets),
		NewArray("tokens", f.tokens),
		NewArray("calls", f.calls),
		NewArray("logprobs", f.logprobs),
		NewArray("advantages", f.advantages),
		NewArray("sampled", f.sampled),
	}
	if f.returns != nil {
		all = append(all, NewArray(returnsArray, f.returns))
	}
	return all
}

func newFlat(arrays []Array) (*flat, error) {
	var f flat
	err := errors.Join(
		readArray(arrays, "temperatures", &f.temperatures), readArray(arrays, "trajectories", &f.trajectories),
		readArray(arrays, "offsets", &f.offsets), readArray(arrays, "tokens", &f.tokens), readArray(arrays, "calls", &f.calls),
		readArray(arrays, "logprobs", &f.logprobs), readArray(arrays, "advantages", &f.advantages), readArray(arrays, "sampled", &f.sampled),
	)
	if err == nil && has(arrays, returnsArray) {
		err = readArray(arrays, returnsArray, &f.returns)
	}
	if err != nil {
		return nil, err
	}
	return &f, f.check()
}

func readArray[E Element](arrays []Array, name string, to *[]E) (err error) {
	*to, err = Find[E](arrays, name)
	return err
}

// check makes slicing by offsets safe. Batch.Check checks what the numbers mean.
func (f *flat) check() error {
	n, rows := len(f.tokens), len(f.offsets)-1
	if rows < 0 || len(f.trajectories) != rows || len(f.temperatures) != rows {
		return fmt.Errorf("%w: %d offsets, %d trajectories, %d temperatures", ErrFormat, len(f.offsets), len(f.trajectories), len(f.temperatures))
	}
	if len(f.calls) != n || len(f.logprobs) != n || len(f.advantages) != n || len(f.sampled) != n {
		return fmt.Errorf("%w: %d tokens, %d calls, %d logprobs, %d advantages, %d sampled",
			ErrFormat, n, len(f.calls), len(f.logprobs), len(f.advantages), len(f.sampled))
	}
	if f.returns != nil && len(f.returns) != n {
		return fmt.Errorf("%w: %d tokens, %d returns", ErrFormat, n, len(f.returns))
	}
	if f.offsets[0] != 0 || int(f.offsets[rows]) != n {
		return fmt.Errorf("%w: offsets run from %d to %d, there are %d tokens", ErrFormat, f.offsets[0], f.offsets[rows], n)
	}
	for i := range rows {
		if f.offsets[i] > f.offsets[i+1] {
			return fmt.Errorf("%w: row %d: offsets %d and %d", ErrFormat, i, f.offsets[i], f.offsets[i+1])
		}
	}
	return nil
}

func (f *flat) rows() ([]model.BatchRow, error) {
	rows := make([]model.BatchRow, len(f.offsets)-1)
	for i := range rows {
		from, to := f.offsets[i], f.offsets[i+1]
		r := model.BatchRow{
			Row:     model.Row{Tokens: f.tokens[from:to:to], Temperature: f.temperatures[i]},
			Sampled: make([]bool, to-from), Logprobs: f.logprobs[from:to:to], Advantages: f.advantages[from:to:to],
			Calls: f.calls[from:to:to], Trajectory: int(f.trajectories[i]),
		}
		if f.returns != nil {
			r.Returns = f.returns[from:to:to]
		}
		for t, s := range f.sampled[from:to] {
			if s > 1 {
				return nil, fmt.Errorf("%w: row %d token %d: sampled is %d", ErrFormat, i, t, s)
			}
			r.Sampled[t] = s == 1
		}
		rows[i] = r
	}
	return rows, nil
}
